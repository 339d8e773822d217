"""Cases above the FLOP budget: healthy ones pass, and what is wrong is found where checksums can see it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

from pytest_probe.check import PreparedCall
from tests.check.conftest import Function, Make, Plant, failed, normal
from tests.support.emulated import product, to_bits

SMALL = {"flops": 4e5}
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def linear(dtype: torch.dtype = torch.float32) -> tuple[Any, ...]:
    """A call of 4.2e6 FLOP."""
    return normal(128, 64, dtype=dtype), normal(256, 64, dtype=dtype, seed=1), normal(256, dtype=dtype, seed=2)


class OneElement:
    """A linear whose largest element is off by a factor."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.places: list[tuple[int, ...]] = []

    def __call__(self, right: Function, *args: Any) -> torch.Tensor:
        result: torch.Tensor = right(*args).clone()
        self.places.append(divmod(int(result.abs().argmax()), result.shape[1]))
        result[self.places[-1]] *= self.factor
        return result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_healthy_kernels_pass(bench: Make, dtype: torch.dtype, direction: str) -> None:
    found = bench("Functional.linear", F.linear, *linear(dtype), backward=True, conditions=SMALL).check(direction)
    assert (found.verdict, found.reason) == ("pass", "")
    assert all(0 < float(output.metrics["sampled"]) < 0.5 for output in found.outputs[:2])
    assert [output.shape for output in found.outputs] == (
        [(128, 256)] if direction == "forward" else [(128, 64), (256, 64), (256,)]
    )


def test_what_was_sampled_is_said(bench: Make) -> None:
    found = bench("Functional.linear", F.linear, *linear(), backward=True, conditions=SMALL).check()
    share = found.outputs[0].metrics["sampled"]
    assert found.notes == (f"sampled: output.0: {share:.2%} of its elements",)


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 1.001), (torch.float16, 1.03), (torch.bfloat16, 1.5)])
def test_one_wrong_element(bench: Make, plant: Plant, dtype: torch.dtype, factor: float) -> None:
    made = bench("Functional.linear", F.linear, *linear(dtype), conditions=SMALL)
    wrong = OneElement(factor)
    plant(F, "linear", wrong)
    found = made.check()
    assert failed(found) == {"output.0": "noise"}
    assert found.outputs[0].worst[0].index == wrong.places[0]


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        (lambda right, x, w, b: right(x, w * 1.01, b), {"grad.input.0", "grad.input.1"}),
        (lambda right, x, w, b: right(x, w, b * 1.01), {"grad.input.2"}),
    ],
)
def test_a_gradient_that_is_scaled(bench: Make, plant: Plant, wrong: Function, names: set[str]) -> None:
    made = bench("Functional.linear", F.linear, *linear(), backward=True, conditions=SMALL)
    plant(F, "linear", wrong)
    assert failed(made.check("backward")).keys() == names


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda right, *args: right(*args)[:, :-1], "shape [128, 255], the reference has [128, 256]"),
        (lambda right, *args: right(*args).double(), "the device gave float64[128, 256]"),
        (lambda right, x, w, b: right(x, w.add_(1), b), "changed this argument"),
    ],
)
def test_what_differs_in_structure(bench: Make, plant: Plant, wrong: Function, reason: str) -> None:
    made = bench("Functional.linear", F.linear, *linear(), conditions=SMALL)
    plant(F, "linear", wrong)
    found = made.check()
    assert found.verdict == "error"
    assert reason in found.reason


def test_a_gradient_that_is_missing(bench: Make, plant: Plant) -> None:
    made = bench("Functional.linear", F.linear, *linear(), backward=True, conditions=SMALL)
    plant(F, "linear", lambda right, x, w, b: right(x, w.detach(), b))
    assert failed(made.check("backward")) == {"grad.input.1": "structure"}


def test_under_a_device_mode(bench: Make, plant: Plant) -> None:
    multiply = product(to_bits(11))
    plant(F, "linear", lambda right, x, w, b: multiply(x, w.t()) + b)
    made = {
        allow: bench("Functional.linear", F.linear, *linear(), backward=True, conditions={**SMALL, "allow": (allow,)})
        for allow in ("none", "tf32")
    }
    for direction in ("forward", "backward"):
        assert made["none"].check(direction).verdict == "error"
        assert made["tf32"].check(direction).verdict == "pass"


def test_python_floats_of_narrow_tensors(bench: Make) -> None:
    args = normal(256, dtype=torch.bfloat16), *(tensor.t() for tensor in linear(torch.bfloat16)[1::-1])
    base, left, right = args[0], args[2].t(), args[1]
    made = bench("Torch.addmm", torch.addmm, base, left, right, beta=0.3, alpha=0.7, conditions=SMALL)
    found = made.check()
    assert (found.verdict, found.outputs[0].metrics.get("sampled") is not None) == ("pass", True)


def test_repeats_look_at_all_elements(bench: Make, plant: Plant) -> None:
    runs, wrong = iter(range(100)), OneElement(1 + 2.0**-22)
    plant(F, "linear", lambda right, *args: right(*args) if next(runs) % 2 else wrong(right, *args))
    made = bench("Functional.linear", F.linear, *linear(), conditions={**SMALL, "repeat": 3})
    found = made.check()
    assert any("1 of 32,768 elements" in note for note in found.notes)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1.01, "error")])
def test_a_call_that_a_test_makes(bench: Make, factor: float, verdict: str) -> None:
    made = bench("Functional.linear", F.linear, *linear(), backward=True, conditions=SMALL)
    prepared = made.checker.prepare(made.case(), gradient=True)
    assert isinstance(prepared, PreparedCall)
    result = factor * F.linear(*prepared.bound.args)
    for direction in ("forward", "backward"):
        found = made.checker.judge(prepared, result, direction).verdict
        assert (found.verdict, "sampled" in found.outputs[0].metrics) == (verdict, True)


def test_a_case_below_the_budget_is_judged_in_full(bench: Make) -> None:
    found = bench("Functional.linear", F.linear, *linear(), conditions={"flops": 5e6}).check()
    assert "sampled" not in found.outputs[0].metrics
    assert found.notes == ()


def test_in_another_dtype(bench: Make) -> None:
    made = bench("Functional.linear", F.linear, *linear(), conditions=SMALL)
    found = made.checker.check(replace(made.case(), dtype="bfloat16"))
    assert (found.verdict, found.dtype, "sampled" in found.outputs[0].metrics) == ("pass", "bfloat16", True)


def test_a_reference_device_by_name(bench: Make) -> None:
    made = bench("Functional.linear", F.linear, *linear(), backward=True, conditions={"reference_device": "cpu:0"})
    assert [made.check(direction).verdict for direction in ("forward", "backward")] == ["pass", "pass"]
    assert made.checker.setup.describe()["reference_device"] == "cpu:0"
