"""Quantisers, functions that give a matrix's numbers in few bits and a scale for each block: judged by what they were
given, apart from any product. Each element must be x over its scale, rounded to the nearest number, ties to even, or in
another way that can be named; and the scales must follow a rule.

A rule gives the scale of a block from the largest magnitude in it, m. `top` is the elements' largest number, 2^e its
power of two. Powers of two (E8M0, or float32 that has such values alone):

- floor: 2^(floor(log2 m) - e), of the OCP Microscaling specification 1.0, section 6.3
- ceil: 2^(ceil(log2 m) - e)
- even: floor of m that was rounded to the elements' significand
- rceil: 2^ceil(log2(m / top)), of cuBLAS ("Scaling factors: 1D block quantization"): nothing is ever saturated
- 0.75: floor, and elements of three quarters of their numbers, so that none is clipped: "Training LLMs with MXFP4"
  (Tseng et al., 2025, arXiv:2502.20586), whose code is `dither_scale` in github.com/amazon-science/mxfp4-llm

Any other dtype of scales: m / top (over the scale of the whole tensor, where there is one), rounded to the nearest, the
next or the last number of that dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from pytest_probe.errors import BrokenCall
from pytest_probe.model.verdict import Metric, Outcome, OutputVerdict
from pytest_probe.numerics.dtypes import (
    AnyArray,
    BoolArray,
    Float64Array,
    FloatFormat,
    alike,
    dtype_name,
    float_format,
    is_packed,
    round_to,
    truncated,
    unpacked,
    widen,
)
from pytest_probe.numerics.scaled import Order, Recipe, check_scales, expanded, laid_out

# What E8M0 holds.
_LOWEST, _HIGHEST = 2.0**-127, 2.0**127
# Roundoffs of float32 that a division, or a product with a reciprocal, is off by at most.
NEAR = 4 * 2.0**-24
# Numbers below it a device may flush to zero.
SMALLEST = 2.0**-126


class Rule(Struct, frozen=True):
    """A rule of scales: from the largest magnitude of each block, above zero, and the elements' format. factor: what
    elements are multiplied with. near: how far, relative to itself, a scale may be from the rule's."""

    name: str
    scale: Callable[[Float64Array, FloatFormat], Float64Array]
    factor: float = 1.0
    near: float = 0.0


def _power(exponent: Float64Array) -> Float64Array:
    return np.exp2(np.clip(exponent, -127, 127))


def _floor_log2(values: Float64Array) -> Float64Array:
    return np.asarray(np.frexp(values)[1] - 1.0)


def _ceil_log2(values: Float64Array) -> Float64Array:
    significand, exponent = np.frexp(values)
    return np.asarray(exponent - (significand == 0.5))


def _top(form: FloatFormat) -> float:
    return float(_floor_log2(np.asarray(form.max)))


def _even(largest: Float64Array, form: FloatFormat) -> Float64Array:
    spacing = np.exp2(_floor_log2(largest) + 1 - form.precision)
    return _power(_floor_log2(np.rint(largest / spacing) * spacing) - _top(form))


POWERS: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("floor", lambda largest, form: _power(_floor_log2(largest) - _top(form))),
        Rule("ceil", lambda largest, form: _power(_ceil_log2(largest) - _top(form))),
        Rule("even", _even),
        # The quotient is float32's: what is nearer to a power of two than its roundoff may be taken for that.
        Rule("rceil", lambda largest, form: _power(_ceil_log2(largest / form.max))),
        Rule("0.75", lambda largest, form: _power(_floor_log2(largest) - _top(form)), factor=0.75),
    )
}


def rules(dtype: str) -> Mapping[str, Rule]:
    """The rules for scales of a dtype, by name."""
    if dtype == "float8_e8m0fnu":
        return POWERS

    def rounded(direction: str) -> Callable[[Float64Array, FloatFormat], Float64Array]:
        return lambda largest, form: _rounded(largest / form.max, dtype, direction)

    near = NEAR if dtype == "float32" else 0.0
    own = (Rule(name, rounded(name), near=near) for name in ("nearest", "up", "down"))
    return {**{rule.name: rule for rule in own}, **POWERS}


