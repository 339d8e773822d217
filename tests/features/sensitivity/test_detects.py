"""What a passing output states beside what spoiled outputs show: near each other, and never nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

from pytest_probe.check.comparisons import comparisons
from pytest_probe.check.judging import judge_with_modes
from pytest_probe.features.sensitivity import Output, off_in_element, off_in_row, times
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import Detects
from pytest_probe.numerics.dtypes import AnyArray
from tests.check.conftest import Make, normal

CALLS: dict[str, tuple[Any, ...]] = {
    "linear": ("Functional.linear", F.linear, normal(32, 64), normal(16, 64, seed=1), normal(16, seed=2)),
    "add": ("Torch.add", torch.add, normal(32, 64), normal(32, 64, seed=1)),
    "mean": ("Torch.mean", torch.mean, normal(32, 64).abs()),
    "softmax": ("Functional.softmax", F.softmax, normal(32, 64), -1),
    "relu": ("Functional.relu", F.relu, normal(32, 64)),
}


def judged(bench: Make, name: str, dtype: str | None) -> tuple[Detects, Comparison, Any]:
    made = bench(*CALLS[name])
    checked = made.run(dtype=dtype)
    (output,) = checked.verdict.outputs
    assert output.verdict == "pass"
    assert output.detects is not None
    assert checked.worst is not None
    (comparison,) = comparisons(checked.worst, "forward", 0, by_class=True)
    assert isinstance(comparison, Comparison)
    standard = made.checker.registry.standards["auto"]

    def finds(values: AnyArray | None) -> bool:
        assert values is not None
        spoiled = replace(comparison, actual=values)
        return judge_with_modes(standard, spoiled, lambda: (), depth=lambda: "none").verdict == "error"

    return output.detects, comparison, finds


@pytest.mark.parametrize("dtype", [None, "bfloat16", "float16"])
@pytest.mark.parametrize("name", CALLS)
def test_four_times_the_stated_errors_are_found(bench: Make, name: str, dtype: str | None) -> None:
    stated, comparison, finds = judged(bench, name, dtype)
    output = Output(comparison, None, None)
    assert stated.scale is not None
    assert finds(times(1 + 4 * stated.scale)(output))
    assert finds(off_in_element(output, 4 * stated.element))
    assert (stated.row is None) == (comparison.actual.ndim < 2)
    if stated.row is not None:
        assert finds(off_in_row(output, 4 * stated.row))


@pytest.mark.parametrize("name", ["linear", "add", "mean", "softmax"])
def test_a_quarter_of_the_stated_errors_passes_in_float32(bench: Make, name: str) -> None:
    stated, comparison, finds = judged(bench, name, None)
    output = Output(comparison, None, None)
    assert stated.scale is not None
    assert not finds(times(1 + stated.scale / 4)(output))
    assert not finds(off_in_element(output, stated.element / 4))


def test_terms_of_a_sum(bench: Make) -> None:
    stated, _, _ = judged(bench, "linear", None)
    assert (stated.terms, stated.term) == (64, True)
    assert stated.description.endswith("one of 64 terms missing")
    assert judged(bench, "add", None)[0].terms is None


def test_zeros_state_no_scale(bench: Make) -> None:
    (output,) = bench("Torch.mul", torch.mul, normal(8, 16), torch.zeros(8, 16)).check().outputs
    assert output.detects is not None
    assert output.detects.scale is None
    assert output.detects.description.startswith("no scale error, ")


def test_an_error_states_nothing(bench: Make) -> None:
    made = bench("Torch.tanh", torch.tanh, normal(8, 16))
    with pytest.MonkeyPatch.context() as patch:
        right = torch.tanh
        patch.setattr(torch, "tanh", lambda x: right(x) if x.dtype is torch.float64 else 2 * right(x))
        (output,) = made.check().outputs
    assert (output.verdict, output.detects) == ("error", None)
