"""The reference with an argument changed: forgotten, cut short, swapped, in another order, another number."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec import Struct

from pytest_probe.model.comparison import INCOMING
from pytest_probe.numerics.dtypes import (
    AnyArray,
    BoolArray,
    Float64Array,
    is_complex,
    is_floating,
    numpy_dtype,
    round_to,
    widen,
)
from pytest_probe.standards.diagnosis.failed_output import NEARLY_ALL, Cause, FailedOutput, Family
from pytest_probe.standards.tables import details

# What frameworks and models use for eps, 1e-3 to 1e-12, and an eps that was forgotten.
_EPS_VALUES = (0.0, 1e-3, 1e-5, 1e-6, 1e-8, 1e-12)
_SMALL = 1e-2
# Elements of a tile of a kernel's loop; pieces of a dimension that are tried one by one.
_TILES = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_PIECES = 4
# Bits of a cut operand, the leading one among them: of bfloat16 to one less than float32's.
_BITS = range(8, 24)
_NARROW = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
# Runs of the reference for one output, and elements of it beyond which none is made; where a run takes long, as many as
# give so many elements in all.
_RUNS, _LARGEST, _ELEMENTS = 400, 1 << 20, 1 << 24

# Of the errors' size: what moves the output by less explains none of it.
_TOO_LITTLE = 0.25

_Tensors: TypeAlias = Mapping[str, AnyArray]


class _Change(Struct, frozen=True):
    """Other values of some arguments, and what that is called. lost: the values were left out, and may as well have
    been taken twice. series: changes of one name move the output less and less. short: where the output may be too
    short, as the arguments are."""

    family: Family
    description: str
    values: Mapping[str, Any]
    lost: bool = False
    series: str = ""
    short: Literal["", "start", "end"] = ""


def changed_argument(failed: FailedOutput) -> Cause | None:
    """The output is what the reference gives for other arguments. Likelier changes come first."""
    if not failed.whole or failed.wrong.size > _LARGEST:
        return None
    comparison, paths = failed.comparison, failed.comparison.call.paths
    runs = min(_RUNS, _ELEMENTS // failed.wrong.size)
    ended: set[str] = set()
    for change in itertools.islice(changes(failed), runs):
        if change.series in ended or not _may_explain(failed, change):
            continue
        found = comparison.evidence.with_arguments({paths.get(n, n): value for n, value in change.values.items()})
        found = found if found is None or not change.short else _filled(found, failed.wrong.shape, change.short)
        if found is None or found.shape != failed.wrong.shape or is_complex(found.dtype):
            continue
        values = widen(found).astype(np.float64)
        if failed.explained(values) and (failed.floating or failed.by_chance(values) < 0.5):
            return Cause(change.family, change.description.replace(INCOMING, "the gradient of "))
        if change.lost and failed.explained(2 * failed.expected - values):
            words = change.description.replace("as without", "as with twice")
            return Cause(change.family, words.replace(INCOMING, "the gradient of "))
        if change.series and _moves_little(failed, values):
            ended.add(change.series)
    return None


def _may_explain(failed: FailedOutput, change: _Change) -> bool:
    """Does the change concern nearly all that is wrong? What works element by element gives other numbers only where
    its arguments are others."""
    comparison, shape = failed.comparison, failed.wrong.shape
    incoming = comparison.case.incoming.values()
    alike = "elementwise" in comparison.classes and all(value.shape == shape for value in incoming)
    moved: BoolArray = np.zeros(shape, dtype=bool)
    for name, value in change.values.items():
        given = comparison.call.given.get(name)
        if not isinstance(given, np.ndarray) or not isinstance(value, np.ndarray):
            return True
        if value.shape == given.shape and value.dtype == given.dtype and np.array_equal(value, given):
            continue
        if not alike or given.shape != shape:
            return True
        if value.shape != shape:
            return False
        moved = moved | (widen(value) != widen(given))
    return bool(np.count_nonzero(failed.wrong & moved) >= NEARLY_ALL * failed.count)


def _moves_little(failed: FailedOutput, values: Float64Array) -> bool:
    """Is what the change does, in the middle one of the wrong elements, far below the error?"""
    wrong = failed.wrong
    with np.errstate(invalid="ignore", over="ignore"):
        moved, error = (np.abs(side[wrong] - failed.expected[wrong]) for side in (values, failed.actual))
    return bool(np.median(moved) < _TOO_LITTLE * np.median(error))


def changes(failed: FailedOutput) -> Iterator[_Change]:
    call, case = failed.comparison.call, failed.comparison.case
    own = {name: value for name, value in call.given.items() if isinstance(value, np.ndarray) and value.size}
    tensors = {**own, **{f"{INCOMING}{name}": value for name, value in case.incoming.items() if value.size}}
    # A text that chooses among formulas.
    for name in details(failed.comparison.classes, "approximate"):
        given = call.given.get(name)
        place = name if name in call.paths else f"kwargs.{name}"
        instead = "the default" if given is None else repr(given)
        for text in ("none", "tanh"):
            yield _Change("argument", f"as with {name} = {text!r} instead of {instead}", {place: text})
    for name, value in call.given.items():
        yield from _numbers(name, value)
    for name, value in case.incoming.items():
        yield _Change("argument", "as with incoming gradients of 1", {f"{INCOMING}{name}": np.ones_like(value)})
    # Rounded arguments, and numbers such as eps, may come to one factor; no tensor does that is left out or moved.
    kinds = (_forgotten, _overwritten, _swapped, _rounded, _moved, _scaled, _cut, _shortened, _truncated)
    for kind in (_rounded, _truncated) if failed.uniform else kinds:
        # An incoming gradient gets shorter with no argument.
        yield from kind(own if kind is _shortened else tensors)


def _numbers(name: str, value: Any) -> Iterator[_Change]:
    if isinstance(value, bool):
        yield _Change("argument", f"as with {name} = {not value} instead of {value}", {name: not value})
        return
    if not isinstance(value, (int, float)):
        return
    others: tuple[float, ...]
    if isinstance(value, int):
        others = (value + 1, value - 1, 0, 1, -value)
    elif abs(value) <= _SMALL:
        others = (*_EPS_VALUES, -value)
    else:
        others = (0.0, 1.0, -value, 1 / value, value * value, 1 - value, abs(value) ** 0.5, 2 * value, value / 2)
    for other in dict.fromkeys(others):
        if other != value:
            yield _Change("argument", f"as with {name} = {other:g} instead of {value:g}", {name: other})


def _forgotten(tensors: _Tensors) -> Iterator[_Change]:
    for name, value in tensors.items():
        yield _Change("term", f"as with zeros for {name}", {name: np.zeros_like(value)})
        if value.dtype.kind == "b":
            yield _Change("argument", f"as with the opposite of {name}", {name: ~value})
            yield _Change("argument", f"as with True for {name}", {name: np.ones_like(value)})
        elif is_floating(value.dtype):
            yield _Change("argument", f"as with ones for {name}", {name: np.ones_like(value)})
            yield _Change("argument", f"as with -{name}", {name: -value})
            for step in (1, -1):
                shifted = (widen(value) + step).astype(value.dtype)
                yield _Change("argument", f"as with {name} {'+' if step > 0 else '-'} 1", {name: shifted})
        elif value.dtype.kind in "iu":
            yield _Change("argument", f"as with {name} + 1", {name: value + value.dtype.type(1)})
            yield _Change("argument", f"as with {name} - 1", {name: value - value.dtype.type(1)})
            round_again = np.where(value == value.max(), value.dtype.type(0), value + value.dtype.type(1))
            yield _Change("moved", f"as with {name} + 1, and 0 for the largest", {name: round_again})


def _overwritten(tensors: _Tensors) -> Iterator[_Change]:
    """What is added up at one index, of which only the last is left, as where threads do not wait for one another."""
    for index, places in tensors.items():
        for name, value in tensors.items() if places.dtype.kind in "iu" and places.ndim else ():
            if not is_floating(value.dtype) or value.shape[: places.ndim] != places.shape:
                continue
            for axis in (None, *(range(places.ndim) if places.ndim > 1 else ())):
                last = _is_last(places, axis).reshape(*places.shape, *(1,) * (value.ndim - places.ndim))
                words = f"as with the last of equal {index} alone{'' if axis is None else f' along dim {axis}'}"
                yield _Change(
                    "term", f"{words}: the others of {name} are overwritten", {name: np.where(last, value, 0)}
                )


def _is_last(places: AnyArray, axis: int | None) -> AnyArray:
    """Which places are the last of those with one index, of all or along a dimension."""
    others = [np.arange(1 if axis in (None, each) else size) for each, size in enumerate(places.shape)]
    apart = np.ravel_multi_index(np.ix_(*others), tuple(map(len, others)))
    keys = (places.astype(np.int64) * apart.size + apart).reshape(-1)
    found = np.zeros(keys.size, dtype=bool)
    found[keys.size - 1 - np.unique(keys[::-1], return_index=True)[1]] = True
    return found.reshape(places.shape)


def _swapped(tensors: _Tensors) -> Iterator[_Change]:
    for (first, left), (second, right) in itertools.combinations(tensors.items(), 2):
        if left.shape == right.shape and left.dtype == right.dtype:
            yield _Change("argument", f"as with {first} and {second} swapped", {first: right, second: left})
            yield _Change("argument", f"as with {second} for {first}", {first: right})
            yield _Change("argument", f"as with {first} for {second}", {second: left})


def _rounded(tensors: _Tensors) -> Iterator[_Change]:
    floats = {name: value for name, value in tensors.items() if is_floating(value.dtype)}
    groups = [[name] for name in floats] + ([list(floats)] if len(floats) > 1 else [])
    for dtype in _NARROW:
        narrow = numpy_dtype(dtype)
        for group in groups:
            if all(narrow.itemsize < floats[name].dtype.itemsize for name in group):
                values = {
                    name: np.asarray(round_to(widen(floats[name]), narrow)).astype(floats[name].dtype) for name in group
                }
                yield _Change("precision", f"as with {', '.join(group)} rounded to {dtype}", values)


def _truncated(tensors: _Tensors) -> Iterator[_Change]:
    """Numbers that lose their last bits, as units with narrow operands cut them."""
    floats = {name: value for name, value in tensors.items() if value.dtype == np.float32}
    for group in [list(floats)] + ([[name] for name in floats] if len(floats) > 1 else []):
        for bits in _BITS if group else ():
            mask = np.uint32(2**32 - (1 << (24 - bits)))
            values = {name: (floats[name].view(np.uint32) & mask).view(np.float32) for name in group}
            names = ", ".join(group)
            yield _Change("precision", f"as with {names} cut to {bits} bits", values, series=f"cut {names}")


def _groups(tensors: _Tensors) -> Iterator[list[str]]:
    """Each tensor, and those of one shape together, as key and value are."""
    yield from ([name] for name in tensors)
    shapes = dict.fromkeys(value.shape for value in tensors.values() if value.ndim)
    for shape in shapes:
        names = [name for name, value in tensors.items() if value.shape == shape]
        if len(names) > 1:
            yield names
        if len(names) > 2:
            yield names[1:]


def _moved(tensors: _Tensors) -> Iterator[_Change]:
    for group in _groups(tensors):
        shape = tensors[group[0]].shape
        for words, move in _moves(shape):
            values = {name: move(tensors[name]) for name in group}
            if any(not np.array_equal(value, tensors[name], equal_nan=False) for name, value in values.items()):
                yield _Change("moved", f"as with {', '.join(group)} {words}", values)


def _moves(shape: Sequence[int]) -> Iterator[tuple[str, Callable[[AnyArray], AnyArray]]]:
    for axis, extent in enumerate(shape):
        if extent < 2:
            continue
        for step in (1, -1) if extent > 2 else (1,):
            yield f"shifted by {step:+d} along dim {axis}", partial(np.roll, shift=step, axis=axis)
        if extent > 2:
            yield f"reversed along dim {axis}", partial(np.flip, axis=axis)
        yield f"taken from index 0 of dim {axis}", partial(_first, axis=axis)
    if len(shape) > 2 and min(shape[-2:]) > 1:
        yield "reversed along the last two dims", lambda x: np.flip(x, (-1, -2))
    if len(shape) > 1 and shape[-1] == shape[-2]:
        yield "transposed", lambda x: np.swapaxes(x, -1, -2)


def _first(value: AnyArray, axis: int) -> AnyArray:
    return np.repeat(np.take(value, [0], axis), value.shape[axis], axis)


def _scaled(tensors: _Tensors) -> Iterator[_Change]:
    for name, value in tensors.items():
        if not is_floating(value.dtype) or not value.ndim:
            continue
        extent = value.shape[-1]
        scales = {"2": 2.0, "1/2": 0.5, "ln(2)": np.log(2), "log2(e)": 1 / np.log(2)}
        scales |= {f"sqrt({extent})": extent**0.5, f"1/sqrt({extent})": extent**-0.5} if extent > 1 else {}
        for words, scale in scales.items():
            yield _Change("argument", f"as with {words} times {name}", {name: widen(value) * scale})


def _ends(extent: int) -> list[int]:
    """How many elements a loop may leave out at its end: one or two, the rest of a tile, the last tile."""
    ends = {1, 2, *(extent % tile for tile in _TILES), *(tile for tile in _TILES if extent % tile == 0)}
    return sorted(end for end in ends if 0 < end < extent)


def _cut(tensors: _Tensors) -> Iterator[_Change]:
    """Zeros for a piece of a tensor."""
    for name, value in tensors.items():
        if not is_floating(value.dtype):
            continue
        for axis, extent in enumerate(value.shape):
            pieces = [(extent - end, extent, f"the last {end}") for end in _ends(extent)]
            pieces += [(0, 1, "the first 1")] if extent > 1 else []
            for tile in (*_TILES, extent // 2, extent // 3, extent // 4):
                if tile and extent / tile <= _PIECES:
                    pieces += [(at, at + tile, f"{at}:{at + tile}") for at in range(0, extent - 1, tile)]
            for start, end, words in pieces:
                short = np.array(value)
                np.moveaxis(short, axis, 0)[start:end] = 0
                yield _Change("term", f"as without {words} of dim {axis} of {name}", {name: short}, lost=True)


def _shortened(tensors: _Tensors) -> Iterator[_Change]:
    """The end of a dimension, or its first place, left out of all tensors that share it, as keys and values do."""
    for axis in (-1, -2, 0):
        sharing: dict[int, list[str]] = {}
        for name, value in tensors.items():
            if value.ndim > 1 or (value.ndim == 1 and axis != -2):
                sharing.setdefault(value.shape[axis], []).append(name)
        for extent, names in sharing.items():
            for group in (names, names[1:]) if len(names) > 1 else (names,):
                named = f"of dim {axis} of {', '.join(group)}"
                for end in _ends(extent):
                    values = {name: np.take(tensors[name], np.arange(extent - end), axis) for name in group}
                    yield _Change("term", f"as without the last {end} {named}", values, short="end")
                if extent > 1:
                    values = {name: np.take(tensors[name], np.arange(1, extent), axis) for name in group}
                    yield _Change("term", f"as without the first 1 {named}", values, short="start")


def _filled(found: AnyArray, shape: Sequence[int], place: Literal["start", "end"]) -> AnyArray:
    """An output with zeros at the start or the end of each dimension that it is too short in."""
    if (
        not shape
        or found.ndim != len(shape)
        or any(extent > whole for extent, whole in zip(found.shape, shape, strict=True))
    ):
        return found
    lacking = [whole - extent for extent, whole in zip(found.shape, shape, strict=True)]
    return np.pad(found, [(lack, 0) if place == "start" else (0, lack) for lack in lacking])
