"""What the report of a failing assert gets; how far the tolerances of passing ones are from what was needed, in the
summary and as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.features.asserts.explain import cause_by_check, explain, held_dtype, replacement
from pytest_probe.features.asserts.failed import FailedAssert
from pytest_probe.features.asserts.measured import FACTOR, one_ulp, tolerance
from pytest_probe.model.verdict import Diagnosis
from pytest_probe.numerics.arrays import contiguous
from pytest_probe.numerics.dtypes import AnyArray, Float64Array, alike, is_inexact, widen
from pytest_probe.reports.terminal import count, element_lines, shape_text, wrap
from pytest_probe.standards.diagnosis.failed_output import is_confined

# Elements that are looked at. A diagnosis takes seconds of four million, and makes some ten copies of them in float64.
SAMPLE = 1 << 20
# Lists inside lists of tensors: deeper ones are no results of a function.
_DEPTH = 8


def section(failed: FailedAssert) -> list[str]:
    """Its lines, of the first tensor that is not as expected; none where the sides are no tensors. Raises what a
    framework raises that cannot give its numbers."""
    pairs = list(_pairs(failed.actual, failed.expected))
    # Nothing is beyond the tolerance where NaN are compared, or where a sample has missed it.
    found = (_lines(*pair, failed, strict=strict) for strict in (True, False) for pair in pairs)
    lines = next(filter(None, found), [])
    further = replacement(failed) if lines else []
    if further:
        lines.append("in place of the assert, with the fixture `probe` and without a tolerance:")
    return lines + [f"    {line}" for line in further]


def _pairs(actual: Any, expected: Any, path: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any, Any]]:
    """Both sides of each compared tensor, and where it stands in them, "['weight']"."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping) and depth:
        for key in actual:
            if key in expected:
                yield from _pairs(actual[key], expected[key], f"{path}[{key!r}]", depth - 1)
    elif isinstance(actual, (list, tuple)) and isinstance(expected, (list, tuple)) and depth:
        if not any(hasattr(each, "shape") or isinstance(each, (list, tuple, Mapping)) for each in (*actual, *expected)):
            yield path, np.asarray(actual), np.asarray(expected)
            return
        for place, (one, other) in enumerate(zip(actual, expected, strict=False)):
            yield from _pairs(one, other, f"{path}[{place}]", depth - 1)
    elif hasattr(actual, "shape") or hasattr(expected, "shape"):
        yield path, actual, expected


def _lines(path: str, left: Any, right: Any, failed: FailedAssert, *, strict: bool) -> list[str]:
    """Of one tensor; none where it is as expected, or holds no numbers. strict: within the tolerance is as expected."""
    shapes = [tuple(getattr(side, "shape", ())) for side in (left, right)]
    step, (actual, expected) = _arrays((left, right), shapes)
    sides = []
    for name, shape, side in zip(("actual", "expected"), shapes, (actual, expected), strict=True):
        if not side.size or not (side.dtype.kind in "biufc" or is_inexact(side.dtype)):
            return []
        held = held_dtype(side)
        numbers = "" if held == side.dtype else f" (of {held.name} numbers)"
        sides.append(f"{name} {shape_text(shape)} {side.dtype.name}{numbers}")
    head = wrap(f"{failed.name}{path}: {' and '.join(sides)}")
    if shapes[0] != shapes[1] and () not in shapes and failed.name != "allclose":
        return [*head, "  the shapes differ: nothing more is compared"]
    actual, expected = np.broadcast_arrays(actual, expected)
    rtol, atol = tolerance(failed.tolerance, [side.dtype.name for side in (actual, expected)])
    # By how many times the tolerance each element is off: 0 where both are alike, NaN being like NaN, inf where the
    # tolerance is 0 or just one is NaN or inf.
    one, other = widen(actual), widen(expected)
    with np.errstate(all="ignore"):
        off, allowed = np.abs(one - other), atol + rtol * np.abs(other)
        times = np.where(np.isnan(off) & ~alike(one, other), np.inf, np.where(off > 0, off / allowed, 0.0))
    same_dtype = actual.dtype == expected.dtype and shapes[0] == shapes[1]
    if same_dtype and not (times > 1 if strict else times > 0).any():
        nan = 0 if strict else np.count_nonzero(np.isnan(widen(actual)))
        if nan:
            return [*head, f"  NaN: {nan:,} on both sides, equal with equal_nan=True alone"]
        return [] if strict or step[1] < 2 else [*head, *_sampled(step), "  no element of the sample differs"]
    what, sizes, found = explain(contiguous(actual), contiguous(expected))
    # The worst elements, by their places in the whole tensor.
    (dim, every), worst = step, []
    for element in found:
        place = list(element.index)
        if every > 1:
            place[dim] = (shapes[0][dim] - 1) % every + every * place[dim]
        worst.append(replace(element, index=tuple(place)))
    if what is None:
        return [*head, *_sampled(step), "  all numbers are equal: dtypes, shapes, devices or layouts differ"]
    cause = (cause_by_check(failed) if not path else "") or what.cause or "nothing known: no single cause explains it"
    lines = _found(what, cause, times, f"rtol {rtol:.3g}, atol {atol:.3g}")
    return [*head, *_sampled(step), *lines, *(f"  {line}" for line in sizes), *element_lines(worst)]


