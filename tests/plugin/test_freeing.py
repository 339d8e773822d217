"""What reports keep of their results once an item has ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pytest_probe.plugin.freeing import Freeing


def report(when: str, **more: Any) -> Any:
    return SimpleNamespace(nodeid="d::x", when=when, **more)


def test_results_go_when_the_item_ends() -> None:
    freeing = Freeing()
    call = report("call", probe={"verdict": "warning", "folded": 3, "outputs": ["large"]}, probe_checks=["large"])
    end = report("teardown")
    freeing.pytest_runtest_logreport(call)
    assert call.probe["outputs"] == ["large"]
    freeing.pytest_runtest_logreport(end)
    assert vars(call) == {"nodeid": "d::x", "when": "call", "probe": {"verdict": "warning", "folded": 3}}
    assert not hasattr(end, "probe")


def test_all_attempts_and_a_death() -> None:
    freeing = Freeing()
    attempts = [report("call", probe={"verdict": "pass"}) for _ in range(2)]
    death = report("???", probe={"verdict": "error", "reason": "large"})
    for each in (*attempts, death):
        freeing.pytest_runtest_logreport(each)
    assert [each.probe for each in (*attempts, death)] == [
        {"verdict": "pass", "folded": 0},
        {"verdict": "pass", "folded": 0},
        {"verdict": "error", "folded": 0},
    ]
    assert attempts[0].probe is attempts[1].probe
