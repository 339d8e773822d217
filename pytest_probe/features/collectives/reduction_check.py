"""Is what one rank received the operation on all ranks' inputs, within what the roundings between the ranks explain?

The scale of an element is the roundoff of its dtype times the largest number that may meet there, and, where that is
not enough, how far legitimate orders move it. A rank that is missing in a large sum in 16 bit moves no element by more
than that: what is left is compared with each rank's input as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from pytest_probe.model.collective import Reduction
from pytest_probe.model.verdict import Element, Metric
from pytest_probe.numerics.dtypes import (
    AnyArray,
    BoolArray,
    alike,
    float_format,
    is_floating,
    is_inexact,
    round_to,
    ulp,
    ulp_distance,
    widen,
)
from pytest_probe.numerics.noise_ratio import ELEMENTWISE_LARGEST_LIMIT, ELEMENTWISE_RMS_LIMIT, SMALL_SAMPLE

_Both: TypeAlias = Callable[[AnyArray, AnyArray], AnyArray]
# Rings begin anywhere: of many ranks so many beginnings are tried.
_STARTS = 8


def reference(terms: Sequence[AnyArray], reduction: Reduction) -> AnyArray:
    """The operation on all ranks' flat arrays of one shape, in float64; of integers in their own dtype."""
    wide = [each if each.dtype.kind in "iub" else widen(each) for each in terms]
    found = wide[0]
    with np.errstate(all="ignore"):
        for each in wide[1:]:
            found = _OPERATIONS[reduction](found, each)
        return found / len(terms) if reduction == "average" else found


_OPERATIONS: Mapping[Reduction, np.ufunc] = {
    "total": np.add,
    "average": np.add,
    "product": np.multiply,
    "largest": np.maximum,
    "least": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "exclusive or": np.bitwise_xor,
}


def orders(terms: Sequence[AnyArray], reduction: Reduction) -> Iterator[tuple[str, AnyArray]]:
    """What legitimate ways of adding (or multiplying) give in the terms' floating dtype, as float64, each with its
    name. A mean is divided before, by a reciprocal, or behind."""
    dtype = terms[0].dtype
    for name, compute in (("", dtype), ("float32 inside", np.dtype(np.float32))):
        if name and dtype.itemsize >= compute.itemsize:
            continue
        for divided in ("before", "multiplied", "behind") if reduction == "average" else ("",):
            given = _scaled(terms, compute, divided)
            for kind, found in _in(given, compute, reduction):
                if divided == "behind":
                    found = round_to(widen(found) / len(terms), compute)
                yield name or f"{kind} in {dtype.name}", widen(round_to(widen(found), dtype))


def _scaled(terms: Sequence[AnyArray], dtype: np.dtype, divided: str) -> list[AnyArray]:
    """Divided before by their number, or multiplied by its reciprocal in the dtype."""
    factor = 1.0
    if divided == "before":
        factor = 1 / len(terms)
    if divided == "multiplied":
        factor = float(round_to(np.asarray(1 / len(terms)), dtype))
    with np.errstate(all="ignore"):
        return [round_to(widen(each) * factor, dtype) for each in terms]


