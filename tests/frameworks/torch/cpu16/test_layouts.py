from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_probe.frameworks.torch.cpu16.layouts import all_contiguous, batch_norm, batch_norm_backward
from pytest_probe.frameworks.torch.rounding import StepsMode
from tests.frameworks.torch.cpu16.rounding import DTYPES

LAID_OUT = {
    "transposed": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "cut": lambda x: x.repeat_interleave(2, -1)[..., ::2],
}


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def wide(x: torch.Tensor | None) -> Any:
    return None if x is None else torch.empty_strided(x.shape, x.stride(), dtype=torch.float64).copy_(x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAID_OUT)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("weighs", [True, False])
def test_normalisation_is_the_kernels(weighs: bool, training: bool, layout: str, dtype: torch.dtype) -> None:
    x = LAID_OUT[layout](drawn(5, 4, 9, 3, seed=0).to(dtype))
    weight, bias = (drawn(4, seed=seed).to(dtype) if weighs else None for seed in (1, 2))
    running = [drawn(4, seed=3).to(dtype), drawn(4, seed=4).abs().to(dtype) + 0.5]
    grad = drawn(5, 4, 9, 3, seed=5).to(dtype)
    args = [wide(value) for value in (x, weight, bias, *running)]
    outputs = torch.native_batch_norm(x, weight, bias, running[0], running[1], training, 0.1, 1e-5)
    steps = batch_norm(dtype, args[0], args[1], args[2], args[3], args[4], training, 0.1, 1e-5)
    for kernel, step in zip((*outputs, *running), (*steps, *args[3:]), strict=True):
        assert torch.equal(kernel, step.to(dtype))
    saved = (running[0], running[1], outputs[1], outputs[2])
    found = torch.ops.aten.native_batch_norm_backward(grad, x, weight, *saved, training, 1e-5, [True] * 3)
    backward: Callable[..., tuple[Any, ...]] = batch_norm_backward
    values = [wide(value) for value in (grad, x, weight, *saved)]
    for kernel, step in zip(found, backward(dtype, *values, training, 1e-5, [True] * 3), strict=True):
        assert torch.equal(kernel, step.to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_strides_tell_the_layout_of_images_of_one_element(dtype: torch.dtype) -> None:
    """Both are dense in either order; the kernel takes x for one with its channels last, and grad for one without."""
    x = drawn(8, 16, 1, 1, seed=0).to(dtype).as_strided((8, 16, 1, 1), (16, 1, 16, 16))
    grad, weight, mean, var = (drawn(*shape, seed=2).to(dtype) for shape in (x.shape, (16,), (16,), (16,)))
    saved = (weight, mean, var.abs() + 0.5, None, None)
    assert not all_contiguous(x, grad)
    assert all_contiguous(grad, grad)
    kernel = torch.ops.aten.native_batch_norm_backward(grad, x, *saved, False, 1e-5, [True] * 3)
    backward: Callable[..., tuple[Any, ...]] = batch_norm_backward
    steps = backward(dtype, *map(wide, (grad, x, *saved)), False, 1e-5, [True] * 3)
    exact = torch.ops.aten.native_batch_norm_backward(*map(wide, (grad, grad, *saved)), False, 1e-5, [True] * 3)[0]
    assert torch.equal(kernel[0], steps[0].to(dtype))
    assert not torch.equal(kernel[0], exact.to(dtype))


@pytest.mark.parametrize("apart", range(4))
@pytest.mark.parametrize("training", [True, False])
def test_parameters_whose_elements_lie_apart(training: bool, apart: int) -> None:
    """Of the device's results, and the running statistics that it leaves."""
    x, dtype = drawn(5, 4, 9, 3, seed=0).half(), torch.float16
    vectors = [drawn(4, seed=seed).abs().half() for seed in range(1, 5)]
    vectors[apart] = vectors[apart].repeat_interleave(2)[::2]
    args = [wide(value) for value in (x, *vectors)]
    normalised: Callable[..., tuple[torch.Tensor, ...]] = torch.native_batch_norm
    outputs = normalised(x, *vectors, training, 0.1, 1e-5)
    with StepsMode(dtype, fine=False):
        steps = normalised(*args, training, 0.1, 1e-5)
    assert torch.equal(outputs[0], steps[0].to(dtype))
    assert torch.equal(vectors[2], args[3].to(dtype))
    assert torch.equal(vectors[3], args[4].to(dtype))


def test_tensors_in_order_share_one_memory_format() -> None:
    x = drawn(2, 3, 4, 5, seed=0)
    last = x.to(memory_format=torch.channels_last)
    assert all_contiguous(x, x)
    assert all_contiguous(last, last)
    assert not all_contiguous(last, x)
    assert not all_contiguous(x.transpose(0, 1))
