"""What reports keep of their results once an item has ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from msgspec import structs

from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import Outcome, Verdict
from pytest_probe.plugin.report_results import ReleaseResults, carried, carry
from pytest_probe.reports.results_file import results_in


def result(verdict: Outcome, folded: int = 0) -> Result:
    identity = PortableId("d", "Torch.add.0.forward")
    judged = Verdict(verdict, "noise", "too far")
    return Result.of(
        judged, identity, api="Torch.add", direction="forward", dtype="", device="cpu", duration=0.5, folded=folded
    )


def report(when: str, *results: Result) -> Any:
    made: Any = SimpleNamespace(nodeid="d::x", when=when, outcome="passed")
    if results:
        carry(made, results)
    return made


def test_a_report_carries_all_and_shows_one() -> None:
    results = result("error", 3), result("pass")
    call = report("call", *results)
    assert call.probe == {"verdict": "error", "folded": 3}
    assert results_in(carried(call)) == [*results]
    assert carried(report("teardown")) == ""


def test_a_report_of_a_result_that_cannot_be_written_has_failed() -> None:
    call = report("call", structs.replace(result("pass"), duration="soon"), result("pass"))
    assert (call.outcome, call.probe["verdict"]) == ("failed", "error")
    assert call.longrepr.startswith("the result cannot be written: Expected `float`")
    assert [each.verdict for each in results_in(carried(call))] == ["error", "pass"]


def test_results_go_when_the_item_ends() -> None:
    release = ReleaseResults()
    call, end = report("call", result("warning", 3)), report("teardown")
    release.pytest_runtest_logreport(call)
    assert carried(call)
    release.pytest_runtest_logreport(end)
    assert vars(call) == {
        "nodeid": "d::x",
        "when": "call",
        "outcome": "passed",
        "probe": {"verdict": "warning", "folded": 3},
    }
    assert not hasattr(end, "probe")


def test_all_attempts_and_a_death() -> None:
    release = ReleaseResults()
    attempts = [report("call", result("pass")) for _ in range(2)]
    attempts[1].probe = dict(attempts[1].probe)  # as it comes from another process
    death = report("???", result("error"))
    for each in (*attempts, death):
        release.pytest_runtest_logreport(each)
    assert [carried(each) for each in (*attempts, death)] == ["", "", ""]
    assert [each.probe["verdict"] for each in (*attempts, death)] == ["pass", "pass", "error"]
    assert attempts[0].probe is attempts[1].probe
