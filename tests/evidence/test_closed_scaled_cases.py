"""Faulty and healthy kernels of scaled products and quantisers on which no rule was tuned: they were written after the
rules, with one row, K that no block divides, groups without rows, padded swizzles and two levels of scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from msgspec import Struct

from pytest_probe.frameworks.torch.arrays import to_array
from pytest_probe.numerics.scaled import Order, recipe_named
from pytest_probe.standards.quantisers.quantiser import Quantised, Wanted, judge
from tests.evidence.test_scaled_products import FAST, in_blocks, judged
from tests.support import scaled
from tests.support.scaled import Kernel, Operand, Product

pytestmark = pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4 before 2.8")

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
Shape = tuple[int, int, int]
Matrix = torch.Tensor
# What a device makes of an operand's numbers and of the scales of their blocks: the numbers that it multiplies.
Read = Callable[[Matrix, Matrix], Matrix]
Multiply = Callable[[Matrix, Matrix], Matrix]


def right(values: Matrix, scales: Matrix) -> Matrix:
    return values * scales


def plain(left: Matrix, other: Matrix) -> Matrix:
    return left @ other.t()


def kernel(
    first: Read = right, second: Read = right, multiply: Multiply = plain, out: Callable[..., Matrix] | None = None
) -> Kernel:
    """torch._scaled_mm_v2; out makes the result of sums, bias and the arguments, without it it is as it should be."""

    def scaled_mm(*args: Any) -> Matrix:
        a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias, dtype, *_ = args
        left = first(*scaled.read(a, scale_a, recipe_a, swizzle_a[0]))
        other = second(*scaled.read(b.t(), scale_b, recipe_b, swizzle_b[0]))
        sums = multiply(left, other)
        if out is not None:
            return out(sums, bias, args).to(dtype)
        return (sums if bias is None else sums + bias.float()).to(dtype)

    return scaled_mm


class Case(Struct, frozen=True):
    """A recipe, M, K and N, the result's dtype and a kernel; change makes other arguments of a call's."""

    recipe: str
    shape: Shape
    dtype: torch.dtype
    kernel: Kernel = kernel()
    change: Callable[[list[Any]], list[Any]] | None = None
    extremes: bool = False

    def call(self, seed: int) -> Product:
        made = scaled.product(self.recipe, seed, self.shape, self.dtype, extremes=self.extremes)
        return made if self.change is None else Product(self.change(list(made.args)), made.exact)


# Arguments.
def with_bias(args: list[Any]) -> list[Any]:
    size = float(scaled.kernel()(*args).float().std())
    args[8] = (torch.randn(args[1].shape[1], generator=torch.Generator().manual_seed(3)) * size).to(args[9])
    return args


def with_zero_rows(args: list[Any]) -> list[Any]:
    codes = args[0].view(torch.uint8).clone()
    codes[::3] = 0
    args[0] = codes.view(args[0].dtype)
    return args


def with_codes(*codes: int) -> Callable[[list[Any]], list[Any]]:
    def changed(args: list[Any]) -> list[Any]:
        own = args[0].view(torch.uint8).clone()
        for row, code in enumerate(codes):
            own[2 * row + 1, 5] = code
        args[0] = own.view(args[0].dtype)
        return args

    return changed


def with_scales_times(factor: float) -> Callable[[list[Any]], list[Any]]:
    def changed(args: list[Any]) -> list[Any]:
        args[2] = [args[2][0] * factor, *args[2][1:]]
        return args

    return changed


def with_more_padding(args: list[Any]) -> list[Any]:
    """Bytes of padding hold what memory held."""
    stored = args[2][0].view(torch.uint8).clone()
    rows, blocks = args[0].shape[0], -(-args[0].shape[1] // 32)
    used = torch.from_numpy(scaled.swizzled(np.ones((rows, blocks), np.uint8))).bool()
    stored[~used] = 255
    args[2] = [stored.view(args[2][0].dtype)]
    return args


# Healthy sums.
def backwards(left: Matrix, other: Matrix) -> Matrix:
    return in_blocks(32)(left.flip(1), other.flip(1))


def pairwise(left: Matrix, other: Matrix) -> Matrix:
    parts = [a @ b.t() for a, b in zip(left.split(16, 1), other.split(16, 1), strict=True)]
    while len(parts) > 1:
        parts = [sum(parts[at : at + 2][1:], parts[at]) for at in range(0, len(parts), 2)]
    return parts[0]


def in_float64(left: Matrix, other: Matrix) -> Matrix:
    return (left.double() @ other.double().t()).float()


def one_by_one(left: Matrix, other: Matrix) -> Matrix:
    total = torch.zeros(left.shape[0], other.shape[0])
    for place in range(left.shape[1]):
        total = total + left[:, place, None] * other[None, :, place]
    return total


HEALTHY: dict[str, Case] = {
    "mxfp8, one row, cut block": Case("mxfp8", (1, 80, 32), BF16),
    "mxfp8, one row, long sums": Case("mxfp8", (1, 4096, 16), F16, kernel(multiply=backwards)),
    "mxfp8, one column": Case("mxfp8", (96, 208, 1), F32),
    "mxfp4, one row": Case("mxfp4", (1, 96, 64), BF16),
    "nvfp4, one row": Case("nvfp4", (1, 2048, 48), F16, kernel(multiply=in_blocks(16))),
    "nvfp4, two levels, one row": Case("nvfp4, two levels", (1, 288, 33), BF16, kernel(multiply=pairwise)),
    "nvfp4, two levels, three tiles": Case("nvfp4, two levels", (300, 112, 17), F32),
    "1x128, one row, cut block": Case("1x128", (1, 200, 64), BF16),
    "128x128, cut blocks": Case("128x128, 1x128", (130, 336, 130), F16, kernel(multiply=backwards)),
    "1x128 by 128x128": Case("1x128, 128x128", (257, 144, 129), BF16, scaled.kernel(multiply=plain, after=True)),
    "row-wise, 16 terms": Case("row-wise", (1, 16, 16), F32),
    "row-wise, many rows": Case("row-wise", (513, 48, 8), F16, kernel(multiply=one_by_one)),
    "tensor-wise, 8192 terms": Case("tensor-wise", (1, 8192, 8), F16, kernel(multiply=in_blocks(64))),
    "e5m2, backwards": Case("mxfp8, e5m2", (129, 1056, 5), F32, kernel(multiply=backwards)),
    "mxfp8, pairwise": Case("mxfp8", (40, 1568, 40), F32, kernel(multiply=pairwise)),
    "nvfp4, in float64": Case("nvfp4", (70, 544, 30), F32, kernel(multiply=in_float64)),
    "a bias in float32": Case("row-wise", (64, 272, 48), BF16, change=with_bias),
    "mxfp8 and a bias": Case("mxfp8", (33, 176, 24), F16, change=with_bias),
    "bytes 0 and 255": Case("mxfp8", (140, 208, 24), F32, extremes=True),
    "padding that holds anything": Case("mxfp8", (65, 208, 24), BF16, change=with_more_padding),
    "rows of zeros": Case("1x128", (35, 272, 20), F32, kernel(multiply=one_by_one), with_zero_rows),
    "NaN among numbers": Case("row-wise", (20, 144, 20), BF16, change=with_codes(0x7F)),
    "inf among numbers": Case("mxfp8, e5m2", (20, 144, 20), F32, change=with_codes(0x7C)),
    "beyond float16": Case("row-wise", (24, 256, 24), F16, change=with_scales_times(3e4)),
    "below bfloat16's normal numbers": Case("tensor-wise", (24, 256, 24), BF16, change=with_scales_times(2.0**-133)),
    "fast sums of a matrix": Case("row-wise", (48, 336, 40), F32, kernel(multiply=one_by_one)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_products_pass(tmp_path: Path, name: str) -> None:
    case = HEALTHY[name]
    verdict = judged(tmp_path, case.call(101), case.kernel)
    assert (verdict.verdict, verdict.reason) == ("pass", "")


# Faults of one operand: of its numbers, and of the scales of their blocks.
def with_scales(changed: Callable[[Matrix], Matrix]) -> Read:
    return lambda values, scales: values * changed(scales)


def with_values(changed: Callable[[Matrix], Matrix]) -> Read:
    return lambda values, scales: changed(values) * scales


def at_columns(find: Callable[[Matrix, int], Matrix]) -> Read:
    """Each number has the scale of another column."""
    return with_scales(lambda scales: scales[:, find(torch.arange(scales.shape[1]), scales.shape[1])])


def at_rows(find: Callable[[Matrix, int], Matrix]) -> Read:
    return with_scales(lambda scales: scales[find(torch.arange(scales.shape[0]), scales.shape[0])])


def last_block_has_the_one_before(size: int) -> Read:
    return at_columns(
        lambda column, count: torch.where(column >= count // size * size, count // size * size - 1, column)
    )


def in_blocks_of(size: int, wrong: int) -> Read:
    return at_columns(lambda column, count: (column // wrong * size).clamp(max=count - 1))


def tail(keep: Callable[[int], int]) -> Multiply:
    return lambda left, other: left[:, : keep(left.shape[1])] @ other[:, : keep(left.shape[1])].t()


def in_bfloat16(step: int) -> Multiply:
    def multiply(left: Matrix, other: Matrix) -> Matrix:
        total = torch.zeros(left.shape[0], other.shape[0])
        for a, b in zip(left.split(step, 1), other.split(step, 1), strict=True):
            total = (total + a @ b.t()).bfloat16().float()
        return total

    return multiply


def a_part_twice(left: Matrix, other: Matrix) -> Matrix:
    parts = [a @ b.t() for a, b in zip(left.chunk(4, 1), other.chunk(4, 1), strict=True)]
    return parts[0] + parts[1] + parts[1] + parts[3]


def first_scale_also(power: float) -> Callable[..., Matrix]:
    """The scale of all of the first operand once more, to a power."""
    return lambda sums, bias, args: sums * args[2][1].reshape(()) ** power


def rounded_scales_of_all(sums: Matrix, bias: Any, args: Any) -> Matrix:
    exact = args[2][1].reshape(()) * args[5][1].reshape(())
    return sums / exact * exact.bfloat16().float()


def both_scales_in_bfloat16(sums: Matrix, bias: Any, args: Any) -> Matrix:
    exact = args[2][0].reshape(-1, 1) * args[5][0].reshape(1, -1)
    return sums / exact * exact.bfloat16().float()


def last_column_left_out(sums: Matrix, bias: Any, args: Any) -> Matrix:
    return torch.cat([sums[:, :-1], torch.zeros_like(sums[:, -1:])], 1)


FAULTS: dict[str, Case] = {
    "one row, first slice for all of K": Case("mxfp8", (1, 256, 64), BF16, kernel(with_scales(lambda s: s[:, :1]))),
    "one row, swizzle left out": Case("nvfp4", (1, 256, 64), BF16, scaled.kernel("swizzle left out")),
    "one row, swizzle applied twice": Case("mxfp8", (1, 288, 32), F16, scaled.kernel("swizzle applied twice")),
    "a cut block has the scale before it": Case("mxfp8", (40, 80, 24), BF16, kernel(last_block_has_the_one_before(32))),
    "a cut block is dropped": Case("mxfp8", (40, 80, 24), F16, kernel(multiply=tail(lambda k: k // 32 * 32))),
    "a cut block of 128 is dropped": Case("1x128", (9, 656, 24), BF16, kernel(multiply=tail(lambda k: k // 128 * 128))),
    "cut blocks, no padding": Case("nvfp4", (140, 112, 24), BF16, scaled.kernel("unpadded scales")),
    "the last number is dropped": Case("row-wise", (40, 272, 24), BF16, kernel(multiply=tail(lambda k: k - 1))),
    "scale of all ignored": Case("nvfp4, two levels", (40, 288, 24), BF16, kernel(out=first_scale_also(-1))),
    "scale of all twice": Case("nvfp4, two levels", (1, 288, 24), F16, kernel(out=first_scale_also(1))),
    "scale of all inverted": Case("nvfp4, two levels", (40, 144, 24), BF16, kernel(out=first_scale_also(-2))),
    "scales of all in bfloat16": Case("nvfp4, two levels", (40, 288, 24), F32, kernel(out=rounded_scales_of_all)),
    "scales of rows in bfloat16": Case("row-wise", (40, 288, 24), F32, kernel(out=both_scales_in_bfloat16)),
    "bias of e4m3fnuz": Case("nvfp4", (40, 144, 24), BF16, kernel(with_scales(lambda s: s / 2))),
    "bytes count from 128": Case("mxfp4", (40, 144, 24), F16, kernel(second=with_scales(lambda s: s / 2))),
    "the last row has the scales before it": Case(
        "mxfp8", (129, 208, 24), BF16, kernel(at_rows(lambda row, count: row.clamp(max=count - 2)))
    ),
    "tiles of rows begin again": Case("mxfp8", (200, 272, 48), BF16, kernel(at_rows(lambda row, _: row % 128))),
    "quarters of a tile begin again": Case("nvfp4", (100, 144, 48), BF16, kernel(at_rows(lambda row, _: row % 32))),
    "the last column is left out": Case("mxfp4", (40, 144, 33), BF16, kernel(out=last_column_left_out)),
    "cut square blocks": Case("128x128, 1x128", (130, 336, 40), BF16, kernel(last_block_has_the_one_before(128))),
    "blocks of 64 for 128": Case("1x128", (33, 656, 40), F16, kernel(in_blocks_of(128, 64))),
    "blocks of 16 for 32": Case("mxfp8", (33, 336, 40), BF16, kernel(in_blocks_of(32, 16))),
    "blocks of 32 for 16": Case("nvfp4", (33, 336, 40), BF16, kernel(in_blocks_of(16, 32))),
    "a part of K twice": Case("row-wise", (33, 1040, 24), BF16, kernel(multiply=a_part_twice)),
    "bias left out": Case("row-wise", (64, 272, 48), BF16, kernel(out=lambda sums, *_: sums), with_bias),
    "bias twice": Case("mxfp8", (33, 176, 24), F16, kernel(out=lambda sums, bias, _: sums + 2 * bias), with_bias),
    "sums in bfloat16, one row": Case("mxfp8", (1, 1024, 64), BF16, kernel(multiply=in_bfloat16(32))),
    "sums in bfloat16": Case("1x128", (33, 1040, 24), F16, kernel(multiply=in_bfloat16(128))),
    "fast sums of one row": Case("row-wise", (1, 1024, 16), F32, FAST),
    "float16 sums of one row": Case("mxfp8", (1, 1024, 8), F32, scaled.kernel("accumulation in float16")),
    "NaN of a scale is zero": Case("mxfp8", (33, 144, 24), BF16, kernel(with_scales(torch.nan_to_num)), None, True),
    "signs of float4 lost": Case("mxfp4", (33, 144, 24), BF16, kernel(second=with_values(torch.abs))),
    "6 read as 8": Case("nvfp4", (33, 144, 24), BF16, kernel(with_values(lambda v: v.where(v != 6, 8.0)))),
    "0.5 read as 0": Case("mxfp4", (33, 144, 24), BF16, kernel(with_values(lambda v: v.where(v.abs() != 0.5, 0.0)))),
    "small numbers flushed": Case(
        "row-wise", (33, 656, 24), F32, kernel(with_values(lambda v: v.where(v.abs() >= 2.0**-6, 0.0)))
    ),
    "NaN read as 480": Case(
        "row-wise", (20, 144, 20), BF16, kernel(with_values(lambda v: torch.nan_to_num(v, 480.0))), with_codes(0x7F)
    ),
    "inf read as 65536": Case(
        "mxfp8, e5m2", (20, 144, 20), F32, kernel(with_values(lambda v: v.clamp(-65536, 65536))), with_codes(0x7C)
    ),
    "zeros for tiny results": Case(
        "tensor-wise",
        (24, 256, 24),
        BF16,
        kernel(out=lambda sums, *_: torch.zeros_like(sums)),
        with_scales_times(2.0**-120),
    ),
    "scales of rows for columns": Case(
        "row-wise", (48, 336, 48), F32, lambda *args: kernel()(*args[:5], [args[2][0].reshape(1, -1)], *args[6:])
    ),
    "the first scale of rows for all": Case("row-wise", (17, 48, 8), F16, kernel(with_scales(lambda s: s[:1]))),
}


@pytest.mark.usefixtures("no_causes")
@pytest.mark.parametrize("name", FAULTS)
def test_faulty_products_are_errors(tmp_path: Path, name: str) -> None:
    case = FAULTS[name]
    call = case.call(102)
    assert judged(tmp_path, call, case.kernel).verdict == "error"


class Groups(Struct, frozen=True):
    """Groups of rows of so many, each with a matrix of its own, (K, N) of mxfp8 or row-wise. spare: so many tiles of
    scales more than the groups take are stored."""

    recipe: str
    sizes: tuple[int, ...]
    columns: int = 80
    spare: int = 0

    def made(self, seed: int) -> tuple[Product, list[Operand], list[Operand]]:
        rng = np.random.default_rng(seed)
        recipe = (scaled.B32,) if self.recipe == "mxfp8" else (scaled.ROW,)
        rows = [self._operand(rng, size, recipe) for size in self.sizes if size]
        matrices = [self._operand(rng, 24, recipe) for _ in self.sizes]
        ends = torch.tensor(np.cumsum(self.sizes), dtype=torch.int32)
        a = torch.cat([each.matrix.view(torch.uint8) for each in rows]).view(torch.float8_e4m3fn)
        b = torch.stack([each.matrix.view(torch.uint8) for each in matrices]).view(torch.float8_e4m3fn).transpose(1, 2)
        of_b = torch.stack([each.scales[0].view(torch.uint8).reshape(-1) for each in matrices])
        of_a = torch.cat([each.scales[0].view(torch.uint8).reshape(-1) for each in rows])
        dtype = torch.float8_e8m0fnu if self.recipe == "mxfp8" else torch.float32
        if self.recipe == "mxfp8":
            across = -(-self.columns // 128) * 4
            of_a = torch.cat([of_a, torch.full((self.spare * 128 * across,), 255, dtype=torch.uint8)]).reshape(
                -1, across
            )
        call = Product([a, b, of_a.view(dtype), of_b.view(dtype), ends], np.zeros(0), "Torch._scaled_grouped_mm")
        return call, rows, matrices

    def _operand(self, rng: np.random.Generator, rows: int, recipe: tuple[int, ...]) -> Operand:
        data = rng.standard_normal((rows, self.columns)) * 2.0 ** rng.integers(-3, 4, size=(rows, 1))
        return scaled.operand(data, "float8_e4m3fn", recipe)


def by_groups(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> Matrix:
    return torch.cat([torch.from_numpy(a).float() @ torch.from_numpy(b).float().t() for a, b in pairs]).bfloat16()


GROUPS = {
    "the first groups are empty": Groups("mxfp8", (0, 0, 70)),
    "the last groups are empty": Groups("mxfp8", (70, 0, 0)),
    "groups of one row": Groups("row-wise", (1, 1, 1, 1)),
    "a group of two tiles": Groups("mxfp8", (150, 0, 1), 144),
    "more scales are stored than groups take": Groups("mxfp8", (33, 0, 90), 80, 3),
    "one group has all rows": Groups("row-wise", (0, 64, 0, 0)),
}


@pytest.mark.parametrize("name", GROUPS)
def test_healthy_groups_pass(tmp_path: Path, name: str) -> None:
    call, rows, matrices = GROUPS[name].made(103)
    own = [matrix for matrix, size in zip(matrices, GROUPS[name].sizes, strict=True) if size]
    result = by_groups([(a.exact, b.exact) for a, b in zip(rows, own, strict=True)])
    verdict = judged(tmp_path, call, lambda *_: result)
    assert (verdict.verdict, verdict.reason) == ("pass", "")


@pytest.mark.usefixtures("no_causes")
@pytest.mark.parametrize("name", GROUPS)
def test_the_matrix_of_the_next_group_is_an_error(tmp_path: Path, name: str) -> None:
    call, rows, matrices = GROUPS[name].made(104)
    places = [place for place, size in enumerate(GROUPS[name].sizes) if size]
    own = [matrices[(place + 1) % len(matrices)] for place in places]
    result = by_groups([(a.exact, b.exact) for a, b in zip(rows, own, strict=True)])
    assert judged(tmp_path, call, lambda *_: result).verdict == "error"


@pytest.mark.usefixtures("no_causes")
@pytest.mark.parametrize("name", ["a group of two tiles", "more scales are stored than groups take"])
def test_the_last_row_of_a_group_left_out_is_an_error(tmp_path: Path, name: str) -> None:
    call, rows, matrices = GROUPS[name].made(105)
    own = [matrix for matrix, size in zip(matrices, GROUPS[name].sizes, strict=True) if size]
    result = by_groups([(a.exact, b.exact) for a, b in zip(rows, own, strict=True)])
    result[rows[0].exact.shape[0] - 1] = 0
    assert judged(tmp_path, call, lambda *_: result).verdict == "error"


# Quantisers whose last block is cut, or of two levels. Blocks are padded with zeros.
def blocks_of(x: Matrix, size: int) -> Matrix:
    padded = torch.nn.functional.pad(x.float(), (0, -x.shape[-1] % size))
    return padded.unflatten(-1, (-1, size))


def largest_of(blocks: Matrix) -> Matrix:
    return blocks.abs().amax(-1)


def of_two_blocks(blocks: Matrix) -> Matrix:
    return torch.maximum(largest_of(blocks), largest_of(blocks.roll(1, 1)))


def mxfp8(x: Matrix, largest: Callable[[Matrix], Matrix] = largest_of, *, away: bool = False) -> list[Matrix]:
    given = blocks_of(x, 32)
    powers = torch.floor(torch.log2(largest(given).clamp(min=2.0**-119))) - 8
    values = (given * torch.exp2(-powers)[..., None]).clamp(-448, 448).flatten(-2)[:, : x.shape[1]]
    if away:
        values = torch.nextafter(values, values * 2)
    return [values.to(torch.float8_e4m3fn), torch.exp2(powers).to(torch.float8_e8m0fnu)]


def nvfp4(x: Matrix, *, divided: bool = True) -> list[Matrix]:
    given = blocks_of(x, 16)
    whole = given.abs().max() / (6 * 448)
    scales = (given.abs().amax(-1) / 6 / (whole if divided else 1)).to(torch.float8_e4m3fn)
    wide = scales.double()[..., None] * whole.double()
    quotients = torch.where(wide == 0, 0.0, given.double() / wide).clamp(-6, 6).flatten(-2)[:, : x.shape[1]].numpy()
    codes = torch.from_numpy(quotients.astype(ml_dtypes.float4_e2m1fn).view(np.uint8))
    return [(codes[:, ::2] & 15 | codes[:, 1::2] << 4).view(torch.float4_e2m1fn_x2), scales, whole]


def in_tiles(found: list[Matrix]) -> list[Matrix]:
    stored = torch.from_numpy(scaled.swizzled(found[1].view(torch.uint8).numpy()))
    return [found[0], stored.view(found[1].dtype), *found[2:]]


def normal(*shape: int) -> Matrix:
    generator = torch.Generator().manual_seed(11)
    sizes = torch.exp2(torch.randint(-6, 4, (shape[0], -(-shape[1] // 16), 1), generator=generator).float())
    return (torch.randn(shape, generator=generator) * sizes.expand(-1, -1, 16).flatten(1)[:, : shape[1]]).bfloat16()


def whole_numbers(*shape: int) -> Matrix:
    """Many of which lie half between two numbers of four digits."""
    return torch.randint(-27, 28, shape, generator=torch.Generator().manual_seed(12)).bfloat16()


class Quantiser(Struct, frozen=True):
    recipe: str
    x: Matrix
    quantise: Callable[[Matrix], list[Matrix]]
    order: Order = "grid"

    def outcomes(self) -> set[str]:
        values, scales, *whole = self.quantise(self.x)
        found = Quantised(to_array(values), to_array(scales), *map(float, whole))
        return {
            each.verdict for each in judge(to_array(self.x), [found], Wanted(recipe_named(self.recipe), self.order))
        }


HEALTHY_QUANTISERS = {
    "one row, cut block": Quantiser("mxfp8", normal(1, 80), mxfp8),
    "zeros": Quantiser("mxfp8", torch.zeros(3, 80).bfloat16(), mxfp8),
    "padded tiles": Quantiser("mxfp8", normal(100, 80), lambda x: in_tiles(mxfp8(x)), "swizzled"),
    "ties": Quantiser("mxfp8", whole_numbers(20, 64), mxfp8),
    "two levels, cut block": Quantiser("nvfp4", normal(20, 88), nvfp4),
    "two levels in tiles": Quantiser("nvfp4", normal(130, 48), lambda x: in_tiles(nvfp4(x)), "swizzled"),
}


def tiles_twice(x: Matrix) -> list[Matrix]:
    values, scales = in_tiles(mxfp8(x))
    return in_tiles([values, scales.reshape(128, 4)])


FAULTY_QUANTISERS = {
    "the maximum of two blocks": Quantiser("mxfp8", normal(20, 176), lambda x: mxfp8(x, of_two_blocks)),
    "a maximum of 31 numbers": Quantiser(
        "mxfp8", normal(40, 176), lambda x: mxfp8(x, lambda b: largest_of(b[..., 1:]))
    ),
    "a maximum without signs": Quantiser("mxfp8", normal(1, 208), lambda x: mxfp8(x, lambda b: b.amax(-1).abs())),
    "no tiles": Quantiser("mxfp8", normal(128, 128), mxfp8, "swizzled"),
    "tiles twice": Quantiser("mxfp8", normal(128, 112), tiles_twice, "swizzled"),
    "ties away from zero": Quantiser("mxfp8", whole_numbers(20, 64), lambda x: mxfp8(x, away=True)),
    "a block's scale without that of all": Quantiser("nvfp4", normal(20, 88), lambda x: nvfp4(x, divided=False)),
    "nibbles swapped": Quantiser("nvfp4", normal(20, 64), lambda x: nvfp4(x.unflatten(1, (-1, 2)).flip(-1).flatten(1))),
}


@pytest.mark.parametrize("name", HEALTHY_QUANTISERS)
def test_healthy_quantisers_pass(name: str) -> None:
    assert HEALTHY_QUANTISERS[name].outcomes() == {"pass"}


@pytest.mark.parametrize("name", FAULTY_QUANTISERS)
def test_faulty_quantisers_are_errors(name: str) -> None:
    assert "error" in FAULTY_QUANTISERS[name].outcomes()
