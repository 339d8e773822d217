"""A large output is judged by a part where its calls can be cut, and faults are found as by the whole."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pytest_probe.check import Checker, Conditions, judging
from pytest_probe.check.large import parts
from pytest_probe.check.large.parts import Elements, Rows
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.registry import Registry
from tests.support.devices import Emulated

Tensor = torch.Tensor
SHAPE = 512, 64
DTYPES, DEVICES = ("float32", "bfloat16", "float16"), ("cpu", "npu")


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large here."""
    monkeypatch.setattr(parts, "LARGE", 2**14)
    monkeypatch.setattr(parts, "DRAWN", 2**11)
    monkeypatch.setattr(judging, "diagnose", lambda *_: None)


def numbers(dtype: str, *shape: int, seed: int = 0) -> Tensor:
    found = torch.randn(shape or SHAPE, generator=torch.Generator().manual_seed(seed))
    return found.to(getattr(torch, dtype))


def outputs(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    given: list[Tensor],
    device: str = "cpu",
    *,
    backward: bool = False,
) -> dict[str, OutputVerdict]:
    registry = Registry.default()
    registry.devices["npu"] = Emulated
    checker = Checker(Conditions(device=device), registry)
    found = checker.compare(function, reference, given, key="call", backward=backward)
    return {output.name: output for verdict in found for output in verdict.outputs}


CUT: dict[str, Callable[[Tensor], Tensor]] = {
    "elements": lambda x: F.gelu(x),
    "elements and a row": lambda x: x * torch.linspace(0.5, 1.5, SHAPE[1], dtype=x.dtype, device=x.device),
    "rows of softmax": lambda x: F.softmax(x, -1),
    "rows of a norm": lambda x: F.layer_norm(x, SHAPE[1:]),
    "rows of a product": lambda x: x @ torch.eye(SHAPE[1], dtype=x.dtype, device=x.device).flip(0),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CUT)
def test_a_healthy_call_passes_by_a_part(name: str, dtype: str, device: str) -> None:
    found = outputs(CUT[name], CUT[name], [numbers(dtype)], device, backward=True)
    assert [output.reason for output in found.values() if output.verdict != "pass"] == []
    if name != "elements and a row":  # a closed-over tensor has one length, which no other part has
        assert found["output.0"].shape == SHAPE


@pytest.mark.parametrize("name", ["elements", "rows of softmax", "rows of a norm"])
def test_what_was_sampled_is_in_the_result(name: str) -> None:
    found = outputs(CUT[name], CUT[name], [numbers("float32")], backward=True)
    assert 0 < found["output.0"].metrics["sampled"] <= 0.25  # type: ignore[operator]
    assert 0 < found["grad.input.0"].metrics["sampled"] <= 0.25  # type: ignore[operator]


WHOLE: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax of columns": lambda x: F.softmax(x, 0),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "running sum": lambda x: x.cumsum(0),
    "sorted": lambda x: x.sort(0).values,
    "by the largest of all": lambda x: x / x.abs().max(),
    "another order of rows": lambda x: x.flip(0),
    "next rows": lambda x: x + x.roll(1, 0),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_hangs_on_other_rows_is_judged_whole(name: str) -> None:
    found = outputs(WHOLE[name], WHOLE[name], [numbers("float32")])["output.0"]
    assert (found.verdict, "sampled" in found.metrics) == ("pass", False)


def at(place: Any, change: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    def planted(right: Tensor) -> Tensor:
        wrong = right.clone()
        wrong[place] = change(right[place])
        return wrong

    return planted


FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "one element": at((301, 33), lambda right: right + 0.25 * right.abs().max()),
    "one element, NaN": at((301, 33), lambda right: math.nan),
    "one element, inf": at((301, 33), lambda right: math.inf),
    "the last 7 elements": at((-1, slice(-7, None)), torch.zeros_like),
    "one row, 5 % too large": at(301, lambda right: right * 1.05),
    "a stale row": lambda right: at(301, lambda _: right[300])(right),
    "a tile": at((slice(64, 96), slice(16, 48)), lambda right: right * 1.05),
    "all": lambda right: right * 1.02,
    "a tail": at(slice(-16, None), torch.zeros_like),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["elements", "rows of softmax", "rows of a norm"])
def test_a_fault_in_rows_that_are_not_drawn_is_found(name: str, fault: str, dtype: str, device: str) -> None:
    def wrong(x: Tensor) -> Tensor:
        right = CUT[name](x)
        return right if x.dtype is torch.float64 else FAULTS[fault](right)

    assert outputs(wrong, CUT[name], [numbers(dtype)], device)["output.0"].verdict == "error"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_shift_of_a_part_of_an_ulp_is_found(dtype: str, device: str) -> None:
    def wrong(x: Tensor) -> Tensor:
        right = F.gelu(x)
        if x.dtype is torch.float64:
            return right
        up = torch.nextafter(right, torch.full((), math.inf, dtype=right.dtype))
        return torch.where(torch.arange(x.numel(), device=x.device).reshape(x.shape) % 2 == 0, up, right)

    assert outputs(wrong, F.gelu, [numbers(dtype)], device)["output.0"].verdict == "error"


def test_elements_of_a_broadcast_argument() -> None:
    cut = Elements((2, 3), np.array([1, 5]))
    assert cut.taken(np.arange(6).reshape(2, 3)).tolist() == [1, 5]
    assert cut.taken(np.array([10, 20, 30])).tolist() == [20, 30]
    assert cut.taken(np.array([[7]])).shape == ()
    assert cut.share == 1 / 3


def test_rows_of_leading_dimensions() -> None:
    cut = Rows((2, 2, 3), 2, np.array([1, 3]))
    assert cut.taken(np.arange(12).reshape(2, 2, 3)).tolist() == [[3, 4, 5], [9, 10, 11]]
    assert cut.taken(np.arange(3)).tolist() == [0, 1, 2]
    assert cut.share == 0.5
