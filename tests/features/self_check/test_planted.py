"""Each planted fault is found by the question that is named for it; the same calls with right kernels pass."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from msgspec.structs import replace

from pytest_probe.capture.torch.asking import ObservedCall, agrees, moves_little, repeats
from pytest_probe.features.self_check.checks import SelfChecks, _rounding_explains
from pytest_probe.model.verdict import PASS_SELF, Verdict
from pytest_probe.numerics.dtypes import round_to
from pytest_probe.registry import Registry
from tests.check.conftest import Make
from tests.support import composites, devices
from tests.support.asking import comparison
from tests.support.asking import normal as values
from tests.support.self_faults import FAULTS, NARROW, RACE, Fault

CASES = [(name, dtype) for name, fault in FAULTS.items() for dtype in fault.dtypes]
# On the CPU its own float64 kernels are the reference that cpu has.
ON_CPU = {"cpu": "wider-dtype"}


def asked(bench: Make, fault: Fault, dtype: torch.dtype, device: str, calls: dict[str, Any]) -> Verdict:
    registry = Registry(calls=calls, devices={"other": devices.Emulated})
    backward = fault.direction == "backward"
    made = bench(
        f"{fault.api}",
        fault.right,
        *fault.arguments(dtype),
        backward=backward,
        registry=registry,
        request={"device": device},
    )
    checks = SelfChecks(made.checker, fault.asked)
    verdict = checks.of(made.case("forward")).verdict
    return checks.of(made.case("backward")).verdict if backward else verdict


def outcomes(verdict: Verdict) -> dict[str, str]:
    """The worst outcome of each question."""
    order = ("skip", "pass", "warning", "error")
    found: dict[str, str] = {}
    for output in verdict.outputs:
        name = output.name.partition(".")[0]
        found[name] = max(found.get(name, "skip"), output.verdict, key=order.index)
    return found


@pytest.mark.evidence
@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_a_fault_is_found_by_its_question(bench: Make, name: str, dtype: torch.dtype) -> None:
    fault = FAULTS[name]
    verdict = asked(bench, fault, dtype, "other", {fault.api: fault.call(dtype)})
    if not fault.found:
        assert verdict.verdict == PASS_SELF, verdict.reason
        return
    assert outcomes(verdict)[fault.found] == ("warning" if fault.found == "no-jumps" else "error"), verdict.outputs
    assert verdict.verdict in ("warning", "error")


@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_the_right_kernel_passes(bench: Make, name: str, dtype: torch.dtype, device: str) -> None:
    verdict = asked(bench, FAULTS[name], dtype, device, {})
    assert verdict.verdict == PASS_SELF, verdict.reason


def test_smooth_alone_finds_what_it_finds_among_others(bench: Make) -> None:
    fault = replace(FAULTS["jump"], asked=("no-jumps",))
    for wrong in (True, False):
        calls = {fault.api: fault.call(torch.float32)} if wrong else {}
        verdict = asked(bench, fault, torch.float32, "other", calls)
        assert outcomes(verdict) == {"no-jumps": "warning" if wrong else "pass"}


@pytest.mark.evidence
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("name", [*composites.RIGHT, *composites.WRONG])
def test_what_an_operators_own_steps_explain_is_undecided(
    bench: Make, name: str, dtype: torch.dtype, direction: str
) -> None:
    args = [arg.to(dtype) for arg in (composites.RIGHT | composites.WRONG)[name]]
    registry = Registry(namespaces={"Vendor": composites.__name__}, devices={"other": devices.Emulated})
    function = getattr(composites, name)
    made = bench(f"Vendor.{name}", function, *args, backward=True, registry=registry, request={"device": "other"})
    verdict = SelfChecks(made.checker, ["wider-dtype"]).of(made.case(direction)).verdict
    found = {output.verdict for output in verdict.outputs}
    if name in composites.WRONG:
        assert "error" in found, verdict.outputs
        return
    # The gradient of a sum is exact.
    assert found <= {"pass", "warning"}, verdict.outputs
    assert ("warning" in found) == ((name, direction) != ("added_in_turn", "backward"))
    reasons = [output.reason for output in verdict.outputs if output.verdict == "warning"]
    assert all(reason.startswith("undecided: rounding to 16 bit between its steps") for reason in reasons)


def test_rounding_inside_excuses_nothing_that_no_step_explains() -> None:
    """Numbers that are cut, beside the function called once more, are what the rule refused already."""
    wide = 1 + np.abs(values(400)) / 2
    cut = round_to(wide * (1 - 2.0**-8), np.dtype(ml_dtypes.bfloat16))
    runs = {"narrow_steps": [wide] * 4, "perturbed_narrow": [wide * (1 + values(400, seed=1) / 64)] * 4}
    for own in (cut, None):
        assert _rounding_explains(comparison(cut, wide, narrow="bfloat16", runs=runs, own_result=own)) == ""


@pytest.mark.parametrize("name", ["16-bit sums", "tile edge", "overflow", "log(1 + x)"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_training_asks_on_where_a_result_is_not_the_wider_one_rounded(name: str, dtype: torch.dtype) -> None:
    fault = FAULTS[name]
    args = fault.arguments(dtype)

    def wrong(*given: Any) -> Any:
        return (fault.wrong if given[0].dtype is dtype else fault.right)(*given)

    assert not agrees(ObservedCall(fault.api, wrong, args, {}, wrong(*args)), on_cpu=False)
    rounded = fault.right(*(arg.double() if isinstance(arg, torch.Tensor) else arg for arg in args)).to(dtype)
    assert agrees(ObservedCall(fault.api, fault.right, args, {}, rounded), on_cpu=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_training_asks_on_where_a_call_repeats_itself_otherwise(dtype: torch.dtype) -> None:
    x = RACE.args[0].to(dtype)
    assert not repeats(ObservedCall("Torch.sum.0", RACE.wrong, (x, 1), {}, RACE.wrong(x, 1)), 5)
    kept = x.clone()
    assert repeats(ObservedCall("Torch.sum.0", torch.sum, (x, 1), {}, torch.sum(x, 1)), 5)
    # A NaN and a zero's sign are compared as bits; what a call leaves in memory is no argument's.
    odd = torch.tensor([torch.nan, -0.0, 1.0], dtype=dtype)
    assert repeats(ObservedCall("Torch.mul.0", torch.mul, (odd, 1), {}, odd * 1), 5)
    assert not repeats(ObservedCall("Torch.mul.0", torch.mul, (odd, -1), {}, odd * 1), 5)
    assert torch.equal(x, kept)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_training_asks_on_where_a_result_jumps(dtype: torch.dtype) -> None:
    edge = torch.cat([torch.linspace(80, 99.9, 63), torch.tensor([100.0])]).to(dtype)
    jumps = FAULTS["jump"].wrong
    below = torch.nextafter(edge, torch.zeros(()).to(dtype)) if dtype is torch.float32 else edge * (1 - 2.0**-8)
    assert not moves_little(ObservedCall("Torch.sin.0", jumps, (below,), {}, jumps(below)), (1, 2, 4), 64)
    x = torch.linspace(0.1, 2, 64).to(dtype)
    assert moves_little(ObservedCall("Torch.exp.0", torch.exp, (x,), {}, torch.exp(x)), (1, 2, 4), 64)
    # Cancellation and infinities are looked at further.
    assert not moves_little(ObservedCall("Torch.log.0", torch.log, (x / x,), {}, torch.log(x / x)), (1, 2, 4), 64)
    assert not moves_little(ObservedCall("Torch.log.0", torch.log, (x * 0,), {}, torch.log(x * 0)), (1, 2, 4), 64)


def test_what_cannot_be_told_is_asked_on() -> None:
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    z = torch.complex(x, x)
    for function, given, result in (
        (torch.exp, z, z.exp()),
        (torch.exp, x.double(), x.double().exp()),
        (torch.exp, x, None),
        (torch.isfinite, x.long(), torch.isfinite(x)),
        (torch.exp, x.to_sparse(), x.to_sparse()),
        (torch.exp, x, x.exp()[0]),
    ):
        assert not agrees(ObservedCall("Torch.exp", function, (given,), {}, result), on_cpu=False)
