from __future__ import annotations

import functools

import pytest
import torch

from tests.frameworks.torch.cpu16.rounding import DTYPES, different, threads

ARRANGED = {
    "in order": lambda grid: grid,
    "rows across": lambda grid: grid.transpose(1, 2),
    "planes": lambda grid: grid.movedim(-1, 1).contiguous().movedim(1, -1),
}


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "extents"),
    [
        ("bilinear", (9, 70)),
        ("nearest", (9, 70)),
        ("bicubic", (9, 70)),
        ("bilinear", (4, 3, 7)),
        ("nearest", (4, 3, 7)),
    ],
)
def test_samples_are_the_kernels(
    mode: str, extents: tuple[int, ...], padding: str, align: bool, dtype: torch.dtype
) -> None:
    x = drawn(2, 3, *extents).to(dtype)
    grid = (0.7 * drawn(2, *[5, 11, 3][: len(extents)], len(extents), seed=1)).to(dtype)

    def function(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grid_sample(x, grid, mode, padding, align)

    with threads(1):
        assert different(function, [x, grid], dtype) == [0, 0, 0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ARRANGED)
def test_how_a_grid_is_laid_out_sets_the_order_of_sums(layout: str, dtype: torch.dtype) -> None:
    x = drawn(2, 3, 5, 4).to(dtype)
    grid = ARRANGED[layout]((0.7 * drawn(2, 21, 19, 2, seed=1)).to(dtype))
    with threads(1):
        function = functools.partial(torch.nn.functional.grid_sample, align_corners=False)
        assert different(function, [x, grid], dtype) == [0] * 3
