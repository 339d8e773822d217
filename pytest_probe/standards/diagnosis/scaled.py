"""Scaled products whose operands got other scales than theirs: each mistake is made here, and multiplied out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec.structs import replace

from pytest_probe.errors import BrokenCall
from pytest_probe.model.scaled_product import Operand, operands
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, Float64Array, is_packed, widen
from pytest_probe.numerics.scaled import TILE_COLUMNS, TILE_ROWS, Recipe, places
from pytest_probe.standards.diagnosis.failed_output import MIN_WRONG_ELEMENTS, NEARLY_ALL, Cause, FailedOutput

# Multiplications of all mistakes together that take a second or two in float64.
_WORK = 1 << 33
# Rows whose scales are solved for.
_ROWS = 16
# Blocks of a row that a common factor shows in.
_SEVERAL = 3
# Two scales that are as near are one: what a row of 16-bit results tells of a scale.
_SAME = 2.0**-4

# The scaled numbers of an operand by a mistake; None where the operand cannot have it.
_Mistake = Callable[[Operand], "Float64Array | None"]


def wrong_scales(failed: FailedOutput) -> Cause | None:
    """The product with scales that are another block's, or read otherwise; or with other numbers than those packed."""
    comparison = failed.comparison
    if "scaled_products" not in comparison.classes or comparison.direction == "backward" or not failed.whole:
        return None
    try:
        a, b = operands(comparison.call)
    except (BrokenCall, AttributeError):
        return None  # groups, or no scales at all
    if a.shape[0] * a.shape[1] * b.shape[0] * 3 * len(_MISTAKES) > _WORK:
        return None
    right = a.scaled(), b.scaled()
    bias = comparison.call.argument("bias")
    added = widen(bias) if isinstance(bias, np.ndarray) else 0.0
    for words, mistake in _MISTAKES:
        wrong = mistake(a), mistake(b)
        for side, pair in _sides(wrong, right):
            if failed.explained(pair[0] @ pair[1].T + added):
                return Cause("scales", f"{words}{side}")
    return _by_solving(failed, a, right) or _by_solving(failed, b, right[::-1], second=True)


def _sides(
    wrong: tuple[Float64Array | None, Float64Array | None], right: tuple[Float64Array, Float64Array]
) -> Iterator[tuple[str, tuple[Float64Array, Float64Array]]]:
    first, second = wrong
    if first is not None and second is not None:
        yield "", (first, second)
    if first is not None:
        yield ", of the first operand", (first, right[1])
    if second is not None:
        yield ", of the second operand", (right[0], second)


def _recipe(operand: Operand) -> Recipe:
    return operand.scaling.recipes[0]


def _blocks(operand: Operand) -> tuple[int, int]:
    return _recipe(operand).blocks(operand.shape)


def _flat(operand: Operand) -> Float64Array:
    return widen(operand.scales[0]).reshape(-1)


def _of_grid(change: Callable[[Float64Array], Float64Array]) -> _Mistake:
    def mistake(operand: Operand) -> Float64Array | None:
        grid = operand.grid()
        return operand.scaled(np.broadcast_to(change(grid), grid.shape)) if grid.size > 1 else None

    return mistake


def _stored_at(find: Callable[[int, int], AnyArray]) -> _Mistake:
    """Swizzled scales that are looked for elsewhere: find gives the places for so many rows and columns."""

    def mistake(operand: Operand) -> Float64Array | None:
        if operand.scaling.order != "swizzled":
            return None
        flat = _flat(operand)
        return operand.scaled(flat[find(*_blocks(operand)) % flat.size])

    return mistake