def _in(terms: Sequence[AnyArray], dtype: np.dtype, reduction: Reduction) -> Iterator[tuple[str, AnyArray]]:
    count = len(terms)

    def both(one: AnyArray, other: AnyArray) -> AnyArray:
        with np.errstate(all="ignore"):
            # The sum or product of two numbers of a narrower format, rounded twice, is rounded once.
            if dtype.itemsize >= 4:
                return np.asarray(_OPERATIONS[reduction](one, other))
            return round_to(_OPERATIONS[reduction](widen(one), widen(other)), dtype)

    yield "tree", _tree(terms, both, neighbours=True)
    if count > 2:
        yield "tree", _tree(terms, both, neighbours=False)
        step = max(1, count // _STARTS)
        for ring in (list(terms), list(reversed(terms))):
            for start in range(0, count, step):
                found = ring[start]
                for place in range(1, count):
                    found = both(found, ring[(start + place) % count])
                yield "ring", found


def _tree(terms: Sequence[AnyArray], both: _Both, *, neighbours: bool) -> AnyArray:
    """Neighbours first, or the ranks that are farthest apart."""
    left = list(terms)
    while len(left) > 1:
        half = (len(left) + 1) // 2
        ones, others = (left[::2], left[1::2]) if neighbours else (left[:half], left[half:])
        left = [*map(both, ones, others), *ones[len(others) :]]
    return left[0]


# The roundings of a sum are few, as those of an elementwise API are: its limits hold, in units of what orders explain.
_LARGEST, _RMS = ELEMENTWISE_LARGEST_LIMIT, ELEMENTWISE_RMS_LIMIT
# Ranks from which on the largest error grows.
_MANY = 16
# The share of a rank's input in what is left: -1 where it is missing, 1 where it counts twice. Beyond the half of that
# it is an error, where chance gives so much less than once in 10^20.
_SHARE, _CHANCE = 0.5, 10.0
# The factor of a sum, less 1, beyond which it is too large as a whole; parts that are looked at, and their least size.
_SCALED = 2.0**-9
_PARTS, _LEAST_PART = 16, 64
# Elements whose orders are tried, and elements that a name is looked for in.
_TRIED, _NAMED = 1 << 20, 1 << 16
# Sums in 16 bit lose what is small compared with them, which makes them smaller: an error in the direction in which no
# order moves an element gets this part of what the other direction gets.
_BACK = 2.0
# The exponent of float32's smallest normal number.
_FLUSHED = -126
_WORST = 5


class RankInputs(Struct, frozen=True):
    """All ranks' inputs for one result, flat and of one dtype, and what is made of them."""

    terms: Sequence[AnyArray]
    reduction: Reduction

    @property
    def dtype(self) -> np.dtype:
        return self.terms[0].dtype

    @property
    def exact(self) -> bool:
        """Has the operation one result?"""
        floats = is_inexact(self.dtype)
        return not floats or self.reduction in ("largest", "least")

    def at(self, places: AnyArray) -> RankInputs:
        return RankInputs([each[places] for each in self.terms], self.reduction)

    def reference(self) -> AnyArray:
        return reference(self.terms, self.reduction)


class RankVerdict(Struct, frozen=True):
    """What was found of one result: why it is wrong, "" where it is not; its numbers; the elements that are farthest
    off; the name of an order that gives these bits, "" where none was found."""

    reason: str = ""
    metrics: dict[str, Metric] = {}
    worst: tuple[Element, ...] = ()
    order: str = ""


def judge(actual: AnyArray, addends: RankInputs, *, named: bool = True) -> RankVerdict:
    """named: look for the order that gives these bits."""
    if not actual.size:
        return RankVerdict()
    expected = addends.reference()
    if addends.exact:
        return _exact(actual, expected)
    noise = _Noise.of(actual, expected, addends)
    reason = noise.reason() or _share_left(actual, expected, addends)
    order = "" if reason or not named else order_of(actual, addends)
    return RankVerdict(reason, noise.metrics(), _worst(actual, expected, noise.ratios) if reason else (), order)


def _exact(actual: AnyArray, expected: AnyArray) -> RankVerdict:
    """Where a NaN meets a number, kernels give the one or the other."""
    with np.errstate(invalid="ignore"):
        wrong = (widen(actual) != widen(expected)) & ~np.isnan(widen(expected))
    count = int(np.count_nonzero(wrong))
    if not count:
        return RankVerdict()
    first = int(np.argmax(wrong))
    values = f"{actual[first]}, not {expected[first]}"
    reason = f"{count:,} of {actual.size:,} elements differ, the first is {first}: {values}"
    return RankVerdict(reason, {"wrong": count}, _worst(actual, expected, wrong.astype(np.float64)))


class _Noise(Struct, frozen=True):
    ratios: AnyArray
    largest: float
    rms: float
    limit: float
    rms_limit: float
    wrong: BoolArray

    @classmethod
    def of(cls, actual: AnyArray, expected: AnyArray, addends: RankInputs) -> _Noise:
        wide, dtype = widen(actual), actual.dtype
        finite = np.isfinite(expected)
        with np.errstate(all="ignore"):
            excess = np.maximum(0.0, np.abs(wide - expected) - ulp(expected, dtype) / 2)
            scale = _rounded_once(expected, addends)
            overflows = np.abs(expected) > float_format(dtype).max
        strange = ~finite | ~np.isfinite(wide) | overflows
        excess[strange] = 0.0
        ratios = _ratios(excess, scale)
        wrong = strange & ~_alike(wide, expected, dtype)
        largest, rms = _limits(ratios, len(addends.terms))
        if wrong.any():
            # An order may overflow on its way as well.
            overflown = np.zeros(wide.shape, bool)
            for _, each in orders(addends.terms, addends.reduction):
                overflown |= ~np.isfinite(each)
            wrong &= ~(overflown & ~np.isfinite(wide) & np.isfinite(expected))
        elif not (ratios.max(initial=0.0) <= largest and _rms(ratios) <= rms):
            ratios = _by_orders(ratios, excess, scale, np.asarray(wide.real > expected.real), expected, addends)
            largest, rms = _limits(ratios, len(addends.terms))
        return cls(ratios, float(ratios.max(initial=0.0)), _rms(ratios), largest, rms, wrong)

    def reason(self) -> str:
        if self.wrong.any():
            first = int(np.argmax(self.wrong))
            count = int(np.count_nonzero(self.wrong))
            return f"{count:,} elements are not finite as the reference is, or the other way, the first is {first}"
        if self.largest > self.limit:
            return f"noise ratio {self.largest:.3g}, limit {self.limit:.3g}"
        return f"RMS of noise ratios {self.rms:.3g}, limit {self.rms_limit:.3g}" if self.rms > self.rms_limit else ""

    def metrics(self) -> dict[str, Metric]:
        return {
            "noise_ratio": self.largest,
            "noise_ratio_limit": self.limit,
            "noise_rms": self.rms,
            "noise_rms_limit": self.rms_limit,
        }


def _rounded_once(expected: AnyArray, addends: RankInputs) -> AnyArray:
    """The error of one rounding, of the largest partial result that is known to meet in an element. Two terms have
    none but the result, three have it without one of them."""
    form, terms = float_format(addends.dtype), addends.terms
    largest = np.abs(expected)
    if addends.reduction in ("total", "average") and len(terms) > 2:
        share = len(terms) if addends.reduction == "average" else 1
        for each in terms:
            term = widen(each) / share
            largest = np.fmax(largest, np.abs(expected - term))
            largest = np.fmax(largest, np.abs(term)) if len(terms) > 3 else largest
    # Devices flush what is smaller than float32's normal numbers; float16's gradients live among its subnormal ones.
    least = 2.0**form.min_exponent if form.min_exponent <= _FLUSHED else form.smallest / 2
    return np.maximum(form.roundoff * np.minimum(largest, form.max), least)


def _ratios(excess: AnyArray, scale: AnyArray) -> AnyArray:
    with np.errstate(all="ignore"):
        return np.where(excess > 0, excess / scale, 0.0)


def _rms(ratios: AnyArray) -> float:
    return float(np.sqrt(np.mean(np.square(ratios)))) if ratios.size else 0.0


def _limits(ratios: AnyArray, count: int) -> tuple[float, float]:
    """Each of the count - 1 roundings may lose a unit of the scale, and twice that where it cuts; of many the errors
    grow with the root of their number."""
    growth = max(1.0, count / _MANY) ** 0.5
    return min(_LARGEST * growth, 2.0 * (count - 1) + 1), _RMS * (1 + SMALL_SAMPLE / max(1, ratios.size) ** 0.5)


def _by_orders(
    ratios: AnyArray, excess: AnyArray, scale: AnyArray, above: BoolArray, expected: AnyArray, addends: RankInputs
) -> AnyArray:
    """The ratios by how far legitimate orders move each element, in the direction of its error: of many elements the
    farthest off and a sample."""
    places = np.arange(ratios.size)
    if ratios.size > _TRIED:
        worst = np.argpartition(ratios, -_TRIED // 2)[-_TRIED // 2 :]
        places = np.unique(np.concatenate([worst, np.arange(0, ratios.size, -(-ratios.size * 2 // _TRIED))]))
    up, down = np.zeros(places.size), np.zeros(places.size)
    with np.errstate(all="ignore"):
        for _, found in orders(addends.at(places).terms, addends.reduction):
            moved = np.where(np.isfinite(found), found - expected[places], 0.0)
            if np.iscomplexobj(moved):
                up = down = np.maximum(up, np.abs(moved))
            else:
                up, down = np.maximum(up, moved), np.maximum(down, -moved)
    there, back = np.where(above[places], up, down), np.where(above[places], down, up)
    return _ratios(excess[places], np.maximum(scale[places], np.maximum(there, back / _BACK)))


def _alike(wide: AnyArray, expected: AnyArray, dtype: np.dtype) -> BoolArray:
    """Where both are NaN, or overflow alike: inf, or the largest number."""
    form = float_format(dtype)
    beyond = np.abs(expected) > form.max - ulp(np.full((), form.max), dtype) / 2
    same = np.isinf(expected) & (wide == expected)
    over = beyond & np.isfinite(expected) & (np.sign(wide) == np.sign(expected)) & (np.abs(wide) >= form.max)
    return np.asarray((np.isnan(wide) & np.isnan(expected)) | same | over)


def shares(left: AnyArray, terms: Sequence[AnyArray]) -> AnyArray:
    """How much of each term is in what is left, by least squares of each alone."""
    found = []
    for each in terms:
        power = float(np.vdot(each, each).real)
        found.append(float(np.vdot(each, left).real) / power if power else 0.0)
    return np.asarray(found)


def _share_left(actual: AnyArray, expected: AnyArray, addends: RankInputs) -> str:
    """A rank whose input is missing in the sum, or counts twice, or a sum that is too large by a factor, where no
    element alone shows it: in the whole, and in each of its parts, which a ring adds up apart."""
    count = len(addends.terms)
    if addends.reduction not in ("total", "average") or count < 3:
        return ""
    left, factor = _left(widen(actual), expected), count if addends.reduction == "average" else 1
    terms = [np.where(np.isfinite(each), widen(each), 0.0) / factor for each in addends.terms]
    terms.append(np.where(np.isfinite(expected), expected, 0.0))
    least = np.asarray([_SHARE] * count + [_SCALED])
    width = -(-left.size // _PARTS)
    starts = range(0, left.size, width) if width >= _LEAST_PART else ()
    for part in (slice(None), *(slice(start, start + width) for start in starts)):
        inside = [each[part] for each in terms]
        found = shares(left[part], inside)
        sizes = np.asarray([float(np.linalg.norm(each)) for each in inside])
        chance = float(np.linalg.norm(left[part])) / np.maximum(sizes, 1e-300) / left[part].size ** 0.5
        suspect = np.abs(found) > np.maximum(least, _CHANCE * chance)
        if not suspect.any():
            continue
        small = RankInputs([each[part] for each in addends.terms], addends.reduction)
        moved = (_left(each, expected[part]) for _, each in orders(small.terms, addends.reduction))
        suspect &= np.abs(found) > least + 2 * np.max([np.abs(shares(each, inside)) for each in moved], axis=0)
        if suspect.any():
            place = int(np.argmax(suspect))
            if place == count:
                return f"the sum is {1 + found[place]:.5g} times what it should be"
            return f"the input of the group's rank {place} is {1 + found[place]:.3g} times in the sum"
    return ""


def _left(wide: AnyArray, expected: AnyArray) -> AnyArray:
    with np.errstate(all="ignore"):
        left = wide - expected
    return np.where(np.isfinite(left), left, 0.0)


def order_of(actual: AnyArray, addends: RankInputs) -> str:
    """The order that gives these bits, "" where none does, or where all do. Parts of a ring begin at other ranks."""
    if len(addends.terms) < 3 or addends.exact:
        return ""
    places = np.arange(0, actual.size, -(-actual.size // _NAMED))
    wide = widen(actual[places])
    whole: dict[str, bool] = {}
    ring: dict[str, BoolArray] = {}
    for name, each in orders(addends.at(places).terms, addends.reduction):
        same = alike(each, wide)
        whole[name] = whole.get(name, False) or bool(same.all())
        if name.startswith("ring"):
            ring[name] = ring.get(name, np.zeros(wide.shape, bool)) | same
    whole |= {name: bool(same.all()) for name, same in ring.items()}
    found = [name for name, same in whole.items() if same]
    return "" if len(found) == len(whole) else next(iter(found), "")


def is_explained(actual: AnyArray, addends: RankInputs) -> bool:
    """Does an order of the addends give each of these elements?"""
    wide, found = widen(actual), np.zeros(actual.shape, bool)
    for _, each in orders(addends.terms, addends.reduction):
        found |= alike(each, wide)
    return bool(found.all())


def _worst(actual: AnyArray, expected: AnyArray, ratios: AnyArray) -> tuple[Element, ...]:
    if ratios.size != actual.size:
        with np.errstate(all="ignore"):
            ratios = np.nan_to_num(np.abs(widen(actual) - expected), nan=np.inf)
    places = np.argsort(-ratios, kind="stable")[:_WORST]
    return tuple(element(int(place), actual, expected, float(ratios[place])) for place in places if ratios[place] > 0)


def element(place: int, actual: AnyArray, expected: AnyArray, ratio: float = float("nan")) -> Element:
    """One element of both, with their distance in units in the last place."""
    one, other = actual[place], expected[place]
    units = float(ulp_distance(one, other, actual.dtype)) if is_floating(actual.dtype) else float("nan")
    if np.iscomplexobj(actual):
        return Element((place,), str(one), str(other), units, ratio)
    return Element((place,), float(one), float(other), units, ratio)
