"""Elements with equal arguments have one result, wherever they lie. By their places torch's CPU gives equal NaN the
gradients 0 and 1 (pytorch 195075), and so does the reference: it judges no such element, and a device that does the
same is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pytest_probe.model.comparison import ComparedCase, Comparison, Evidence
from pytest_probe.model.run import BoundCall
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.standards.exact import PART, Exact, judged_apart
from tests.support.comparing import compared

DEVICES = pytest.mark.parametrize("device", ["cpu", "npu"])


def gradient_verdict(function: Any, reference: Any, x: torch.Tensor, device: str, api: str) -> OutputVerdict:
    found = compared(function, reference, (x,), device=device, diagnosed=False, api=api, backward=True)
    return found[1].outputs[0]


def with_nan(dtype: torch.dtype) -> torch.Tensor:
    """Vectors of eight, and the rest of a loop."""
    x = torch.full((37,), torch.nan, dtype=dtype)
    x[:4] = torch.tensor([0.5, -1.0, 7.0, 2.0])
    return x


class _OneGradient(torch.autograd.Function):
    """relu6, whose gradient is that of NaN wherever it stands."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x)
        return F.relu6(x)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (x,) = context.saved_tensors
        return torch.where(((x > 0) & (x < 6)) | x.isnan(), gradients[0], 0 * gradients[0])


@DEVICES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["relu6", "hardtanh", "softshrink", "hardshrink"])
def test_a_device_with_several_results_for_equal_arguments_is_wrong(name: str, dtype: torch.dtype, device: str) -> None:
    function = getattr(F, name)
    found = gradient_verdict(function, function, with_nan(dtype), device, f"Functional.{name}")
    assert (found.verdict, found.standard) == ("error", "equal inputs")
    assert found.reason == "33 of 37 elements have other results than elements with equal arguments"


@DEVICES
def test_what_a_reference_at_odds_with_itself_says_of_a_device_that_is_not(device: str) -> None:
    found = gradient_verdict(_OneGradient.apply, F.relu6, with_nan(torch.float32), device, "Functional.relu6")
    assert found.verdict == "warning"
    assert found.reason.startswith("undecided: 33 of 37 elements: the reference is at odds with itself")


@DEVICES
def test_the_other_elements_are_judged(device: str) -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _OneGradient.apply(x) * torch.where(x == 2, 1.01, 1.0)
        return result

    assert gradient_verdict(wrong, F.relu6, with_nan(torch.float32), device, "Functional.relu6").verdict == "error"


@DEVICES
@pytest.mark.parametrize("name", ["mish", "gelu", "silu", "sigmoid", "softplus", "elu", "relu6", "hardtanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_vectors_and_the_rest_of_a_loop_may_round_otherwise(name: str, dtype: torch.dtype, device: str) -> None:
    x = torch.tensor([-1.0, 0.7, 3.0, -3.0, 6.0, torch.inf, -torch.inf, 0.0, 1e-30]).repeat_interleave(37).to(dtype)
    function = getattr(F, name)
    assert gradient_verdict(function, function, x, device, f"Functional.{name}").verdict != "error"


def result(size: int, odd: int | None, *, device: float = 1.0) -> OutputVerdict:
    """Ones for equal arguments, another number at one place."""
    x = np.full(size, 3.0, np.float32)
    expected, actual = np.ones(size), np.ones(size, np.float32)
    if odd is not None:
        expected[odd], actual[odd] = 2.0, device
    call = BoundCall("Functional.gelu", "gelu", False, True, {"input": x}, {}, {})
    case = ComparedCase(call, frozenset(("elementwise",)), "forward", "", True)
    comparison = Comparison("output.0", case, actual, expected, actual.dtype, 2.0**-24, Evidence())
    return judged_apart(Exact(), comparison)


@pytest.mark.parametrize("odd", [0, -1, PART - 1, -PART])
def test_of_a_large_output_the_first_and_the_last_elements_are_looked_at(odd: int) -> None:
    assert result(4 * PART, odd).verdict == "warning"
    assert result(4 * PART, odd, device=2.0).verdict == "error"
    assert result(4 * PART, None).verdict == "pass"
    assert result(4 * PART, 2 * PART).standard == "exact"


def test_rounding_of_float64_is_no_difference() -> None:
    x = np.full(9, 3.0, np.float32)
    expected = np.full(9, 0.1)
    expected[-1] = np.nextafter(0.1, 1)
    call = BoundCall("Functional.gelu", "gelu", False, True, {"input": x}, {}, {})
    case = ComparedCase(call, frozenset(("elementwise",)), "forward", "", True)
    comparison = Comparison("output.0", case, expected.astype(np.float32), expected, x.dtype, 2.0**-24, Evidence())
    assert judged_apart(Exact(), comparison).verdict == "pass"


@DEVICES
@pytest.mark.parametrize(("off", "verdict"), [(1.0, "pass"), (1.01, "error")])
def test_a_real_gradient_is_no_multiple_of_a_complex_one(off: float, verdict: str, device: str) -> None:
    def times(factor: complex) -> Any:
        return lambda x: x * factor

    x = torch.tensor([3.14159, -1.0]).repeat(50)
    assert gradient_verdict(times(1j * off), times(1j), x, device, "Tensor.__mul__").verdict == verdict
