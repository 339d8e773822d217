"""--probe-against: recorded programs beside each other, without a fault and with one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.two_sides import Fault, Gpt, record


def compared(pytester: pytest.Pytester, *args: str) -> tuple[pytest.RunResult, dict[str, dict[str, Any]]]:
    """A run of A against B, and its results by the names of items."""
    result = pytester.runpytest("--probe-dump=A", "--probe-against=B", "--probe-out=out", *args)
    lines = Path("out", "results.jsonl").read_text().splitlines() if Path("out", "results.jsonl").exists() else []
    return result, {found["id"].split("::")[1]: found for found in map(json.loads, lines)}


def statuses(results: dict[str, dict[str, Any]]) -> Counter[str]:
    return Counter(found["against"]["status"] for found in results.values() if "against" in found)


def in_order(results: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
    """Items with what they are: forward in the order of calls, then backward in reverse."""
    place = {name: (found["place"] or 0) for name, found in results.items()}
    forward = sorted((name for name in results if name.endswith(".forward")), key=place.__getitem__)
    backward = sorted((name for name in results if name.endswith(".backward")), key=place.__getitem__, reverse=True)
    return [(name, results[name]["against"]["status"]) for name in (*forward, *backward)]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_two_recordings_of_one_program_are_equal(pytester: pytest.Pytester, workers: str) -> None:
    record(Path("A"))
    record(Path("B"))
    result, found = compared(pytester, "-n", workers)
    assert set(statuses(found)) == {"equal"}
    result.assert_outcomes(passed=len(found))
    result.stdout.fnmatch_lines(["A against B, * pairs: * equal", "*all pairs are equal*"])


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_wrong_softmax_is_the_first_own_error(pytester: pytest.Pytester, workers: str) -> None:
    record(Path("A"), fault=Fault("_softmax", 1, lambda y: y * (1 + 1e-3)))
    record(Path("B"))
    result, found = compared(pytester, "-n", workers)
    own = [name for name, status in in_order(found) if status == "own"]
    # Its backward uses what the forward gave.
    assert own == ["Functional.softmax.1.forward", "Functional.softmax.1.backward"]
    assert found[own[0]]["against"]["suspect"] == "A"
    assert found[own[0]]["against"]["nearer"] == "B"
    behind = dict(in_order(found))
    before = [status for name, status in in_order(found)[: [*behind].index(own[0])]]
    assert set(before) == {"equal"}
    after = [status for name, status in in_order(found)[[*behind].index(own[0]) + 1 :]]
    assert set(after) <= {"equal", "inherited", "recovers", "own"}
    assert "inherited" in after
    result.assert_outcomes(failed=2, passed=len(found) - 2)
    result.stdout.fnmatch_lines(["first own error: Functional.softmax.1.forward: own error of A: *"])


def test_the_wrong_side_may_be_the_other(pytester: pytest.Pytester) -> None:
    record(Path("A"))
    record(Path("B"), fault=Fault("_softmax", 1, lambda y: y * (1 + 1e-3)))
    _, found = compared(pytester)
    wrong = found["Functional.softmax.1.forward"]
    assert (wrong["verdict"], wrong["against"]["suspect"]) == ("error", "B")


def test_a_wrong_gradient_is_found(pytester: pytest.Pytester) -> None:
    record(Path("A"), fault=Fault("gelu_backward", 1, lambda y: y * (1 - 1e-3)))
    record(Path("B"))
    _, found = compared(pytester)
    own = [name for name, status in in_order(found) if status == "own"]
    assert own == ["Functional.gelu.1.backward"]
    assert {status for name, status in in_order(found) if name.endswith("forward")} == {"equal"}


def test_an_extra_call_moves_no_error(pytester: pytest.Pytester) -> None:
    record(Path("A"), lambda: Gpt(extra=True))
    record(Path("B"))
    result, found = compared(pytester)
    assert found["Torch.exp.0.forward"]["kind"] == "no such call on the other side"
    del found["Torch.exp.0.forward"]
    assert set(statuses(found)) == {"equal"}
    result.assert_outcomes(passed=len(found), skipped=1)


def test_recomputed_calls_are_those_that_they_repeat(pytester: pytest.Pytester) -> None:
    record(Path("A"), lambda: Gpt(recompute=True))
    record(Path("B"))
    result, found = compared(pytester)
    assert set(statuses(found)) == {"equal"}
    result.assert_outcomes(passed=len(found))
    assert any("again" in note for each in found.values() for note in each["notes"])


def test_micro_batches_are_joined(pytester: pytest.Pytester) -> None:
    record(Path("A"), parts=2)
    record(Path("B"))
    _, found = compared(pytester)
    assert set(statuses(found)) <= {"equal", "rounding", "inherited", "recovers", "incomparable"}
    assert not any(each["verdict"] in ("error", "warning") for each in found.values())
    assert found["Functional.softmax.0.forward"]["against"]["status"] in ("equal", "rounding")


def test_names_of_wrappers_do_not_count(pytester: pytest.Pytester) -> None:
    record(Path("A"), wrap=lambda model: torch.compile(model, backend="eager"), modules=True, compiled="eager")
    record(Path("B"), modules=True)
    _, found = compared(pytester)
    assert set(statuses(found)) == {"equal"}


MAP = """
concat:
  - {from: [q_proj, k_proj, v_proj], to: qkv_proj}
"""


def test_a_fused_side_is_compared_at_the_joint(pytester: pytest.Pytester) -> None:
    Path("map.yaml").write_text(MAP)
    record(Path("A"), lambda: Gpt(fused=False), modules=True)
    record(Path("B"), lambda: Gpt(), modules=True)
    _, found = compared(pytester, "--probe-against-map=map.yaml")
    joined = [each for each in found.values() if any("joined by the map" in note for note in each["notes"])]
    assert joined
    assert not any(each["verdict"] in ("error", "warning") for each in found.values())
