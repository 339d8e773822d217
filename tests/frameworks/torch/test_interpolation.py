from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_probe.frameworks.torch.decompositions import INTERPOLATION

SCALES = (1.7, 0.6, 1.06)


@pytest.mark.parametrize("align", [False, True], ids=["centers", "corners"])
@pytest.mark.parametrize("given", [False, True], ids=["size", "scale"])
@pytest.mark.parametrize("sizes", [(9, 11, 8), (6, 6, 6), (4, 13, 5)], ids=str)
@pytest.mark.parametrize("func", INTERPOLATION, ids=str)
def test_steps_give_what_the_kernel_gives(func: Any, sizes: tuple[int, ...], given: bool, align: bool) -> None:
    """Up to the float32 coordinates: 2^-24 of a coordinate, times the slope."""
    rank = next(rank for rank in (1, 2, 3) if f"{rank}d" in str(func))
    for scales in (SCALES[:rank], SCALES[::-1][:rank], SCALES[2:] * rank):
        extents = sizes[:rank]
        counts = [int(extent * scale) for extent, scale in zip(extents, scales, strict=True)]
        rest = scales if given else (None,) * rank
        backward = "backward" in str(func)
        x = torch.randn(2, 3, *(counts if backward else extents), dtype=torch.float64)
        args = (x, counts, *([[2, 3, *extents]] if backward else []), align, *rest)
        torch.testing.assert_close(INTERPOLATION[func](*args), func(*args), rtol=0.0, atol=5e-5)
