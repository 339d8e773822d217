"""Faults in scaled products and quantisers that were written before anybody looked at how rules do on them: other
recipes, shapes and groups than tests.support.scaled has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from pytest_probe.frameworks.torch.arrays import to_array
from pytest_probe.numerics.scaled import recipe_named
from pytest_probe.standards.quantisers.quantiser import Quantised, Wanted, judge
from tests.evidence.test_scaled_products import DTYPES, judged
from tests.support import scaled
from tests.support.scaled import Product

pytestmark = pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4 before 2.8")

SHAPE = (144, 528, 80)
# What an argument becomes before the healthy kernel has it.
Change = Callable[[list[Any]], list[Any]]


def scales_of_next_row(args: list[Any]) -> list[Any]:
    args[2] = [args[2][0].roll(-1, 0)]
    return args


def scale_of_second_twice(args: list[Any]) -> list[Any]:
    args[5] = [args[5][0] * args[5][0]]
    return args


def e5m2_read_as_e4m3(args: list[Any]) -> list[Any]:
    args[0] = args[0].view(torch.float8_e4m3fn)
    return args


def square_scales_transposed(args: list[Any]) -> list[Any]:
    stored = args[2][0].clone()
    stored[:2] = stored[:2].t()
    args[2] = [stored]
    return args


def level_of_first_for_second(args: list[Any]) -> list[Any]:
    args[5] = [args[5][0], args[2][1]]
    return args


def tiles_of_4_by_32(args: list[Any]) -> list[Any]:
    """Within a tile columns lie before quarters of rows."""
    stored = args[2][0].view(torch.uint8)
    args[2] = [stored.reshape(-1, 32, 4, 4).transpose(2, 3).reshape(-1).view(args[2][0].dtype)]
    return args


def scales_read_as_e5m2(args: list[Any]) -> list[Any]:
    args[2] = [args[2][0].view(torch.float8_e5m2)]
    return args


def exponents_one_too_high(args: list[Any]) -> list[Any]:
    """Of the second tile of rows alone."""
    codes = args[2][0].view(torch.uint8).clone().reshape(2, -1)
    codes[1] = codes[1] + 1
    args[2] = [codes.reshape(-1).view(torch.float8_e8m0fnu)]
    return args


def negative_zeros_lost_signs(args: list[Any]) -> list[Any]:
    """The signs of a whole row of the second operand."""
    codes = args[1].t().view(torch.uint8).clone()
    codes[5] &= 0x7F
    args[1] = codes.view(args[1].dtype).t()
    return args


ARGUMENTS: dict[str, tuple[str, tuple[int, int, int], Change]] = {
    "the scales of the next row": ("row-wise", (33, 272, 48), scales_of_next_row),
    "the second scale twice": ("tensor-wise", (17, 512, 32), scale_of_second_twice),
    "e5m2 read as e4m3": ("mxfp8, e5m2", SHAPE, e5m2_read_as_e4m3),
    "square scales transposed": ("128x128, 1x128", (256, 256, 64), square_scales_transposed),
    "the first level for the second": ("nvfp4, two levels", SHAPE, level_of_first_for_second),
    "tiles of 4 by 32": ("mxfp4", SHAPE, tiles_of_4_by_32),
    "scales read as e5m2": ("nvfp4", (33, 272, 48), scales_read_as_e5m2),
    "exponents of a tile one too high": ("mxfp8", (200, 272, 48), exponents_one_too_high),
    "signs of a column lost": ("1x128, 128x128", SHAPE, negative_zeros_lost_signs),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("fault", ARGUMENTS)
def test_wrong_arguments_are_errors(tmp_path: Path, fault: str, dtype: torch.dtype) -> None:
    name, shape, change = ARGUMENTS[fault]
    call, healthy = scaled.product(name, 11, shape, dtype), scaled.kernel()
    assert judged(tmp_path / "right", call, healthy).verdict == "pass"
    verdict = judged(tmp_path / "wrong", call, lambda *args: healthy(*change(list(args))))
    assert verdict.verdict == "error"


def tail_dropped(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """What tiles of 32 places leave over."""
    whole = left.shape[1] // 32 * 32
    return left[:, :whole] @ right[:, :whole].t()


def sums_of_blocks_in_bfloat16(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(left.shape[0], right.shape[0])
    for first, second in zip(left.split(128, 1), right.split(128, 1), strict=True):
        total = (total + first @ second.t()).bfloat16().float()
    return total


def a_block_added_twice(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return left @ right.t() + left[:, 128:160] @ right[:, 128:160].t()


SUMS = {
    "the tail of K dropped": ("nvfp4", (33, 528, 48), tail_dropped),
    "sums of blocks in bfloat16": ("row-wise", (64, 1024, 48), sums_of_blocks_in_bfloat16),
    "a block added twice": ("128x128, 1x128", (64, 512, 48), a_block_added_twice),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("fault", SUMS)
def test_wrong_sums_are_errors(tmp_path: Path, fault: str, dtype: torch.dtype) -> None:
    name, shape, multiply = SUMS[fault]
    verdict = judged(tmp_path, scaled.product(name, 12, shape, dtype), scaled.kernel(multiply=multiply))
    assert verdict.verdict == "error"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["bfloat16", "row-wise", "mxfp8"])
def test_matrices_that_skip_an_empty_group_are_an_error(tmp_path: Path, name: str, seed: int) -> None:
    """The third group has the matrix of the second, which has no rows."""
    api, args, kernel = scaled.grouped(name, seed)

    def skipping(*given: Any) -> torch.Tensor:
        if name == "bfloat16":
            return kernel(given[0], given[1][[0, 2, 1]], given[2])
        ends = given[-1].clone()
        ends[1] = ends[2]
        return kernel(*given[:-1], ends)

    verdict = judged(tmp_path, Product(args, np.zeros(0), api), skipping)
    assert verdict.verdict == "error"
    diagnosis = verdict.outputs[0].diagnosis
    assert diagnosis is not None
    assert diagnosis.cause == "group 2 used the matrix of group 1"


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_a_bias_added_before_the_scales_is_an_error(tmp_path: Path, dtype: torch.dtype) -> None:
    call = scaled.product("tensor-wise", 3, (64, 256, 48), dtype)
    args = list(call.args)
    args[8] = torch.from_numpy(np.random.default_rng(0).standard_normal(48)).to(dtype) * float(call.exact.std())
    healthy = scaled.kernel()

    def early(*given: Any) -> torch.Tensor:
        bias = given[8] * given[2][0].item()
        return healthy(*given[:8], bias, *given[9:])

    assert judged(tmp_path / "right", replace(call, args=args), healthy).verdict == "pass"
    assert judged(tmp_path / "wrong", replace(call, args=args), early).verdict == "error"


# Quantisers in torch, as kernels have them: the right one of each recipe, and what a fault changes.
def _blocks(x: torch.Tensor, size: int) -> torch.Tensor:
    return x.float().unflatten(-1, (-1, size))


def mx(x: torch.Tensor, fault: str = "", top: float = 448.0, dtype: torch.dtype = torch.float8_e4m3fn) -> Any:
    blocks = _blocks(x, 32)
    largest = (blocks if fault == "largest without its sign" else blocks.abs()).amax(-1)
    if fault == "one number of each block left out of the maximum":
        largest = blocks[..., :-1].abs().amax(-1)
    powers = torch.ceil(torch.log2(largest.abs().clamp(min=2.0**-126) / top)).clamp(-127, 127)
    if fault == "powers kept above 2^-10":
        powers = powers.clamp(min=-10)
    values = (blocks * torch.exp2(-powers)[..., None]).clamp(-top, top)
    if fault == "small quotients flushed to zero":
        values = torch.where(values.abs() < 2.0**-6, 0.0, values)
    if fault == "elements in two roundings":
        values = values.to(torch.float8_e5m2).float()
    if fault == "scale of the next block":
        values = (blocks * torch.exp2(-powers.roll(1, -1))[..., None]).clamp(-top, top)
    return values.flatten(-2).to(dtype), torch.exp2(powers).to(torch.float8_e8m0fnu)


def row_wise(x: torch.Tensor, fault: str = "") -> Any:
    largest = x.float().abs().amax(-1, keepdim=True)
    scale = largest / (240.0 if fault == "largest number of another format" else 448.0)
    if fault == "scale by the standard deviation":
        scale = x.float().std(-1, keepdim=True) / 64
    inverse = 1 / scale
    if fault == "reciprocal in bfloat16":
        inverse = inverse.bfloat16().float()
    return (x.float() * inverse).clamp(-448, 448).to(torch.float8_e4m3fn), scale


QUANTISERS = {
    "largest without its sign": ("mxfp8", mx),
    "one number of each block left out of the maximum": ("mxfp8", mx),
    "powers kept above 2^-10": ("mxfp8", mx),
    "small quotients flushed to zero": ("mxfp8", mx),
    "elements in two roundings": ("mxfp8", mx),
    "scale of the next block": ("mxfp8", mx),
    "largest number of another format": ("RowWise", row_wise),
    "scale by the standard deviation": ("RowWise", row_wise),
    "reciprocal in bfloat16": ("RowWise", row_wise),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("fault", QUANTISERS)
def test_wrong_quantisers_are_errors(fault: str, dtype: torch.dtype) -> None:
    recipe, quantiser = QUANTISERS[fault]
    x = _given(dtype)
    wanted = Wanted(recipe_named(recipe), "grid")
    assert [each.verdict for each in judge(to_array(x), [_quantised(quantiser(x))], wanted)] == ["pass", "pass"]
    found = judge(to_array(x), [_quantised(quantiser(x, fault))], wanted)
    assert "error" in [each.verdict for each in found]


def _given(dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    sizes = torch.exp2(torch.randint(-6, 4, (24, 8, 1), generator=generator).float())
    return (torch.randn(24, 8, 32, generator=generator) * sizes).flatten(1).to(dtype)


def _quantised(outputs: tuple[torch.Tensor, torch.Tensor]) -> Quantised:
    values, scales = outputs
    return Quantised(to_array(values), to_array(scales))