def _rounded(values: Float64Array, dtype: str, direction: str) -> Float64Array:
    form = float_format(dtype)
    values = np.clip(values, form.smallest, form.max)
    nearest = widen(round_to(values, dtype))
    if direction == "nearest":
        return nearest
    step = form.spacing(values)
    if direction == "up":
        return np.where(nearest < values, np.minimum(nearest + step, form.max), nearest)
    return np.where(nearest > values, np.maximum(nearest - step, form.smallest), nearest)


class Followed(Struct, frozen=True):
    """How many blocks have the scale of a rule, and where one has another."""

    rule: Rule
    share: float
    wrong: BoolArray
    expected: Float64Array

    @property
    def all(self) -> bool:
        return not self.wrong.any()


def followed(rule: Rule, found: Float64Array, largest: Float64Array, form: FloatFormat, judged: BoolArray) -> Followed:
    """How scales follow a rule, in the judged blocks: neither zero nor without a number."""
    some = np.where(judged, largest, 1.0)
    expected = rule.scale(some, form)
    close = np.abs(found - expected) <= rule.near * expected
    if not rule.near:
        # float32 inside may take a quotient for its neighbour, on the other side of an edge.
        # So it is where a rule divides by a number that is no power of two. Others look at bits.
        inexact = rule.name in ("rceil", "nearest", "up", "down") and 2.0 ** _top(form) != form.max
        for moved in (some * (1 - NEAR), some * (1 + NEAR)) if inexact else ():
            close |= found == rule.scale(moved, form)
    wrong = judged & ~close
    count = max(int(np.count_nonzero(judged)), 1)
    return Followed(rule, float(1 - np.count_nonzero(wrong) / count), wrong, expected)


# Bins of the probability to round up, each tested by itself, and standard errors beyond which a mean is off: a healthy
# quantiser is flagged once in 10^7 tests.
BINS, SIGMAS = 8, 5.5
# Fewest draws in a bin whose mean is as good as normal.
_FEW = 200


def nearest(values: Float64Array, form: FloatFormat, *, saturate: bool) -> Float64Array:
    """Rounded to nearest, ties to even; what lies beyond the largest number is that, or what the format puts there.
    values: of any shape, numbers divided by their block's scale, in float64."""
    limited = np.clip(values, -form.max, form.max) if saturate else values
    return widen(round_to(limited, form.name))


def others(values: Float64Array, form: FloatFormat) -> Mapping[str, Float64Array]:
    """What quantisers do in place of that, by what is said of it."""
    limited = np.clip(values, -form.max, form.max)
    spacing = form.spacing(limited)
    away = np.copysign(np.floor(np.abs(limited) / spacing + 0.5) * spacing, limited)
    return {
        "truncate": widen(truncated(limited, np.dtype(round_to(limited, form.name).dtype))),
        "round ties away from zero": np.clip(away, -form.max, form.max),
        "are not saturated": nearest(values, form, saturate=False),
        "are saturated": nearest(values, form, saturate=True),
        "are rounded to bfloat16 first": nearest(widen(round_to(values, "bfloat16")), form, saturate=True),
        "are rounded to float16 first": nearest(widen(round_to(limited, "float16")), form, saturate=True),
        "have the other sign": -nearest(values, form, saturate=True),
    }


def right(
    found: Float64Array, values: Float64Array, form: FloatFormat, *, saturate: bool, near: Float64Array
) -> BoolArray:
    """Where elements are right; near: the share of itself by which each quotient may be off. All are of one shape, and
    right is nearest(v) for v = values, values (1 - near) or values (1 + near)."""
    moved = (values, values * (1 - near), values * (1 + near))
    return np.asarray(np.logical_or.reduce([alike(found, nearest(each, form, saturate=saturate)) for each in moved]))


