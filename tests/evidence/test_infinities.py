"""An infinity or NaN of the reference is exact: the device has it, or it is wrong."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from benchmarks.infinities import cases, wrongly_judged
from pytest_probe.standards.noise.explanation import OWN_KERNEL
from tests.evidence.infinities import CASES, INF, Case, Function, places, spoiled, wrong_answers
from tests.support.comparing import compared

pytestmark = pytest.mark.usefixtures("causes_once")

PLACES = pytest.mark.parametrize(
    ("dtype", "device"), [("float32", "cpu"), ("float32", "other"), ("bfloat16", "other"), ("float16", "cpu")]
)
# A device that errs by some roundoffs has a number as large as it likes beside these poles, and beside the first the
# other infinity as well: a difference that is zero has no sign.
BESIDE_POLES = ("a pole of equal arguments", "atanh(1)", "atanh(1), by name")
UNDECIDED = {(name, "largest") for name in BESIDE_POLES} | {(BESIDE_POLES[0], "-inf")}


def verdict(case: Case, function: Function, dtype: torch.dtype, device: str) -> tuple[str, str]:
    how: Any = {"device": device, "allow": "none", "api": case.api, "key": "infinities"}
    [found] = compared(function, case.function, case.inputs(dtype), **how)
    return found.verdict, found.reason


@PLACES
@pytest.mark.parametrize("name", CASES)
def test_the_right_answer_passes(name: str, device: str, dtype: str) -> None:
    """Where a 16-bit kernel of torch's own CPU rounds inside, it is a warning."""
    case = CASES[name]
    found, reason = verdict(case, case.function, getattr(torch, dtype), device)
    assert found == "pass" or (device == "cpu" and (found, OWN_KERNEL in reason) == ("warning", True))


@PLACES
@pytest.mark.parametrize("name", CASES)
def test_each_wrong_answer_is_an_error(name: str, device: str, dtype: str) -> None:
    case, of = CASES[name], getattr(torch, dtype)
    missed = []
    for place, right in places(case.function, case.inputs(of)):
        for answer in wrong_answers(right):
            if right == INF and (name, answer) in UNDECIDED:
                continue
            found, reason = verdict(case, spoiled(case.function, place, answer), of, device)
            if found != "error":
                missed.append((right, answer, found, reason))
    assert missed == []


def test_operators_at_their_odd_points() -> None:
    """What benchmarks/infinities.py does for all of torch's operators, for some of each kind."""
    counts = Counter[str]()
    found = [
        line
        for name, case in cases({"rsqrt", "div", "sum", "digamma", "xlogy"})
        for line in wrongly_judged(name, case, torch.bfloat16, "other", counts)
    ]
    # torch's own rsqrt rounds inside, so that msprobe's table warns.
    others = [line for line in found if not (line.startswith("rsqrt") and "the CPU's own answer is warning" in line)]
    # Near these points runs have large numbers of either sign.
    assert [line for line in others if not line.startswith(("digamma(-1)", "digamma(-2)", "digamma(-1e4)"))] == []
    assert (counts["right"], counts["wrong"], len(others)) == (47, 235, 3)
