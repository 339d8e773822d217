"""The bits of an H200."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pytest_probe.frameworks.torch.kernels_of_gpu import KERNELS_OF_GPU
from tests.support.h200 import stored

ATEN = torch.ops.aten
BFLOAT16 = torch.bfloat16
DATA = Path(__file__).parent.parent.parent / "data"


def wide(dump: str, name: str) -> torch.Tensor:
    found = stored(f"{dump}-bfloat16-alone", name)
    return found.double() if found.is_floating_point() else found


def differing(found: torch.Tensor, dump: str, name: str) -> int:
    return int((found.to(BFLOAT16) != wide(dump, name).to(BFLOAT16)).sum())


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
def test_scans(name: str, dim: int) -> None:
    x = wide("indices", f"Torch.{name}.{dim}.forward.input.0")
    found = KERNELS_OF_GPU[getattr(ATEN, name).default](BFLOAT16, x, dim)
    assert differing(found, "indices", f"Torch.{name}.{dim}.forward.output.0") == 0


@pytest.mark.parametrize("op", [ATEN.cumsum.default, ATEN.cumprod.default])
@pytest.mark.parametrize("shape", [(), (0, 4), (1,), (3, 1), (2, 5000)])
def test_scans_of_any_shape(op: torch._ops.OpOverload, shape: tuple[int, ...]) -> None:
    """Of powers of 2, which no step rounds."""
    x = torch.ones(shape, dtype=torch.float64) if op is ATEN.cumprod.default else torch.zeros(shape).double()
    assert torch.equal(KERNELS_OF_GPU[op](BFLOAT16, x, -1), op(x, -1))


def test_products_are_rounded_before_their_sum_in_a_softmax() -> None:
    name = "Functional.softmax.1"
    grad, output = wide("activations", f"{name}.backward.input.0"), wide("activations", f"{name}.forward.output.0")
    found = KERNELS_OF_GPU[ATEN._softmax_backward_data.default](BFLOAT16, grad, output, 1, BFLOAT16)
    assert differing(found, "activations", f"{name}.backward.output.0") == 0


@pytest.mark.parametrize("number", [0, 1])
def test_moments_of_groups_are_rounded(number: int) -> None:
    name = f"Functional.group_norm.{number}.forward"
    x = wide("norms", f"{name}.input.0")
    affine = [None if number else wide("norms", f"{name}.kwargs.{each}") for each in ("weight", "bias")]
    found = KERNELS_OF_GPU[ATEN.native_group_norm.default](BFLOAT16, x, *affine, *x.shape[:2], 36, 4, 1e-5)
    assert differing(found[0], "norms", f"{name}.output.0") == 0
    assert torch.equal(found[1], found[1].to(BFLOAT16).double())
    assert torch.equal(found[2], found[2].to(BFLOAT16).double())


def test_steps_and_constants_of_a_loss_are_rounded() -> None:
    name = "Functional.smooth_l1_loss.0"
    x, target = (wide("losses", f"{name}.forward.input.{place}") for place in (0, 1))
    grad = wide("losses", f"{name}.backward.input.0")
    found = KERNELS_OF_GPU[ATEN.smooth_l1_loss_backward.default](BFLOAT16, grad, x, target, 1, 1.0)
    assert differing(found, "losses", f"{name}.backward.output.0") == 0


def test_rows_of_an_embedding_meet_in_warps() -> None:
    name, kernel = "Functional.embedding.0", KERNELS_OF_GPU[ATEN.embedding_dense_backward.default]
    grad, indices = wide("indices", f"{name}.backward.input.0"), wide("indices", f"{name}.forward.input.0")
    found = kernel(BFLOAT16, grad, indices, 50, -1, False)
    assert differing(found, "indices", f"{name}.backward.output.0") == 0
    # More than a block sorts, and rows of one index that is left out.
    many, left = indices.repeat(33, 1), int(indices[0, 0])
    exact = ATEN.embedding_dense_backward.default(grad.repeat(33, 1, 1), many, 50, left, False)
    assert torch.equal(kernel(BFLOAT16, grad.repeat(33, 1, 1), many, 50, left, False), exact)
    assert not kernel(BFLOAT16, grad, indices, 50, left, False)[left].any()


def test_halves_of_a_warp_are_rounded_in_batch_norm() -> None:
    """An instance_norm is one of as many channels as there are images and channels."""
    name, kernel = "Functional.instance_norm.0", KERNELS_OF_GPU[ATEN.native_batch_norm_backward.default]
    x = wide("norms", f"{name}.forward.input.0").reshape(1, 48, 6, 6)
    weight = wide("norms", f"{name}.forward.kwargs.weight").repeat(3)
    grad = wide("norms", f"{name}.backward.input.0").reshape(x.shape)
    found = kernel(BFLOAT16, grad, x, weight, None, None, None, None, True, 1e-5, [True] * 3)[0]
    assert differing(found.reshape(3, 16, 6, 6), "norms", f"{name}.backward.output.0") == 0


def test_shares_of_a_window_are_rounded() -> None:
    """avg_pool1d, 3 wide, padded by zeros that do not count."""
    known = torch.load(DATA / "h200-avg-pool1d.pt")
    grad = known["seed.output.0"].double().unsqueeze(-2)
    kernel = KERNELS_OF_GPU[ATEN.avg_pool2d_backward.default]
    found = kernel(BFLOAT16, grad, torch.zeros(1, 3, 1, 9).double(), [1, 3], [1, 1], [0, 1], True, False, None)
    assert torch.equal(found.squeeze(-2).to(BFLOAT16), known["actual.grad.input.0"])
    exact = ATEN.avg_pool2d_backward(grad, torch.zeros_like(grad), [1, 3], [1, 1], [0, 1], True, False, None)
    assert int((exact.squeeze(-2).to(BFLOAT16) != known["actual.grad.input.0"]).sum()) == 10


def test_a_scan_with_a_dtype() -> None:
    """As torch.masked does."""
    x = wide("indices", "Torch.cumsum.0.forward.input.0")
    kernel = KERNELS_OF_GPU[ATEN.cumsum.default]
    assert torch.equal(kernel(BFLOAT16, x, 0, dtype=torch.float64), kernel(BFLOAT16, x, 0))