def _arrays(pair: tuple[Any, Any], shapes: Sequence[tuple[int, ...]]) -> tuple[tuple[int, int], Sequence[AnyArray]]:
    """Both sides as arrays; of large ones every n-th index of the longest dimension, the last one among them. Which
    dimension that is, and n."""
    shape = max(shapes, key=lambda each: (len(each), each))
    size = int(np.prod(shape, dtype=object)) if shape else 1
    if size <= SAMPLE or any(each != shape for each in shapes):
        return (0, 1), [frameworks.array_of(side) for side in pair]
    dim = int(np.argmax(shape))
    # Odd, so that it meets every place of what repeats every 2, 4, ..., 128.
    step = min(-(-size // SAMPLE) | 1, shape[dim])
    chosen = (*(slice(None),) * dim, slice((shape[dim] - 1) % step, None, step))
    return (dim, step), [frameworks.array_of(side[chosen]) for side in pair]


def _sampled(step: tuple[int, int]) -> Iterator[str]:
    if step[1] > 1:
        yield from wrap(f"a sample: 1 of {step[1]} indices of dim {step[0]}; places are places in the sample", "", "  ")


def _found(what: Diagnosis, cause: str, times: Float64Array, tolerance: str) -> Iterator[str]:
    """What the difference looks like, where it is, and how much of it the tolerance does not allow."""
    yield from wrap(f"looks like: {cause}", "    ", "  ")
    if is_confined(what.where) and what.wrong < what.size:
        yield from wrap(f"where: {what.where}; {what.wrong:,} of {count(what.size, 'element')}", "    ", "  ")
    beyond = int(np.count_nonzero(times > 1))
    by = f", by up to {times.max():.3g} times" if np.isfinite(times.max()) and beyond else ""
    yield f"  beyond {tolerance}: {beyond:,} of {count(what.size, 'element')}{by}"
    for name, (one, other) in what.not_finite.items():
        yield f"  {name}: {one:,} in actual, {other:,} in expected"


# Tests that the summary names; the file has all.
_TESTS = 20


class Tests:
    """The rows of all tests, those of one test with other parameters together."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, float, float, str], list[float]] = {}

    def add(self, nodeid: str, rows: Iterable[Sequence[Any]]) -> None:
        for name, rtol, atol, dtype, number, used, zeros, factor in rows:
            row = self._rows.setdefault((nodeid.partition("[")[0], name, rtol, atol, dtype), [0, 0.0, 0, 0])
            row[:] = row[0] + number, max(row[1], used), row[2] + zeros, row[3] + factor

    @property
    def number(self) -> int:
        """Of asserts."""
        return sum(int(row[0]) for row in self._rows.values())

    def found(self) -> Iterator[dict[str, Any]]:
        """One object for each test, function, tolerance and dtype, the least used tolerance first."""
        for (test, name, rtol, atol, dtype), row in sorted(self._rows.items(), key=lambda each: (each[1][1], each[0])):
            number, used, zeros, factor = row
            found = {"id": test, "function": name, "dtype": dtype, "asserts": int(number), "rtol": rtol, "atol": atol}
            if rtol or atol:
                found |= {"used": used, "needed_rtol": rtol * used, "needed_atol": atol * used}
                found |= {"pass_zeros": int(zeros), "pass_factor": int(factor), "factor": FACTOR}
            yield found | ({"ulp": one_ulp(dtype)} if dtype else {})

    def json_lines(self) -> bytes:
        return "".join(f"{json.dumps(found)}\n" for found in self.found()).encode()

    def lines(self) -> Iterator[str]:
        """Of those with a tolerance."""
        found = [each for each in self.found() if "used" in each]
        tests = len({key[0] for key in self._rows})
        asserts = count(self.number, "passing assert")
        yield f"{asserts} in {count(tests, 'test function')}; what their tolerances need:"
        for each in found[:_TESTS]:
            names = [name for name in ("rtol", "atol") if each[name]]
            needed = (f"{name} {each[name]:.3g} given, {each[f'needed_{name}']:.2g} needed" for name in names)
            many = f"{'over' if each['asserts'] > 1 else 'in'} {count(each['asserts'], 'assert')}"
            ulp = f"; one {each['dtype']} ulp is {each['ulp']:.2g}" if each["dtype"] else ""
            yield f"{each['id']}: {' and '.join(needed)} {many}{ulp}"
            factor = f"a factor of {each['factor']:g}"
            for name, words in (("pass_zeros", "an output of zeros"), ("pass_factor", factor)):
                if each[name]:
                    some = "" if each[name] == each["asserts"] else f" in {each[name]:,} of them"
                    yield f"  would pass {words}{some}"
        if len(found) > _TESTS:
            yield f"and {len(found) - _TESTS:,} more; --probe-out=DIR writes all into asserts.jsonl"
