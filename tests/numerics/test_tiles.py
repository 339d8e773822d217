from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.tiles import may_come_in_tiles
from tests.evidence.winograd import winograd

SHAPES = [(1, 8, 4, 32), (2, 32, 16, 24), (4, 3, 8, 50)]


def errors(shape: tuple[int, int, int, int], *, tiled: bool, relu: bool = False, seed: int = 0) -> AnyArray:
    """Of a convolution in float32: images, channels in and out, and their extent."""
    images, channels, out, extent = shape
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(images, channels, extent, extent, generator=generator)
    weight = torch.randn(out, channels, 3, 3, generator=generator)
    x = x.relu() if relu else x
    found = winograd(x, weight, torch.zeros(out), 1, 1) if tiled else F.conv2d(x, weight, padding=1)
    return np.asarray((found - F.conv2d(x.double(), weight.double(), padding=1)).numpy())


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_tiles_are_found_in_what_they_give(shape: tuple[int, int, int, int], relu: bool) -> None:
    for seed in range(5):
        assert may_come_in_tiles(errors(shape, tiled=True, relu=relu, seed=seed), 2)


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_a_plain_sum_has_none(shape: tuple[int, int, int, int]) -> None:
    for seed in range(5):
        assert not may_come_in_tiles(errors(shape, tiled=False, seed=seed), 2)


def test_few_wrong_elements_make_none() -> None:
    found = errors(SHAPES[1], tiled=False)
    for place in (np.s_[0, 0, 3, 3], np.s_[..., 3], np.s_[:, 5], np.s_[0, 0, ::4, ::4]):
        wrong = found.copy()
        wrong[place] += 1.0
        assert not may_come_in_tiles(wrong, 2)


@pytest.mark.parametrize(("shape", "rank"), [((1, 2, 5, 5), 2), ((3, 0, 4, 4), 2), ((2, 3, 9), 1)])
def test_few_tiles_tell_nothing(shape: tuple[int, ...], rank: int) -> None:
    assert may_come_in_tiles(np.ones(shape), rank)