def _width(columns: int) -> int:
    return -(-columns // TILE_COLUMNS) * TILE_COLUMNS


def _in_rows(rows: int, columns: int, width: int) -> AnyArray:
    row, column = np.ogrid[:rows, :columns]
    return np.asarray(row * width + column)


def _unpadded(rows: int, columns: int) -> AnyArray:
    """Tiles counted by the columns that there are."""
    row, column = np.ogrid[:rows, :columns]
    tile = (row // TILE_ROWS) * (columns // TILE_COLUMNS) + column // TILE_COLUMNS
    inside = (row % 32) * 16 + (row % TILE_ROWS // 32) * TILE_COLUMNS + column % TILE_COLUMNS
    return np.asarray(tile * TILE_ROWS * TILE_COLUMNS + inside)


def _tiles_by_columns(rows: int, columns: int) -> AnyArray:
    own = places(Recipe("", 1, 1), (rows, columns), "swizzled")
    high = -(-rows // TILE_ROWS)
    row, column = np.ogrid[:rows, :columns]
    size = TILE_ROWS * TILE_COLUMNS
    return np.asarray((column // TILE_COLUMNS * high + row // TILE_ROWS) * size + own % size)


def _twice(operand: Operand) -> Float64Array | None:
    if operand.scaling.order != "swizzled":
        return None
    flat, (rows, columns) = _flat(operand), _blocks(operand)
    padded = flat.size // _width(columns), _width(columns)
    again = flat[places(Recipe("", 1, 1), padded, "swizzled").reshape(-1)]
    return operand.scaled(again[places(Recipe("", 1, 1), (rows, columns), "swizzled")])


def _linear(change: Callable[[Float64Array], Float64Array]) -> _Mistake:
    def mistake(operand: Operand) -> Float64Array | None:
        if operand.scales[0].dtype.name != "float8_e8m0fnu":
            return None
        codes = operand.scales[0].view(np.uint8).astype(np.float64).reshape(-1)
        return operand.scaled(change(codes)[places(_recipe(operand), operand.shape, operand.scaling.order)])

    return mistake


def _swapped_pairs(operand: Operand) -> Float64Array | None:
    if not is_packed(operand.matrix):
        return None
    data = operand.matrix.view(np.uint8)
    return replace(operand, matrix=((data >> 4) | (data << 4)).astype(np.uint8).view(operand.matrix.dtype)).scaled()


def _reversed_tiles(grid: Float64Array) -> Float64Array:
    if grid.shape[1] % TILE_COLUMNS:
        return grid
    return grid.reshape(grid.shape[0], -1, TILE_COLUMNS)[:, ::-1].reshape(grid.shape)


def _without_last(operand: Operand) -> Float64Array | None:
    size = _recipe(operand).columns
    if not size or operand.shape[1] <= size:
        return None
    kept = operand.scaled().copy()
    kept[:, (operand.shape[1] - 1) // size * size :] = 0.0
    return kept


_MISTAKES: tuple[tuple[str, _Mistake], ...] = (
    ("the scales are ignored", lambda operand: operand.numbers()),
    (
        "the scale of the whole tensor is ignored",
        lambda operand: None if len(operand.scales) < 2 else replace(operand, scales=operand.scales[:1]).scaled(),
    ),
    ("the scales are transposed", _of_grid(lambda grid: grid.T.reshape(grid.shape))),
    ("the swizzle of the scales is left out", _stored_at(lambda high, wide: _in_rows(high, wide, _width(wide)))),
    ("the swizzle of the scales is applied twice", _twice),
    ("the scales are read without their padding", _stored_at(_unpadded)),
    (
        "the scales are read without their padding and swizzle",
        _stored_at(lambda high, wide: _in_rows(high, wide, wide)),
    ),
    ("the tiles of the scales are counted along the columns", _stored_at(_tiles_by_columns)),
    ("the first slice of the scales serves for all of K", _of_grid(lambda grid: grid[:, :1])),
    ("the first row of the scales serves for all rows", _of_grid(lambda grid: grid[:1])),
    ("one scale serves for the whole tensor", _of_grid(lambda grid: grid[:1, :1])),
    ("one scale, the largest, serves for the whole tensor", _of_grid(lambda grid: np.nanmax(grid, keepdims=True))),
    ("the scales' bytes are taken as linear numbers, b / 127", _linear(lambda codes: codes / 127)),
    ("the scales' bytes are taken as linear numbers, b", _linear(lambda codes: codes)),
    ("the scales' bytes are taken as 2^(b - 128)", _linear(lambda codes: np.exp2(codes - 128))),
    ("the two numbers of each byte are swapped", _swapped_pairs),
    ("tiles of scales are taken in the order of another loop", _of_grid(_reversed_tiles)),
    ("the scales of each row are taken in reverse", _of_grid(lambda grid: grid[:, ::-1])),
    ("each block has the scale of the next one", _of_grid(lambda grid: np.roll(grid, -1, axis=1))),
    ("each block has the scale of the one before", _of_grid(lambda grid: np.roll(grid, 1, axis=1))),
    ("each row has the scales of the next one", _of_grid(lambda grid: np.roll(grid, -1, axis=0))),
    ("each row has the scales of the one before", _of_grid(lambda grid: np.roll(grid, 1, axis=0))),
    ("the last block of K is left out", _without_last),
)  # fmt: skip


def _by_solving(
    failed: FailedOutput, operand: Operand, right: tuple[Float64Array, Float64Array], *, second: bool = False
) -> Cause | None:
    """A row of the result is the sum of what each block gives, times its scale: which scales were used."""
    recipe, (_, count) = _recipe(operand), _blocks(operand)
    other, size = right[1], recipe.columns or operand.shape[1]
    if recipe.rows != 1 or count > other.shape[0] // 2:
        return None
    sides = (failed.actual, failed.expected, failed.allowed)
    actual, expected, allowed = (side.T if second else side for side in sides)
    wrong = failed.wrong.T if second else failed.wrong
    several = np.count_nonzero(wrong, axis=1) >= MIN_WRONG_ELEMENTS
    grid, numbers = operand.grid(), operand.numbers()
    whole = float(np.prod([widen(each).reshape(-1)[0] for each in operand.scales[1:]]))
    for row in np.flatnonzero(several)[:_ROWS]:
        starts = range(0, operand.shape[1], size)
        parts = np.stack([other[:, at : at + size] @ numbers[row, at : at + size] for at in starts], axis=1) * whole
        off = actual[row] - expected[row]
        if not (np.isfinite(parts).all() and np.isfinite(off).all()):
            continue
        # Each element counts by how well it is known.
        known = 1 / np.maximum(allowed[row], np.finfo(np.float64).tiny)
        # By how much the scales of the row's blocks may have been others: of one block, then of any; each to scales
        # that blocks have, and then to any.
        solved = _solved(parts * known[:, None], off * known)
        for change in (each for by in solved for each in (_known_scales(grid[row] + by, grid) - grid[row], by)):
            made = expected.copy()
            made[row] += parts @ change
            matched = failed.right(made.T if second else made)
            fits = matched[:, row] if second else matched[row]
            if min(np.mean(fits), np.mean(fits[wrong[row]])) >= NEARLY_ALL:
                # The one that shows most.
                block = int(np.argmax(np.abs(change) * np.linalg.norm(parts, axis=0)))
                return _named(int(row), block, grid[row] + change, grid, second=second)
    return None


def _solved(parts: Float64Array, off: Float64Array) -> Iterator[Float64Array]:
    squares = np.square(parts).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        single = np.where(squares > 0, parts.T @ off / squares, 0.0)
    one = np.zeros(single.shape)
    block = int(np.argmax(single**2 * squares))
    one[block] = single[block]
    yield one
    # In units of each block's own part, lest the largest hides the others.
    unit = np.sqrt(squares)
    if unit.all():
        yield np.linalg.lstsq(parts / unit, off, rcond=None)[0] / unit


def _known_scales(used: Float64Array, grid: Float64Array) -> Float64Array:
    """Solved scales, those of blocks where they are as near: results of 16 bits tell no more of one."""
    values = np.unique(grid[np.isfinite(grid)])
    place = np.searchsorted(values, used).clip(1, max(values.size - 1, 1))
    below, above = values[place - 1], values[place.clip(max=values.size - 1)]
    nearest = np.where(np.abs(used - below) < np.abs(above - used), below, above)
    return np.where(np.abs(used - nearest) <= _SAME * np.abs(nearest), nearest, used)


def _named(row: int, block: int, used: Float64Array, grid: Float64Array, *, second: bool) -> Cause | None:
    """Whose scales a row used: one factor on all, another block of the row, or another row. Scales have few values, so
    that a single one equals some block's of another row by chance. block: the one that shows most; None: no other's."""
    line, own = "column" if second else "row", grid[row]
    changed = ~_same(used, own)
    if not changed[block]:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = used / own
    if np.count_nonzero(own) >= _SEVERAL and _same(factors, np.median(factors))[own != 0].all():
        return Cause("scales", f"the scales of {line} {row} are taken {np.median(factors):.3g} times as large")
    blocks = np.flatnonzero(_same(own, used[block]))
    if blocks.size:
        place = min(blocks, key=lambda each: (abs(each - block), -each))
        return Cause("scales", f"{line} {row} used the scale of block {place} for block {block}")
    rows = np.flatnonzero(_same(grid[:, changed], used[changed]).all(axis=1))
    if not rows.size or np.count_nonzero(changed) < min(2, own.size):
        return None
    return Cause("scales", f"{line} {row} used the scales of {line} {min(rows, key=lambda each: abs(each - row))}")


def _same(first: AnyArray, second: AnyArray) -> BoolArray:
    return np.asarray(np.abs(first - second) <= _SAME * np.abs(first))