def neighbours(values: Float64Array, form: FloatFormat) -> tuple[Float64Array, Float64Array]:
    """The numbers of the format below and above each value, equal where it is one."""
    limited = np.clip(values, -form.max, form.max)
    spacing = form.spacing(limited)
    below = np.floor(limited / spacing) * spacing
    above = np.ceil(limited / spacing) * spacing
    return below, np.minimum(above, form.max)


def biased(draws: Sequence[Float64Array], values: Float64Array, form: FloatFormat) -> str:
    """Why draws are no stochastic rounding; "" where they may be one. Each draw has one of the two neighbours already.

    The share that is rounded up is compared with the probability to do so, over all elements and in bins of that
    probability: a quantiser that rounds to nearest is right on average. With p = (value - below) / (above - below) of
    each element and n draws, |share - mean(p)| <= 5.5 sqrt(mean(p (1 - p)) / n).
    """
    below, above = neighbours(values, form)
    between = above > below
    if not between.any():
        return ""
    chance = (np.clip(values, -form.max, form.max) - below)[between] / (above - below)[between]
    up = np.stack([draw[between] == above[between] for draw in draws]).mean(axis=0)
    bins = np.minimum((chance * BINS).astype(int), BINS - 1)
    for place in (None, *range(BINS)):
        chosen = np.ones(chance.shape, bool) if place is None else bins == place
        count = int(np.count_nonzero(chosen)) * len(draws)
        if count < _FEW:
            continue
        wanted, found = float(chance[chosen].mean()), float(up[chosen].mean())
        error = np.sqrt(max(float((chance * (1 - chance))[chosen].mean()), 1e-12) / count)
        if abs(found - wanted) > SIGMAS * error:
            return f"{found:.1%} of {count:,} draws are rounded up, {wanted:.1%} by how near the upper number is"
    return ""


NAME = "quantiser"
# Runs of a quantiser that rounds by chance: of 4,096 elements they tell a bias of half a percent.
DRAWS = 32


class Wanted(Struct, frozen=True):
    """What a quantiser states: its recipe and the order of its scales; the rule of them, "" for any; whether elements
    are saturated, and how they are rounded, "nearest" or "stochastic". scales_first: it returns them before values."""

    recipe: Recipe
    order: Order
    rule: str = ""
    saturate: bool = True
    rounding: str = "nearest"
    scales_first: bool = False


class Quantised(Struct, frozen=True):
    """What a quantiser gave: elements, stored scales, and the scale of the whole tensor, 1 where it gives none."""

    values: AnyArray
    scales: AnyArray
    whole: float = 1.0


class _Blocks(Struct, frozen=True):
    """The numbers that were quantised, rows by columns, by blocks."""

    numbers: Float64Array
    largest: Float64Array  # of each block, of its numbers that are finite
    lost: BoolArray  # blocks with NaN or an infinity


def judge(numbers: AnyArray, draws: Sequence[Quantised], wanted: Wanted) -> tuple[OutputVerdict, OutputVerdict]:
    """The verdicts on scales and on elements. numbers: what was quantised, shape (..., columns), of any floating dtype;
    draws: what came of it, once, or many times where rounding is stochastic. Raises BrokenCall for outputs that are
    none of the recipe's."""
    matrix = widen(numbers).reshape(-1, numbers.shape[-1])
    shape, first = (matrix.shape[0], matrix.shape[1]), draws[0]
    form = float_format(dtype_name(first.values.dtype).removesuffix("_x2"))
    blocks = _blocks(matrix, wanted.recipe)
    # The stored scale of each block, without that of the whole tensor.
    check_scales(wanted.recipe, shape, wanted.order, first.scales.shape, dtype_name(first.scales.dtype))
    grid = widen(laid_out(first.scales, wanted.recipe, shape, wanted.order))
    usual = ~blocks.lost & (blocks.largest >= SMALLEST)
    known = rules(dtype_name(first.scales.dtype))
    found = {name: followed(rule, grid, blocks.largest / first.whole, form, usual) for name, rule in known.items()}
    # The rule that was asked for, or the one that most blocks follow.
    best = found[wanted.rule] if wanted.rule else max(found.values(), key=lambda each: each.share)
    scales = _of_scales(first, wanted, found, best, grid, blocks)
    # Two rules may agree on scales, and not on what becomes of elements. The first one that agrees is named.
    fitting = [best] if wanted.rule or not best.all else [each for each in found.values() if each.all]
    by_factor: dict[float, Followed] = {}
    for each in fitting:
        by_factor.setdefault(each.rule.factor, each)
    verdicts = [
        _of_elements(draws, wanted, form, blocks.numbers, usual, grid, rule if rule.all else None)
        for rule in by_factor.values()
    ]
    return scales, min(verdicts, key=lambda each: (each.verdict == "error", each.metrics.get("mismatch", 1.0)))


