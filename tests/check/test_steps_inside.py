"""Kernels of a framework's own on an accelerator that round to 16 bit inside pass with a note, whatever their size, and
are no excuse for a fault; a user's kernel that does the same is an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.check import Checker, RunRequest, judging
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.check.conftest import Make
from tests.support.cuda_kernels import Formula, Patched, Tensor, batch_norm, by_formula, sigmoid_gradient, tanh_gradient

KERNELS: dict[str, tuple[Any, Formula]] = {
    "sigmoid": (torch.sigmoid, sigmoid_gradient),
    "tanh": (torch.tanh, tanh_gradient),
}
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


@pytest.fixture(autouse=True)
def no_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No verdict hangs on the cause of an error, which takes most of the time."""
    monkeypatch.setattr(judging, "diagnose", lambda *_: None)


def registry(patches: Mapping[Any, Callable[..., Any]]) -> Registry:
    return Registry(devices={"cuda": lambda name: Patched(name, patches)})


def gradients(
    make: Make, name: str, formula: Formula, dtype: torch.dtype, shape: tuple[int, ...], seed: int
) -> Verdict:
    function = KERNELS[name][0]
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.1).to(dtype)
    devices = registry({function: by_formula(function, formula)})
    request = {"device": "cuda", "seed": seed}
    found = make(f"Torch.{name}", function, x, backward=True, registry=devices, request=request)
    assert found.check().verdict == "pass"
    return found.check("backward")


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (8, 32, 1, 1), (40, 60)], ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_rounds_each_step_passes(
    bench: Make, name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    found = [gradients(bench, name, KERNELS[name][1], dtype, shape, seed) for seed in range(2)]
    assert [verdict.verdict for verdict in found] == ["pass"] * 2
    if (name, dtype, len(shape)) == ("sigmoid", torch.bfloat16, 4):
        assert {verdict.outputs[0].reason for verdict in found} == {"rounds each step in bfloat16"}


def one_off(found: Tensor, times: float) -> Tensor:
    found, place = found.clone(), found.abs().flatten().argsort()[found.numel() // 2]
    found.view(-1)[place] *= times
    return found


def exchanged(found: Tensor) -> Tensor:
    return found.flatten().roll(1).view(found.shape)


FAULTS: dict[str, Callable[[Formula], Formula]] = {
    "a factor": lambda right: lambda grad, y: right(grad, y) * 1.01,
    "an element": lambda right: lambda grad, y: one_off(right(grad, y), 1.12),
    "elements exchanged": lambda right: lambda grad, y: exchanged(right(grad, y)),
    "1 + y y": lambda right: lambda grad, y: grad * (1 + y * y),
    "a sign": lambda right: lambda grad, y: -right(grad, y),
    "a factor left out": lambda right: lambda grad, y: grad * (1 - y),
    "of another function": lambda right: lambda grad, y: grad * (1 - y * y) * (1 - y) * y,
}


@DTYPES
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", KERNELS)
def test_a_fault_beside_such_steps_is_an_error(bench: Make, name: str, fault: str, dtype: torch.dtype) -> None:
    assert gradients(bench, name, FAULTS[fault](KERNELS[name][1]), dtype, (8, 32, 1, 1), 0).verdict == "error"


def test_a_users_function_with_such_steps_is_an_error(bench: Make) -> None:
    """One that is registered, and one that a test compares with torch's."""
    x = (torch.randn(64, 9, generator=torch.Generator().manual_seed(0)) * 0.1).bfloat16()
    mine = by_formula(torch.sigmoid, sigmoid_gradient)

    def function(x: Tensor) -> Tensor:
        return mine(x) if x.dtype is torch.bfloat16 else torch.sigmoid(x)

    devices = Registry(devices=registry({}).devices, calls={"Torch.sigmoid": function})
    request = {"device": "cuda"}
    replaced = bench("Torch.sigmoid", torch.sigmoid, x, backward=True, registry=devices, request=request)
    assert replaced.check("backward").verdict == "error"
    checker = Checker(RunRequest(device="cuda"), registry({}))
    compared = checker.compare(function, torch.sigmoid, (x,), backward=True, api="Torch.sigmoid")
    assert [verdict.verdict for verdict in compared] == ["pass", "error"]


def normalised(make: Make, dtype: torch.dtype, shape: tuple[int, ...], fault: Any = None, seed: int = 0) -> Verdict:
    generator, channels = torch.Generator().manual_seed(seed), shape[1]
    x = torch.randn(shape, generator=generator).to(dtype)
    weight, bias = 1 + 0.3 * torch.randn(channels, generator=generator), torch.randn(channels, generator=generator)
    found = make(
        "Functional.batch_norm",
        F.batch_norm,
        x,
        torch.zeros(channels),
        torch.ones(channels),
        weight=weight,
        bias=bias,
        training=True,
        momentum=0.1,
        eps=1e-5,
        backward=True,
        registry=registry({F.batch_norm: batch_norm(fault)}),
        request={"device": "cuda", "seed": seed},
    )
    assert found.check().verdict == "pass"
    return found.check("backward")


@DTYPES
@pytest.mark.parametrize("shape", [(8, 32, 12, 12), (4, 3, 7, 5), (2, 2, 48, 48), (16, 8, 30)], ids=str)
def test_sums_that_warps_round_pass(bench: Make, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    found = normalised(bench, dtype, shape)
    note = f"rounds each step in {str(dtype).removeprefix('torch.')}"
    assert (found.verdict, {output.reason for output in found.outputs}) == ("pass", {note})


WRONG_SUMS: dict[str, Callable[..., Any]] = {
    "an element": lambda x, weight, bias, parts: (one_off(x, 1.06), weight, bias),
    "a factor of x": lambda x, weight, bias, parts: (x * 1.01, weight, bias),
    "a factor of the weight": lambda x, weight, bias, parts: (x, weight * 1.01, bias),
    "channels exchanged": lambda x, weight, bias, parts: (x, weight, exchanged(bias)),
    "a sign": lambda x, weight, bias, parts: (x, -weight, bias),
    "no weight": lambda x, weight, bias, parts: ((parts[0] - parts[1] - parts[2]) * parts[3], weight, bias),
    "no mean": lambda x, weight, bias, parts: (x + parts[1] * parts[3], weight, bias),
    "no scale": lambda x, weight, bias, parts: (x + parts[2] * parts[3], weight, bias),
}


@DTYPES
@pytest.mark.parametrize("fault", WRONG_SUMS)
def test_a_fault_beside_such_sums_is_an_error(bench: Make, fault: str, dtype: torch.dtype) -> None:
    assert normalised(bench, dtype, (8, 16, 12, 12), WRONG_SUMS[fault]).verdict == "error"
