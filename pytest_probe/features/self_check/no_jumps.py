"""Does an answer jump where its arguments move by a roundoff?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.call_again import Call
from pytest_probe.check.perturbed import perturbed
from pytest_probe.inputs.draws import RandomStreams
from pytest_probe.model.run import Leaf
from pytest_probe.model.verdict import Element, Metric, OutputVerdict
from pytest_probe.numerics.allowed_scale import root_mean_square
from pytest_probe.numerics.dtypes import (
    AnyArray,
    BoolArray,
    float_format,
    is_complex,
    is_floating,
    is_inexact,
    ulp,
    widen,
)
from pytest_probe.numerics.statistics import stable_order
from pytest_probe.options import SELF
from pytest_probe.standards.noise.stages import FLOOR_OF_UNMOVED
from pytest_probe.standards.tables import classes_of, details
from pytest_probe.user_errors import allowing_refusal

# Roundoffs of each argument's own dtype: a smaller step rounds back.
STEPS = (1, 2, 4)
# A step moves an element by more than so many times what the largest does to elements like it.
JUMP = 64.0
# Elements like it, on either side, in the order of their arguments.
_NEIGHBOURS = 8
# Of the largest number of a dtype: beyond that a step may lead to an infinity.
_NEAR_INFINITY = 1 / 8
# Functions with steps, and those whose numbers are drawn.
WITH_STEPS = frozenset(
    "random uninitialised discrete selection ties kinks factorisation factory own_dtype writes nearest exact".split()
)
_WORST = 5
# Elements whose neighbours are looked at together.
_PART = 1 << 15
_STREAMS = RandomStreams()

Moved = tuple[dict[str, Leaf], dict[str, AnyArray]]


class Jump(Struct, frozen=True):
    """Elements of an output that jump by a step, and what that gives."""

    step: int
    found: AnyArray
    where: BoolArray


def steps(call: Call, seed: int, *, has_reference: bool) -> OutputVerdict:
    """The verdict on a call. has_reference: the reference is none of the call's own kernels, and tells whether the
    function itself jumps. Raises what the device raises."""
    classes = classes_of(call.replay.reference.candidate.name)
    if not WITH_STEPS.isdisjoint(classes):
        return _verdict("skip", "the function has steps of its own")
    bound = call.replay.reference.bound
    labels = frozenset(bound.paths[name] for name in details(classes, "labels") if name in bound.paths)
    base = {name: value for name, value in call.base.items() if is_inexact(value.dtype)}
    if not base:
        return _verdict("skip", "the call gives no floating numbers")
    moved = {step: _moved(call, seed, step, labels) for step in STEPS}
    results = {step: dict(call.results(*pair)) for step, pair in moved.items()}
    elements = sum(value.size for value in base.values())
    for name, value in base.items():
        found = _worst_jump(call, value, {step: each[name] for step, each in results.items() if name in each})
        if found is not None and has_reference:
            found = _without_the_functions_own(call, name, value, found, moved[found.step])
        if found is not None:
            return _jumped(name, value, found)
    return _verdict("pass", "", {"runs": 1 + len(STEPS), "elements": elements})


def _verdict(outcome: str, reason: str, metrics: Mapping[str, Metric] | None = None) -> OutputVerdict:
    return OutputVerdict("no-jumps", (), "", outcome, SELF, reason, metrics or {})  # type: ignore[arg-type]


def _moved(call: Call, seed: int, step: int, labels: frozenset[str]) -> Moved:
    """The arguments, and incoming gradients, times (1 + step u xi), kept inside their range; the second of the steps
    goes in the direction opposite to that of the others, so that edges on either side are met."""
    key = f"{call.case.record.name}\0{seed}\0"

    def moved(name: str, array: AnyArray) -> AnyArray:
        dtype = array.real.dtype if is_complex(array.dtype) else array.dtype
        if not is_floating(dtype):
            return array
        generator, reverse = _STREAMS.at(f"{key}{name}"), step == STEPS[1]

        def draw(values: AnyArray) -> AnyArray:
            return abs(reverse - generator.random(values.shape))

        return perturbed(array, draw, step * float_format(dtype).roundoff, inward=False, dtype="")

    leaves = {
        name: leaf if name in labels else replace(leaf, array=moved(name, leaf.array))
        for name, leaf in call.leaves.items()
    }
    return leaves, {name: moved(f"grad.{name}", array) for name, array in call.replay.incoming.items()}


def _worst_jump(call: Call, value: AnyArray, found: Mapping[int, AnyArray]) -> Jump | None:
    """Of the steps the one that moves an element farthest; None where none moves one too far."""
    if any(each.shape != value.shape for each in found.values()) or len(found) < len(STEPS):
        return None
    wide = widen(value)
    room = np.isfinite(wide) & (np.abs(wide) < _NEAR_INFINITY * _format(value).max)
    # How far elements moved; inf where a number became none, though it is far from the largest of its dtype.
    distances = {}
    for step, each in found.items():
        moved = widen(each)
        with np.errstate(invalid="ignore", over="ignore"):
            distance = np.abs(moved - wide)
        lost = np.where(room & ~np.isfinite(moved), np.inf, 0.0)
        distances[step] = np.where(np.isfinite(distance), distance, lost)
    # An ulp of each element, or what rounding inside leaves of one that is zero.
    finite = np.where(np.isfinite(wide), wide, 0.0)
    still = FLOOR_OF_UNMOVED * _format(value).roundoff * root_mean_square(np.abs(finite))
    least = np.maximum(ulp(finite, _real(value)), still)
    far = np.logical_or.reduce([distance > JUMP * least for distance in distances.values()])
    if not far.any():
        return None
    allowed = np.full(wide.shape, np.inf)
    allowed[far] = JUMP * np.maximum(least[far], _usual(call, wide, distances[STEPS[-1]], far))
    with np.errstate(invalid="ignore", over="ignore"):
        sizes = {step: np.nan_to_num(each / allowed, nan=0.0, posinf=np.inf) for step, each in distances.items()}
    beyond = {step: np.asarray(np.isinf(distances[step]) | (sizes[step] > 1)) for step in found}
    jumps = (Jump(step, each, beyond[step]) for step, each in found.items())
    return max((jump for jump in jumps if jump.where.any()), key=lambda jump: sizes[jump.step].max(), default=None)


def _usual(call: Call, wide: AnyArray, distance: AnyArray, which: BoolArray) -> AnyArray:
    """What a step does to the neighbours of some elements, by itself and as a share of the element."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        share = np.where(wide == 0, 0.0, distance / np.abs(wide))
    # Elements are alike by their argument where each has one of its own, else by themselves.
    first = next(iter(call.leaves.values())).array
    elementwise = "elementwise" in classes_of(call.replay.reference.candidate.name)
    ranks = stable_order(np.abs(widen(first) if elementwise and first.shape == wide.shape else wide))
    own = np.flatnonzero(which.reshape(-1)[ranks])
    near = [_of_neighbours(each.reshape(-1)[ranks], own) for each in (distance, share)]
    found = np.zeros(wide.size)
    found[ranks[own]] = np.maximum(near[0], np.abs(wide.reshape(-1)[ranks[own]]) * near[1])
    return np.asarray(found.reshape(wide.shape)[which])