def _blocks(matrix: Float64Array, recipe: Recipe) -> _Blocks:
    shape = (matrix.shape[0], matrix.shape[1])
    rows, columns = recipe.blocks(shape)
    high, wide = recipe.rows or shape[0], recipe.columns or shape[1]
    padded = np.zeros((rows * high, columns * wide))
    padded[: shape[0], : shape[1]] = matrix
    pieces = padded.reshape(rows, high, columns, wide)
    finite = np.isfinite(pieces)
    largest = np.abs(np.where(finite, pieces, 0.0)).max(axis=(1, 3))
    return _Blocks(matrix, largest, np.asarray(~finite.all(axis=(1, 3))))


def _numbers(found: Quantised, shape: tuple[int, ...]) -> Float64Array:
    """The elements, in the order of the matrix. Raises BrokenCall where they are of another shape."""
    own = widen(unpacked(found.values) if is_packed(found.values) else found.values)
    if own.size != shape[0] * shape[1] or own.shape[-1] != shape[1]:
        raise BrokenCall(
            f"values of shape {list(found.values.shape)}, {own.size:,} numbers, expected {shape[0] * shape[1]:,} in "
            f"rows of {shape[1]}"
        )
    return own.reshape(shape)


def _of_scales(
    first: Quantised, wanted: Wanted, found: Mapping[str, Followed], best: Followed, grid: Float64Array, blocks: _Blocks
) -> OutputVerdict:
    shares: dict[str, Metric] = {f"share_{name}": each.share for name, each in found.items()}
    # Of blocks that no rule speaks of: any number suits zeros.
    odd = ~blocks.lost & (blocks.largest == 0) & ~np.isfinite(grid)
    reason = ""
    if not best.all:
        block = tuple(int(place) for place in np.argwhere(best.wrong)[0])
        others = [name for name, each in found.items() if each.all and name != best.rule.name]
        follows = f"scales follow {others[0]}, not {wanted.rule}" if others else "scales follow no rule"
        shown = ", ".join(f"{name} {each.expected[block]:.6g}" for name, each in found.items())
        reason = (
            f"{follows}: {np.count_nonzero(best.wrong):,} blocks of {best.wrong.size:,} are unlike {best.rule.name}; "
            f"block {list(block)}, whose largest number is {blocks.largest[block]:.6g}, has the scale "
            f"{grid[block]:.6g}; by rule: {shown}"
        )
    elif odd.any():
        reason = f"{np.count_nonzero(odd):,} blocks of zeros have a scale that is no number, the first {_at(odd)}"
    metrics = {**shares, "rule": best.rule.name if best.all else "none"}
    return _verdict("scales", first.scales, reason, metrics)


