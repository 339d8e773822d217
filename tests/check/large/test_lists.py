"""Calls on lists of tensors of several shapes, as optimizers make them, are cut one tensor after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support.large_calls import cut_small_calls, outputs

Tensor = torch.Tensor
SHAPES = (300, 70), (64,), (1,), (100, 50), ()
DTYPES, DEVICES = ("float32", "bfloat16"), ("cpu", "npu")


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small_calls(monkeypatch)


def lists(dtype: str, count: int) -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        [torch.rand(shape, generator=generator).to(getattr(torch, dtype)) for shape in SHAPES] for _ in range(count)
    ]


def adamw(parameters: list[Tensor], gradients: list[Tensor], means: list[Tensor], squares: list[Tensor]) -> None:
    """A kernel that does not say what it writes to."""
    steps = [torch.tensor(3.0, dtype=torch.float32, device=parameters[0].device) for _ in parameters]
    further = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8}
    further |= {"amsgrad": False, "maximize": False}
    torch._fused_adamw_(parameters, gradients, means, squares, [], steps, **further)  # type: ignore[call-overload]


CUT: dict[str, tuple[Callable[..., Any], int]] = {
    "a number": (lambda x: torch._foreach_mul(x, 0.9), 1),
    "two lists": (torch._foreach_add, 2),
    "in place": (lambda x, y, z: torch._foreach_addcmul_(x, y, z, 0.1), 3),
    "the whole step of an optimizer": (adamw, 4),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CUT)
def test_each_tensor_of_a_healthy_call_passes_by_a_sample(name: str, dtype: str, device: str) -> None:
    function, count = CUT[name]
    found = outputs(function, function, lists(dtype, count), device)
    assert [output.reason for output in found.values() if output.verdict != "pass"] == []
    assert {output.shape for output in found.values()} == set(SHAPES)
    assert {0 < output.metrics.get("sampled", 1) < 0.5 for output in found.values()} == {True}  # type: ignore[operator]


@pytest.mark.parametrize(("device", "dtype"), [("cpu", "float32"), ("npu", "bfloat16")])
@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_a_fault_in_one_tensor_is_an_error_there(number: int, dtype: str, device: str) -> None:
    def wrong(x: list[Tensor], y: list[Tensor]) -> Any:
        found = torch._foreach_add(x, y)
        if found[0].dtype is not torch.float64:
            found[number].view(-1)[-1] *= 1.1
        return found

    found = outputs(wrong, torch._foreach_add, lists(dtype, 2), device)
    assert [name for name, output in found.items() if output.verdict == "error"] == [f"output.{number}"]
    assert found[f"output.{number}"].worst[0].index == tuple(extent - 1 for extent in SHAPES[number])


WHOLE: dict[str, Callable[..., Any]] = {
    "by the norm of all": lambda x: torch._foreach_div(x, torch.stack(torch._foreach_norm(x)).norm()),
    "norms": torch._foreach_norm,
    "a tensor twice": lambda x: torch._foreach_mul_([*x, x[0]], 0.5),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_hangs_on_other_tensors_is_judged_in_full(name: str) -> None:
    found = outputs(WHOLE[name], WHOLE[name], lists("float32", 1))
    assert {(output.verdict, "sampled" in output.metrics) for output in found.values()} == {("pass", False)}