def _of_neighbours(values: AnyArray, places: AnyArray) -> AnyArray:
    """The median of the numbers around each of these places, itself left out; NaN and infinities count as zero."""
    finite = np.where(np.isfinite(values), values, 0.0)
    width = min(2 * _NEIGHBOURS + 1, values.size)
    if width == 1:
        return np.zeros(places.size)
    found = []
    for part in (places[start : start + _PART] for start in range(0, places.size, _PART)):
        first = np.clip(part - _NEIGHBOURS, 0, values.size - width)
        around = first[:, None] + np.arange(width)
        found.append(np.nanmedian(np.where(around == part[:, None], np.nan, finite[around]), axis=1))
    return np.concatenate(found)


def _without_the_functions_own(call: Call, name: str, value: AnyArray, jump: Jump, moved: Moved) -> Jump | None:
    """The jump without elements that the reference moves as far, or has no number for."""
    with allowing_refusal():
        here, there = (call.expected(*pair).get(name) for pair in ((call.leaves, call.replay.incoming), moved))
        if here is not None and there is not None and here.shape == there.shape == value.shape:
            with np.errstate(invalid="ignore"):
                function = np.abs(there - here) >= np.abs(widen(jump.found) - widen(value)) / 2
            function |= ~(np.abs(there) < _NEAR_INFINITY * _format(value).max)
            where = jump.where & ~function
            return replace(jump, where=where) if where.any() else None
    return jump


def _jumped(name: str, value: AnyArray, jump: Jump) -> OutputVerdict:
    """The elements that jump farthest: what the moved arguments give, and what the call's own do."""
    count = int(np.count_nonzero(jump.where))
    lost = int(np.count_nonzero(jump.where & ~np.isfinite(widen(jump.found))))
    words = f"{count:,} of {value.size:,} elements of {name} jump where arguments move by {jump.step} roundoffs"
    words += f", {lost:,} of them to NaN or inf" if lost else ""
    metrics: dict[str, Metric] = {"jumps": count, "elements": value.size, "step": jump.step}
    distance = np.where(jump.where, np.abs(widen(jump.found) - widen(value)), -1.0)
    worst = []
    for place in np.argsort(-np.nan_to_num(distance, nan=np.inf), axis=None)[: min(_WORST, count)]:
        index = tuple(map(int, np.unravel_index(place, value.shape)))
        one, other = (str(each) if np.iscomplexobj(each) else float(each) for each in (jump.found[index], value[index]))
        unit = float(ulp(widen(value[index]), _real(value)))
        worst.append(Element(index, one, other, float(distance[index]) / unit, float("nan")))
    return OutputVerdict("no-jumps", value.shape, value.dtype.name, "warning", SELF, words, metrics, tuple(worst))


def _real(value: AnyArray) -> np.dtype[Any]:
    return value.real.dtype if is_complex(value.dtype) else value.dtype


def _format(value: AnyArray) -> Any:
    return float_format(_real(value))