def _of_elements(
    draws: Sequence[Quantised],
    wanted: Wanted,
    form: FloatFormat,
    matrix: Float64Array,
    usual: BoolArray,
    grid: Float64Array,
    rule: Followed | None,
) -> OutputVerdict:
    shape = (matrix.shape[0], matrix.shape[1])
    judged = expanded(usual, wanted.recipe, shape) & np.isfinite(matrix)
    scale, factor = expanded(grid, wanted.recipe, shape) * draws[0].whole, 1.0 if rule is None else rule.rule.factor
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotients = np.asarray(np.where(matrix == 0, matrix, matrix * factor / scale))
    values = [_numbers(draw, shape) for draw in draws]
    # Quotients by a power of two are exact.
    with np.errstate(invalid="ignore"):
        exact = (np.frexp(np.abs(scale))[0] == 0.5) & (rule is None or rule.rule.factor == 1)
    near = NEAR * ~exact
    follows = "" if rule is None else f"scales follow {rule.rule.name}, "
    reason = _lost_numbers(matrix, values[0], scale, form)
    metrics: dict[str, Metric] = {}
    if not reason and wanted.rounding == "stochastic":
        reason = _of_draws(values, quotients, judged, form, near)
    elif not reason:
        wrong = judged & ~right(values[0], quotients, form, saturate=wanted.saturate, near=near)
        metrics["mismatch"] = float(wrong.mean())
        if wrong.any():
            found = values[0]
            row, column = np.argwhere(wrong)[0]
            ways = others(quotients, form)
            expected = nearest(quotients, form, saturate=wanted.saturate)
            named = [name for name, way in ways.items() if alike(found, way)[judged].all()]
            what = f"elements {named[0]}" if named else "elements are not x / scale rounded to nearest even"
            reason = (
                f"{what}: {np.count_nonzero(wrong):,} of {wrong.size:,} are wrong; [{row}, {column}] is "
                f"{found[row, column]:.6g}, x / scale is {quotients[row, column]:.9g}, which rounds to "
                f"{expected[row, column]:.6g}"
            )
    metrics["clipped"] = float(np.mean(np.abs(values[0]) == form.max))
    metrics["flushed"] = float(np.mean((values[0] == 0) & (matrix != 0)))
    return _verdict("elements", draws[0].values, follows + reason if reason else "", metrics)


def _of_draws(
    values: Sequence[Float64Array], quotients: Float64Array, judged: BoolArray, form: FloatFormat, near: AnyArray
) -> str:
    below, _ = neighbours(quotients * (1 - np.sign(quotients) * near), form)
    _, above = neighbours(quotients * (1 + np.sign(quotients) * near), form)
    stray = judged & ~np.logical_and.reduce([(draw == below) | (draw == above) for draw in values])
    if stray.any():
        row, column = np.argwhere(stray)[0]
        return (
            f"elements are none of the two neighbours of x / scale: {np.count_nonzero(stray):,} of {stray.size:,}; "
            f"[{row}, {column}] lies between {below[row, column]:.6g} and {above[row, column]:.6g}"
        )
    beyond = judged & (np.abs(quotients) <= form.max)
    found = biased([draw[beyond] for draw in values], quotients[beyond], form)
    return f"elements are not rounded by chance: {found}" if found else ""


def _lost_numbers(matrix: Float64Array, found: Float64Array, scale: Float64Array, form: FloatFormat) -> str:
    """NaN must stay one, in the element or by its scale; an infinity may be one, NaN, or the largest number. Zeros must
    stay zeros, unless their block has NaN."""
    with np.errstate(invalid="ignore"):
        lost = np.isnan(found * scale)
    for gone, words in (
        (np.isnan(matrix) & ~lost, "NaN became"),
        (np.isinf(matrix) & ~lost & (np.abs(found) < form.max), "infinities became"),
        ((matrix == 0) & (found != 0) & np.isfinite(scale), "zeros became"),
    ):
        if gone.any():
            return f"{np.count_nonzero(gone):,} {words} other numbers, the first {_at(gone)}"
    return ""


def _at(places_: BoolArray) -> str:
    return str([int(place) for place in np.argwhere(places_)[0]])


def _verdict(name: str, array: AnyArray, reason: str, metrics: Mapping[str, Metric]) -> OutputVerdict:
    outcome: Outcome = "error" if reason else "pass"
    return OutputVerdict(name, array.shape, dtype_name(array.dtype), outcome, NAME, reason, metrics)
