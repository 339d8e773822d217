"""Which rule the scales of a quantiser follow.

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

from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct

from pytest_probe.numerics.dtypes import BoolArray, Float64Array, FloatFormat, float_format, round_to, widen

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
