"""An infinity or NaN of the reference is exact: the device has it, or it is wrong."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from benchmarks.infinities import cases, wrongly_judged
from pytest_probe.check import Checker, RunRequest
from pytest_probe.registry import Registry
from pytest_probe.standards.noise.explanation import OWN_KERNEL
from tests.evidence.infinities import CASES, INF, ZERO_TIMES, Case, Function, places, spoiled, wrong_answers
from tests.support.devices import Emulated

pytestmark = pytest.mark.usefixtures("causes_once")

DTYPES = ("float32", "bfloat16", "float16")
# A device that errs by some roundoffs has a number as large as it likes beside these poles, and beside the first the
# other infinity as well: a difference that is zero has no sign.
BESIDE_POLES = ("a pole of equal arguments", "atanh(1)", "atanh(1), by name", "erfinv(1)", "logit(1)")
UNDECIDED = {(name, "largest") for name in BESIDE_POLES} | {(BESIDE_POLES[0], "-inf")}


def verdict(case: Case, function: Function, dtype: torch.dtype, device: str) -> tuple[str, str]:
    registry = Registry.default()
    registry.devices["other"] = Emulated
    checker = Checker(RunRequest(device=device, allow=("none",)), registry)
    [found] = checker.compare(function, case.function, case.inputs(dtype), api=case.api, key="infinities")
    return found.verdict, found.reason


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize("name", CASES)
def test_the_right_answer_passes(name: str, device: str, dtype: str) -> None:
    """Where a 16-bit kernel of torch's own CPU rounds inside, it is a warning."""
    case = CASES[name]
    found, reason = verdict(case, case.function, getattr(torch, dtype), device)
    assert found == "pass" or (device == "cpu" and (found, OWN_KERNEL in reason) == ("warning", True))


@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize("dtype", DTYPES)
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize("name", ZERO_TIMES)
def test_where_zero_times_nan_decides_and_kernels_differ_it_is_a_warning(name: str, device: str, dtype: str) -> None:
    case, of = ZERO_TIMES[name], getattr(torch, dtype)
    inputs = case.inputs(of)
    found, reason = verdict(case, case.function, of, device)
    wide = case.function(*(value.double() for value in inputs))
    differ = int((wide.isnan() & ~case.function(*inputs).isnan()).sum())
    assert found == ("warning" if differ else "pass")
    # What is undecided has the count, unless rounding inside torch's own kernel explains it.
    assert not differ or str(differ) in reason or (device == "cpu" and OWN_KERNEL in reason)


@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ZERO_TIMES)
def test_a_number_that_is_no_sum_of_the_other_terms_is_an_error(name: str, device: str, dtype: str) -> None:
    case, of = ZERO_TIMES[name], getattr(torch, dtype)
    missed = []
    for place, right in places(case.function, case.inputs(of)):
        for answer in wrong_answers(right):
            found = verdict(case, spoiled(case.function, place, answer), of, device)
            missed += [(right, answer, found)] * (found[0] != "error")
    assert missed == []


@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize("name", ["linear", "matmul", "bmm", "mask"])
def test_a_kernel_that_leaves_out_what_all_kernels_of_the_cpu_multiply_is_an_error(name: str, device: str) -> None:
    case = ZERO_TIMES[name]

    def skipping(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return case.function(x, y if y.dtype is torch.float64 else y.nan_to_num())

    assert verdict(case, skipping, torch.float32, device)[0] == "error"


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
