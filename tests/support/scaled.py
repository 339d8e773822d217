"""Scaled products for tests: operands of every recipe of torch's, and kernels that multiply them, healthy or faulty.

What is here knows nothing of pytest_probe.numerics: it is written again, in float32 and in torch, as kernels are.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from msgspec import Struct

from tests.support.writing import described

TENSOR, ROW, B16, B32, B128, SQUARE = range(6)
NONE, SWIZZLE = 0, 1
# Largest number of the elements.
_TOP = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "float4": 6.0}


class Format(Struct, frozen=True):
    """Elements, recipes of both operands, and whether scales are swizzled."""

    elements: str
    a: tuple[int, ...]
    b: tuple[int, ...]
    swizzled: bool = False


FORMATS: Mapping[str, Format] = {
    "tensor-wise": Format("float8_e4m3fn", (TENSOR,), (TENSOR,)),
    "row-wise": Format("float8_e4m3fn", (ROW,), (ROW,)),
    "1x128": Format("float8_e4m3fn", (B128,), (B128,)),
    "1x128, 128x128": Format("float8_e4m3fn", (B128,), (SQUARE,)),
    "128x128, 1x128": Format("float8_e4m3fn", (SQUARE,), (B128,)),
    "mxfp8": Format("float8_e4m3fn", (B32,), (B32,), True),
    "mxfp8, e5m2": Format("float8_e5m2", (B32,), (B32,), True),
    "mxfp4": Format("float4", (B32,), (B32,), True),
    "nvfp4": Format("float4", (B16,), (B16,), True),
    "nvfp4, two levels": Format("float4", (B16, TENSOR), (B16, TENSOR), True),
}
BLOCKS = {TENSOR: (0, 0), ROW: (1, 0), B16: (1, 16), B32: (1, 32), B128: (1, 128), SQUARE: (128, 128)}


def _extents(recipe: int, shape: tuple[int, int]) -> tuple[int, int]:
    rows, columns = BLOCKS[recipe]
    return rows or shape[0], columns or shape[1]


def _data(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Normal numbers whose size differs from block to block and from row to row by powers of two."""
    rows = 2.0 ** rng.integers(-3, 4, size=(shape[0], 1))
    blocks = 2.0 ** rng.integers(-3, 4, size=(-(-shape[0] // 128), -(-shape[1] // 16)))
    factors = np.repeat(np.repeat(blocks, 128, 0)[: shape[0]], 16, 1)[:, : shape[1]]
    return np.asarray(rng.standard_normal(shape) * rows * factors)


def _grid(data: np.ndarray, recipe: int, top: float) -> np.ndarray:
    """The largest number of each block over the elements' largest."""
    high, wide = _extents(recipe, data.shape)
    grid = np.empty((-(-data.shape[0] // high), -(-data.shape[1] // wide)))
    for row, column in np.ndindex(*grid.shape):
        block = data[row * high : (row + 1) * high, column * wide : (column + 1) * wide]
        grid[row, column] = np.abs(block).max() / top
    return grid


def _wide(grid: np.ndarray, recipe: int, shape: tuple[int, int]) -> np.ndarray:
    high, wide = _extents(recipe, shape)
    return np.repeat(np.repeat(grid, high, 0)[: shape[0]], wide, 1)[:, : shape[1]]


def swizzled(grid: np.ndarray) -> np.ndarray:
    """Bytes of scales in tiles of 128 x 4, as cuBLAS documents them."""
    rows, columns = grid.shape
    padded = np.zeros((-(-rows // 128) * 128, -(-columns // 4) * 4), np.uint8)
    padded[:rows, :columns] = grid
    tiles = padded.reshape(-1, 4, 32, padded.shape[1] // 4, 4)  # row = tile, quarter, place; column = tile, place
    return tiles.transpose(0, 3, 2, 1, 4).reshape(-1)


def _float32(grid: np.ndarray, recipe: int) -> torch.Tensor:
    made = torch.from_numpy(grid.astype(np.float32))
    if recipe == TENSOR:
        return made.reshape(1)
    if recipe == SQUARE:  # columns first, padded to four
        padded = torch.zeros(-(-grid.shape[1] // 4) * 4, grid.shape[0])
        padded[: grid.shape[1]] = made.t()
        return padded.t().contiguous().t()
    return made.t().contiguous().t() if recipe == B128 else made


class Operand(Struct, frozen=True):
    """A matrix of rows that a product adds up along, its stored scales, and the numbers of both, in float64."""

    matrix: torch.Tensor
    scales: list[torch.Tensor]
    exact: np.ndarray


# Rows whose scales of e8m0 are all 2^-127, and the row of which one is NaN.
SMALLEST, LOST = slice(4, 6), 7


def operand(data: np.ndarray, elements: str, recipes: tuple[int, ...], *, extremes: bool = False) -> Operand:
    """The data, quantised: scales are rounded up to what their dtype has, elements to nearest. extremes: a few scales
    have the bytes 0 and 255."""
    recipe, top = recipes[0], _TOP[elements]
    grid = _grid(data, recipe, top)
    further: list[torch.Tensor] = []
    if len(recipes) > 1:
        whole = np.float32(grid.max() / 448.0)
        grid, further = grid / whole, [torch.tensor([whole])]
    if recipe == B32:
        codes = np.clip(np.ceil(np.log2(np.maximum(grid, 2.0**-126))) + 127, 0, 254).astype(np.uint8)
        if extremes:
            codes[SMALLEST], codes[LOST, -1] = 0, 255
        stored = torch.from_numpy(swizzled(codes)).view(torch.float8_e8m0fnu)
        kept = np.where(codes == 255, np.nan, 2.0 ** (codes.astype(np.float64) - 127))
    elif recipe == B16:
        own = np.maximum(np.minimum(grid, 448.0), 2.0**-9).astype(ml_dtypes.float8_e4m3fn)
        stored, kept = torch.from_numpy(swizzled(own.view(np.uint8))).view(torch.float8_e4m3fn), own.astype(np.float64)
    else:
        kept = grid.astype(np.float32).astype(np.float64)
        stored = _float32(grid, recipe)
    factors = _wide(kept, recipe, data.shape) * (float(further[0]) if further else 1.0)
    scaled = np.clip(np.nan_to_num(data / factors), -top, top)
    if elements == "float4":
        codes4 = scaled.astype(ml_dtypes.float4_e2m1fn)
        exact, bits = codes4.astype(np.float64), codes4.view(np.uint8)
        pairs = torch.from_numpy(bits[:, ::2] & 0xF | bits[:, 1::2] << 4)
        return Operand(pairs.view(torch.float4_e2m1fn_x2), [stored, *further], exact * factors)
    own8 = scaled.astype(getattr(ml_dtypes, elements))
    matrix = torch.from_numpy(own8.view(np.uint8)).view(getattr(torch, elements))
    return Operand(matrix, [stored, *further], own8.astype(np.float64) * factors)


class Product(Struct, frozen=True):
    """A call of torch._scaled_mm_v2, and its result in float64."""

    args: list[Any]
    exact: np.ndarray

    api: str = "Torch._scaled_mm_v2"

    @property
    def dtype(self) -> torch.dtype:
        """That of the result."""
        return next((value for value in self.args if isinstance(value, torch.dtype)), torch.bfloat16)


def product(
    name: str,
    seed: int,
    shape: tuple[int, int, int] = (160, 512, 96),
    dtype: torch.dtype = torch.bfloat16,
    *,
    extremes: bool = False,
) -> Product:
    """M, K and N: by default two tiles of rows, and four blocks of 128."""
    form, rng = FORMATS[name], np.random.default_rng(seed)
    rows, inner, columns = shape
    a = operand(_data((rows, inner), rng), form.elements, form.a, extremes=extremes)
    b = operand(_data((columns, inner), rng), form.elements, form.b)
    scales_b = [b.scales[0].reshape(1, -1)] if form.b == (ROW,) else b.scales
    how = [int(form.swizzled), *(NONE for _ in form.a[1:])]
    args = [a.matrix, b.matrix.t(), a.scales, list(form.a), how, scales_b, list(form.b), how, None, dtype, [], False]
    return Product(args, a.exact @ b.exact.T)


def inferred(call: Product, *, fast: bool = False) -> Product:
    """The same call as torch._scaled_mm, which infers recipes from shapes: scales of the second operand, and of blocks
    of 128 x 128, lie the other way round."""
    a, b, (scale_a,), (recipe_a,), _, (scale_b,), (recipe_b,), _, bias, dtype, *_ = call.args
    scale_a = scale_a[: -(-a.shape[1] // 128)].t() if recipe_a == SQUARE else scale_a
    scale_b = scale_b.t() if recipe_b == B128 else scale_b
    scale_b = scale_b[: -(-a.shape[1] // 128)] if recipe_b == SQUARE else scale_b
    return Product([a, b, scale_a, scale_b, bias, None, dtype, fast], call.exact, "Torch._scaled_mm")


Kernel = Callable[..., torch.Tensor]
_E2M1 = torch.tensor([0.0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _values(matrix: torch.Tensor, fault: str) -> torch.Tensor:
    """Rows of numbers in float32."""
    if matrix.dtype is not torch.float4_e2m1fn_x2:
        return matrix.float()
    data = matrix.view(torch.uint8).int()
    halves = (data & 15, data >> 4) if fault != "nibbles swapped" else (data >> 4, data & 15)
    return _E2M1[torch.stack(halves, -1).flatten(1)]


def _factors(stored: torch.Tensor, fault: str) -> torch.Tensor:
    """Scales in float32."""
    if stored.dtype is not torch.float8_e8m0fnu:
        return stored.float()
    codes = stored.view(torch.uint8).double()
    if fault == "byte as a linear number":
        return (codes / 127).float()
    powers = torch.where(codes == 255, torch.nan, 2.0 ** (codes - 127))
    if fault == "byte 0 and 255 wrong":  # a byte 0 that is zero, and a 255 that is a number
        powers = torch.where(codes == 0, 0.0, torch.where(codes == 255, 2.0**127, powers))
    return powers.float()


def _laid_out(stored: torch.Tensor, blocks: tuple[int, int], swizzle: int, recipe: int, fault: str) -> torch.Tensor:
    """The grid of scales."""
    rows, columns = blocks
    if recipe == SQUARE:
        return stored[:columns].t()
    if not swizzle:
        return stored.reshape(blocks)
    flat, width = stored.reshape(-1), -(-columns // 4) * 4
    if fault == "unpadded scales":
        width = columns
    row, column = torch.arange(rows)[:, None], torch.arange(columns)[None]
    place = ((row // 128) * (width // 4) + column // 4) * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4
    if fault == "swizzle left out":
        place = row * width + column
    if fault == "swizzle applied twice":
        flat = flat[_permutation(flat.numel() // width, width)]
    return flat[place % flat.numel()]


def _permutation(rows: int, width: int) -> torch.Tensor:
    row, column = torch.arange(rows)[:, None], torch.arange(width)[None]
    place = ((row // 128) * (width // 4) + column // 4) * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4
    return place.reshape(-1)


def _wrong(grid: torch.Tensor, fault: str) -> torch.Tensor:
    """The grid that a faulty kernel uses."""
    rows, columns = grid.shape
    if fault == "scale transposed":
        return grid.t().reshape(rows, columns)
    if fault == "first slice for all of K":
        return grid[:, :1].expand(rows, columns)
    if fault == "launch index for tile index":  # tiles of 4 blocks, which the launch visits in another order
        order = torch.arange(columns).reshape(-1, 4 if columns % 8 == 0 else 1).flip(0).reshape(-1)
        return grid[:, order]
    if fault == "tensor-wise for block-wise":
        return grid[:1, :1].expand(rows, columns)
    if fault == "one block" and rows > 3 and columns > 2:
        changed = grid.clone()
        changed[3, 1] = grid[3, 2]
        return changed
    if fault == "scale ignored":
        return torch.ones_like(grid)
    return grid


def read(
    matrix: torch.Tensor, scales: list[torch.Tensor], recipes: list[int], swizzle: int, fault: str = ""
) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers of rows that are added up along, with the scale of all, and the scale of the block of each."""
    values = _values(matrix, fault)
    high, wide = _extents(recipes[0], values.shape)  # type: ignore[arg-type]
    blocks = -(-values.shape[0] // high), -(-values.shape[1] // wide)
    grid = _wrong(_laid_out(_factors(scales[0], fault), blocks, swizzle, recipes[0], fault), fault)
    wide_grid = grid.repeat_interleave(high, 0)[: values.shape[0]].repeat_interleave(wide, 1)[:, : values.shape[1]]
    for further in scales[1:]:
        values = values * further.reshape(())
    return values, wide_grid


def decoded(call: Product) -> tuple[torch.Tensor, torch.Tensor]:
    """Both operands of torch._scaled_mm_v2 times their scales, the second one with its columns as rows."""
    a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, *_ = call.args
    left, of_left = read(a, scale_a, recipe_a, swizzle_a[0])
    right, of_right = read(b.t(), scale_b, recipe_b, swizzle_b[0])
    return left * of_left, right * of_right


def kernel(
    fault: str = "",
    both: bool = True,
    multiply: Callable[..., torch.Tensor] | None = None,
    *,
    first: bool = True,
    after: bool = False,
) -> Kernel:
    """torch._scaled_mm_v2 as a device computes it, with a fault in the scales of the first operand, the second, or
    both. after: scales of at least 128 numbers are multiplied with their products' sum, as tensor cores have it."""

    def scaled_mm(
        a: torch.Tensor, b: torch.Tensor, scale_a: Any, recipe_a: Any, swizzle_a: Any, scale_b: Any, recipe_b: Any,
        swizzle_b: Any, bias: torch.Tensor | None = None, out_dtype: torch.dtype | None = None, *_: Any,
    ) -> torch.Tensor:  # fmt: skip
        sides = [
            read(a, scale_a, recipe_a, swizzle_a[0], fault if first else ""),
            read(b.t(), scale_b, recipe_b, swizzle_b[0], fault if both else ""),
        ]
        if after and multiply is not None and not {recipe_a[0], recipe_b[0]} & {B16, B32}:
            return _scaled_after(sides, multiply).to(out_dtype or torch.bfloat16)
        left, right = (values * scales for values, scales in sides)
        if fault == "last block of K dropped":
            left = left[:, : -BLOCKS[recipe_a[0]][1] or -128]
            right = right[:, : left.shape[1]]
        result = _multiplied(left, right, fault) if multiply is None else multiply(left, right)
        result = result if bias is None else result + bias
        return result.to(out_dtype or torch.bfloat16)

    return scaled_mm


def _scaled_after(sides: Any, multiply: Callable[..., torch.Tensor]) -> torch.Tensor:
    (left, of_left), (right, of_right) = sides
    whole = (of_left == of_left[:, :1]).all() and (of_right == of_right[:, :1]).all()
    total = torch.zeros(left.shape[0], right.shape[0])
    step = left.shape[1] if whole else 128
    for at in range(0, left.shape[1], step):
        part = multiply(left[:, at : at + step], right[:, at : at + step])
        total = total + part * of_left[:, at, None] * of_right[None, :, at]
    return total


def _multiplied(left: torch.Tensor, right: torch.Tensor, fault: str) -> torch.Tensor:
    if fault != "accumulation in float16":
        return left @ right.t()
    size = float(left.abs().max() * right.abs().max() * 8)  # a kernel's own scale keeps it in range
    total = torch.zeros(left.shape[0], right.shape[0], dtype=torch.float16)
    for start in range(0, left.shape[1], 16):
        part = left[:, start : start + 16] @ right[:, start : start + 16].t() / size
        total = (total.float() + part).half()
    return total.float() * size


FAULTS: Mapping[str, tuple[str, str, str]] = {
    "scale transposed": ("1x128", "mxfp8", "nvfp4"),
    "swizzle left out": ("mxfp8", "mxfp4", "nvfp4"),
    "swizzle applied twice": ("mxfp8", "mxfp4", "nvfp4"),
    "first slice for all of K": ("1x128", "mxfp8", "nvfp4, two levels"),
    "launch index for tile index": ("1x128, 128x128", "mxfp8", "nvfp4"),
    "unpadded scales": ("mxfp8", "mxfp4", "nvfp4"),
    "byte as a linear number": ("mxfp8", "mxfp4", "mxfp8, e5m2"),
    "nibbles swapped": ("mxfp4", "nvfp4", "nvfp4, two levels"),
    "tensor-wise for block-wise": ("row-wise", "128x128, 1x128", "mxfp4"),
    "scale ignored": ("tensor-wise", "row-wise", "mxfp8"),
    "byte 0 and 255 wrong": ("mxfp8", "mxfp4", "mxfp8, e5m2"),
    "accumulation in float16": ("tensor-wise", "mxfp8", "1x128"),
    "last block of K dropped": ("1x128", "mxfp8", "nvfp4"),
}


def planted(fault: str, name: str, seed: int, dtype: torch.dtype = torch.bfloat16) -> tuple[Product, Kernel]:
    """A call on which a fault shows, and the kernel that has it."""
    # 33 or 17 blocks, which tiles of 4 do not divide.
    inner = 528 if fault == "unpadded scales" else 512
    call = product(name, seed, (160, inner, 96), dtype, extremes=fault == "byte 0 and 255 wrong")
    # In both operands swapped pairs meet again.
    return call, kernel(fault, both=fault != "nibbles swapped")


def write(folder: Path, call: Product, *results: torch.Tensor) -> Path:
    """A dump with one call, with all its tensors."""
    tensors = folder / "dump_tensor_data"
    tensors.mkdir(parents=True, exist_ok=True)
    count = iter(range(1000))

    def entry(value: Any) -> Any:
        if isinstance(value, list):
            return [entry(each) for each in value]
        if not isinstance(value, torch.Tensor):
            return described(value)
        name = f"{next(count)}.pt"
        torch.save(value, tensors / name)
        found = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape), "requires_grad": False}
        strides = {} if value.is_contiguous() else {"stride": list(value.stride())}
        return {**found, "Max": None, "Min": None, "Mean": None, "Norm": None, **strides, "data_name": name}

    forward = {"input_args": entry(call.args), "input_kwargs": {}, "output": [entry(result) for result in results]}
    data = {f"{call.api}.0.forward": forward}
    top = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": str(tensors), "data": data}
    path = folder / "dump.json"
    path.write_text(json.dumps(top))
    return path


def grouped(name: str, seed: int) -> tuple[str, list[Any], Kernel]:
    """The API and the arguments of a product of groups of rows, 40, 0 and 56, each with a matrix of its own, and its
    kernel, which takes the rows that each group ends with. "bfloat16", "row-wise" or "mxfp8"."""
    rng, ends = np.random.default_rng(seed), torch.tensor([40, 40, 96], dtype=torch.int32)
    data, weights = _data((96, 128), rng), [_data((32, 128), rng) for _ in range(3)]
    if name == "bfloat16":
        a = torch.from_numpy(data).bfloat16()
        b = torch.from_numpy(np.stack(weights)).bfloat16().transpose(1, 2)

        def plain(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
            return _by_groups(a.float(), b.transpose(1, 2).float(), offs)

        return "Torch._grouped_mm", [a, b, ends], plain
    recipe = ROW if name == "row-wise" else B32
    rows = [operand(part, "float8_e4m3fn", (recipe,)) for part in (data[:40], data[40:])]
    matrices = [operand(each, "float8_e4m3fn", (recipe,)) for each in weights]
    a = torch.cat([each.matrix.view(torch.uint8) for each in rows]).view(torch.float8_e4m3fn)
    b = torch.stack([each.matrix.view(torch.uint8) for each in matrices]).view(torch.float8_e4m3fn).transpose(1, 2)
    scale_a = torch.cat([each.scales[0].view(torch.uint8).reshape(-1) for each in rows])
    scale_b = torch.stack([each.scales[0].view(torch.uint8).reshape(-1) for each in matrices])
    dtype = torch.float32 if recipe == ROW else torch.float8_e8m0fnu
    exact = torch.from_numpy(np.concatenate([each.exact for each in rows])).float()
    wide = torch.from_numpy(np.stack([each.exact for each in matrices])).float()

    def scaled_(_a: Any, _b: Any, _scale_a: Any, _scale_b: Any, offs: torch.Tensor) -> torch.Tensor:
        return _by_groups(exact, wide, offs)

    return "Torch._scaled_grouped_mm", [a, b, scale_a.view(dtype), scale_b.view(dtype), ends], scaled_


def _by_groups(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    ends = [0, *offs.tolist()]
    pairs = itertools.pairwise(ends)
    return torch.cat([a[start:end] @ matrix.t() for (start, end), matrix in zip(pairs, b, strict=True)]).bfloat16()


def late(kernel: Kernel) -> Kernel:
    """A kernel of grouped(), whose first group ends one row late."""

    def shifted(*given: torch.Tensor) -> torch.Tensor:
        ends = given[-1].clone()
        ends[0] += 1
        return kernel(*given[:-1], torch.maximum(ends, ends[0]))

    return shifted
