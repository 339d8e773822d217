"""Faulty and healthy kernels of scaled products on which no rule was tuned: they were written after the rules, with one
row, K that no block divides, groups without rows, padded swizzles and two levels of scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import Struct

from tests.evidence.test_scaled_products import FAST, in_blocks, judged
from tests.support import scaled
from tests.support.scaled import Kernel, Operand, Product

pytestmark = pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4 before 2.8")

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
Matrix = torch.Tensor
Change = Callable[[list[Any]], list[Any]]
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
    shape: tuple[int, int, int]
    dtype: torch.dtype
    kernel: Kernel = kernel()
    change: Change | None = None
    extremes: bool = False

    def call(self, seed: int) -> Product:
        made = scaled.product(self.recipe, seed, self.shape, self.dtype, extremes=self.extremes)
        return made if self.change is None else Product(self.change(list(made.args)), made.exact)


# Arguments.
def with_bias(args: list[Any]) -> list[Any]:
    size = float(scaled.kernel()(*args).float().std())
    args[8] = (torch.randn(args[1].shape[1], generator=torch.Generator().manual_seed(3)) * size).to(args[9])
    return args


def with_codes(code: int, rows: slice, places: int | slice = 5) -> Change:
    def changed(args: list[Any]) -> list[Any]:
        own = args[0].view(torch.uint8).clone()
        own[rows, places] = code
        args[0] = own.view(args[0].dtype)
        return args

    return changed


def with_scales_times(factor: float) -> Change:
    return lambda args: [*args[:2], [args[2][0] * factor, *args[2][1:]], *args[3:]]


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


HEALTHY: dict[str, Case] = {
    "one row, cut block": Case("mxfp8", (1, 80, 32), BF16),
    "one row, long sums": Case("mxfp8", (1, 4096, 16), F16, kernel(multiply=backwards)),
    "one column": Case("mxfp8", (96, 208, 1), F32),
    "two levels, one row": Case("nvfp4, two levels", (1, 288, 33), BF16, kernel(multiply=pairwise)),
    "two levels, three tiles": Case("nvfp4, two levels", (300, 112, 17), F32),
    "cut square blocks": Case("128x128, 1x128", (130, 336, 130), F16, kernel(multiply=backwards)),
    "1x128 by 128x128": Case("1x128, 128x128", (257, 144, 129), BF16, scaled.kernel(multiply=plain, after=True)),
    "16 terms": Case("row-wise", (1, 16, 16), F32),
    "one by one": Case("row-wise", (513, 48, 8), F16, kernel(multiply=in_blocks(1))),
    "e5m2": Case("mxfp8, e5m2", (129, 1056, 5), F32, kernel(multiply=backwards)),
    "in float64": Case("nvfp4", (70, 544, 30), F32, kernel(multiply=in_float64)),
    "a bias": Case("mxfp8", (33, 176, 24), F16, change=with_bias),
    "bytes 0 and 255": Case("mxfp8", (140, 208, 24), F32, extremes=True),
    "padding that holds anything": Case("mxfp8", (65, 208, 24), BF16, change=with_more_padding),
    "rows of zeros": Case("1x128", (35, 272, 20), F32, change=with_codes(0, slice(0, None, 3), slice(None))),
    "NaN among numbers": Case("row-wise", (20, 144, 20), BF16, change=with_codes(0x7F, slice(1, 2))),
    "inf among numbers": Case("mxfp8, e5m2", (20, 144, 20), F32, change=with_codes(0x7C, slice(1, 2))),
    "beyond float16": Case("row-wise", (24, 256, 24), F16, change=with_scales_times(3e4)),
    "below bfloat16's normal numbers": Case("tensor-wise", (24, 256, 24), BF16, change=with_scales_times(2.0**-133)),
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


def last_block_has_the_one_before(column: Matrix, count: int) -> Matrix:
    return torch.where(column >= count // 32 * 32, count // 32 * 32 - 1, column)


def in_blocks_of(size: int, wrong: int) -> Read:
    return at_columns(lambda column, count: (column // wrong * size).clamp(max=count - 1))


def cut_to(keep: Callable[[int], int]) -> Multiply:
    return lambda left, other: left[:, : keep(left.shape[1])] @ other[:, : keep(left.shape[1])].t()


# What tiles of 32 places leave over.
tail_dropped = cut_to(lambda k: k // 32 * 32)


def in_bfloat16(left: Matrix, other: Matrix) -> Matrix:
    total = torch.zeros(left.shape[0], other.shape[0])
    for a, b in zip(left.split(128, 1), other.split(128, 1), strict=True):
        total = (total + a @ b.t()).bfloat16().float()
    return total


def a_block_twice(left: Matrix, other: Matrix) -> Matrix:
    return left @ other.t() + left[:, 128:160] @ other[:, 128:160].t()


def scales_of_rows_in_bfloat16(sums: Matrix, bias: Any, args: Any) -> Matrix:
    exact = args[2][0].reshape(-1, 1) * args[5][0].reshape(1, -1)
    return sums / exact * exact.bfloat16().float()


def misread(change: Change) -> Kernel:
    """The kernel takes the arguments for others."""
    return lambda *args: kernel()(*change(list(args)))


def square_scales_transposed(args: list[Any]) -> list[Any]:
    stored = args[2][0].clone()
    stored[:2] = stored[:2].t()
    return [*args[:2], [stored], *args[3:]]


def tiles_of_4_by_32(args: list[Any]) -> list[Any]:
    """Within a tile columns lie before quarters of rows."""
    stored = args[2][0].view(torch.uint8)
    return [*args[:2], [stored.reshape(-1, 32, 4, 4).transpose(2, 3).reshape(-1).view(args[2][0].dtype)], *args[3:]]


TILES = (144, 528, 80)
FAULTS: dict[str, Case] = {
    "one row, first slice for all of K": Case("mxfp8", (1, 256, 64), BF16, kernel(with_scales(lambda s: s[:, :1]))),
    "one row, swizzle left out": Case("nvfp4", (1, 256, 64), BF16, scaled.kernel("swizzle left out")),
    "a cut block has the scale before it": Case(
        "mxfp8", (40, 80, 24), BF16, kernel(at_columns(last_block_has_the_one_before))
    ),
    "a cut block is dropped": Case("mxfp8", (40, 80, 24), F16, kernel(multiply=tail_dropped)),
    "cut blocks, no padding": Case("nvfp4", (140, 112, 24), BF16, scaled.kernel("unpadded scales")),
    "the last number is dropped": Case("row-wise", (40, 272, 24), BF16, kernel(multiply=cut_to(lambda k: k - 1))),
    "the scales of the next row": Case("row-wise", (33, 272, 48), BF16, kernel(at_rows(lambda r, n: (r + 1) % n))),
    "the last row has the scales before it": Case(
        "mxfp8", (129, 208, 24), BF16, kernel(at_rows(lambda row, count: row.clamp(max=count - 2)))
    ),
    "quarters of a tile begin again": Case("nvfp4", (100, 144, 48), BF16, kernel(at_rows(lambda row, _: row % 32))),
    "tiles of 4 by 32": Case("mxfp4", TILES, BF16, misread(tiles_of_4_by_32)),
    "square scales transposed": Case("128x128, 1x128", (256, 256, 64), BF16, misread(square_scales_transposed)),
    "blocks of 64 for 128": Case("1x128", (33, 656, 40), F16, kernel(in_blocks_of(128, 64))),
    "blocks of 32 for 16": Case("nvfp4", (33, 336, 40), BF16, kernel(in_blocks_of(16, 32))),
    "the second scale twice": Case("tensor-wise", (17, 512, 32), BF16, kernel(second=with_scales(torch.square))),
    "scale of all ignored": Case(
        "nvfp4, two levels", (40, 288, 24), BF16, kernel(out=lambda sums, bias, args: sums / args[2][1].reshape(()))
    ),
    "the first level for the second": Case(
        "nvfp4, two levels", TILES, BF16, misread(lambda args: [*args[:5], [args[5][0], args[2][1]], *args[6:]])
    ),
    "scales of rows in bfloat16": Case("row-wise", (40, 288, 24), F32, kernel(out=scales_of_rows_in_bfloat16)),
    "scales read as e5m2": Case(
        "nvfp4", (33, 272, 48), BF16,
        misread(lambda args: [*args[:2], [args[2][0].view(torch.float8_e5m2)], *args[3:]]),
    ),
    "bytes count from 128": Case("mxfp4", (40, 144, 24), F16, kernel(second=with_scales(lambda s: s / 2))),
    "exponents of a tile one too high": Case(
        "mxfp8", (200, 272, 48), BF16, kernel(with_scales(lambda s: torch.cat([s[:128], 2 * s[128:]])))
    ),
    "scales of rows for columns": Case(
        "row-wise", (48, 336, 48), F32, misread(lambda args: [*args[:5], [args[2][0].reshape(1, -1)], *args[6:]])
    ),
    "NaN of a scale is zero": Case("mxfp8", (33, 144, 24), BF16, kernel(with_scales(torch.nan_to_num)), None, True),
    "e5m2 read as e4m3": Case(
        "mxfp8, e5m2", TILES, BF16, misread(lambda args: [args[0].view(torch.float8_e4m3fn), *args[1:]])
    ),
    "signs of a column lost": Case(
        "1x128, 128x128", TILES, BF16, kernel(second=with_values(lambda v: torch.cat([v[:5], v[5:6].abs(), v[6:]])))
    ),
    "6 read as 8": Case("nvfp4", (33, 144, 24), BF16, kernel(with_values(lambda v: v.where(v != 6, 8.0)))),
    "small numbers flushed": Case(
        "row-wise", (33, 656, 24), F32, kernel(with_values(lambda v: v.where(v.abs() >= 2.0**-6, 0.0)))
    ),
    "NaN read as 480": Case(
        "row-wise", (20, 144, 20), BF16, kernel(with_values(lambda v: torch.nan_to_num(v, 480.0))),
        with_codes(0x7F, slice(1, 2)),
    ),
    "inf read as 65536": Case(
        "mxfp8, e5m2", (20, 144, 20), F32, kernel(with_values(lambda v: v.clamp(-65536, 65536))),
        with_codes(0x7C, slice(1, 2)),
    ),
    "a block added twice": Case("128x128, 1x128", (64, 512, 48), BF16, kernel(multiply=a_block_twice)),
    "sums in bfloat16": Case("row-wise", (64, 1024, 48), BF16, kernel(multiply=in_bfloat16)),
    "sums in bfloat16, one row": Case("mxfp8", (1, 1024, 64), BF16, kernel(multiply=in_bfloat16)),
    "fast sums of one row": Case("row-wise", (1, 1024, 16), F32, FAST),
    "float16 sums of one row": Case("mxfp8", (1, 1024, 8), F32, scaled.kernel("accumulation in float16")),
    "the last column is left out": Case(
        "mxfp4", (40, 144, 33), BF16, kernel(out=lambda sums, *_: torch.nn.functional.pad(sums[:, :-1], (0, 1)))
    ),
    "bias left out": Case("row-wise", (64, 272, 48), BF16, kernel(out=lambda sums, *_: sums), with_bias),
    "bias before the scales": Case(
        "tensor-wise", (64, 256, 48), BF16, kernel(out=lambda sums, bias, args: sums + bias * args[2][0]), with_bias
    ),
    "zeros for tiny results": Case(
        "tensor-wise", (24, 256, 24), BF16, kernel(out=lambda sums, *_: torch.zeros_like(sums)),
        with_scales_times(2.0**-120),
    ),
}  # fmt: skip


@pytest.mark.usefixtures("no_causes")
@pytest.mark.parametrize("name", FAULTS)
def test_faulty_products_are_errors(tmp_path: Path, name: str) -> None:
    case = FAULTS[name]
    assert judged(tmp_path, case.call(102), case.kernel).verdict == "error"


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
            of_a = torch.cat([of_a, torch.full((self.spare * 128 * across,), 255, dtype=torch.uint8)])
            of_a = of_a.reshape(-1, across)
        call = Product([a, b, of_a.view(dtype), of_b.view(dtype), ends], np.zeros(0), "Torch._scaled_grouped_mm")
        return call, rows, matrices

    def _operand(self, rng: np.random.Generator, rows: int, recipe: tuple[int, ...]) -> Operand:
        data = rng.standard_normal((rows, self.columns)) * 2.0 ** rng.integers(-3, 4, size=(rows, 1))
        return scaled.operand(data, "float8_e4m3fn", recipe)

    def product(self, seed: int, late: int = 0) -> tuple[Product, Matrix, int]:
        """The call, its result with the matrix of so many groups later, and the place of the first group's last row."""
        call, rows, matrices = self.made(seed)
        places = [place for place, size in enumerate(self.sizes) if size]
        own = [matrices[(place + late) % len(matrices)] for place in places]
        return call, by_groups([(a.exact, b.exact) for a, b in zip(rows, own, strict=True)]), len(rows[0].exact) - 1


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
    call, result, _ = GROUPS[name].product(103)
    verdict = judged(tmp_path, call, lambda *_: result)
    assert (verdict.verdict, verdict.reason) == ("pass", "")


@pytest.mark.usefixtures("no_causes")
@pytest.mark.parametrize("name", GROUPS)
def test_the_matrix_of_the_next_group_and_a_row_left_out_are_errors(tmp_path: Path, name: str) -> None:
    call, result, _ = GROUPS[name].product(104, late=1)
    assert judged(tmp_path / "next", call, lambda *_: result).verdict == "error"
    call, result, last = GROUPS[name].product(105)
    result[last] = 0
    assert judged(tmp_path / "row", call, lambda *_: result).verdict == "error"
