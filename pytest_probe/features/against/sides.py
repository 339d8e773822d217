"""What each side's dump has of a call in one direction: its tensors by name, whether two of them are equal,
and which earlier call made an input."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec import Struct, field

from pytest_probe.check.pair_metrics import Difference, casts_exactly, difference
from pytest_probe.errors import RecordError
from pytest_probe.inputs import StoredTensors
from pytest_probe.model.dump import Call, Direction, Dump, Number, Record, TensorSpec, leaves
from pytest_probe.numerics.dtypes import AnyArray, float_format, is_inexact, numpy_dtype
from pytest_probe.numerics.scaled import SHARES
from pytest_probe.system import archive

# Bytes of a file that are compared at a time.
_PART = 1 << 18
# Roundoffs of the dtype by which statistics of equal tensors may differ: each side adds up in its own order.
STATISTICS_ROUNDOFFS = 16
# Captures add up in float32 at best.
_SUMMED = 2.0**-24


class Tensor(Struct, frozen=True):
    """A tensor as one side's dump has it; entry and field name it in errors."""

    spec: TensorSpec
    files: StoredTensors
    entry: str
    field: str

    @property
    def dtype(self) -> str:
        return self.spec.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.shape

    @property
    def has_values(self) -> bool:
        # Of dumps whose formats name each file by its tensor only the folder tells.
        return not self.spec.size or (self.spec.data_name is not None and bool(self.files.data_dirs))

    def array(self) -> AnyArray:
        """Its values. Raises RecordError where the file cannot be used."""
        if not self.spec.size:
            return np.empty(self.shape, numpy_dtype(self.dtype))
        return self.files.array(self.spec, self.entry, self.field)

    def file(self) -> Path | None:
        """The file of its own that holds it, on the disk; None without one. Raises RecordError."""
        if self.spec.data_name is None or self.spec.data_key:
            return None
        path = self.files.path(self.spec, self.entry, self.field)
        return path if archive.split(path) is None else None


class Composed(Struct, frozen=True):
    """A tensor without statistics and a file of its own: array puts it together of others, or cuts it out of one."""

    dtype: str
    shape: tuple[int, ...]
    has_values: bool
    array: Callable[[], AnyArray]

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self.dtype, self.shape, data_name="" if self.has_values else None)

    def file(self) -> None:
        """It has none."""


AnyTensor: TypeAlias = Tensor | Composed
TENSORS = (Tensor, Composed)
# What a side has by name: tensors, and what the dump writes as it is (numbers, texts, None).
Values: TypeAlias = Mapping[str, Any]


class Side(Struct, frozen=True):
    """A record of one side in one direction: what the call got, and what it made."""

    dump: Dump
    record: Record
    direction: Direction
    inputs: Values = field(default_factory=dict)
    outputs: Values = field(default_factory=dict)

    @classmethod
    def of(cls, dump: Dump, record: Record, direction: Direction) -> Side:
        """Raises RecordError for a broken record."""
        call, files = dump.decode(record), StoredTensors.of(dump)
        entry = f"{record.name}.forward"
        trees = (("input", call.args), ("kwargs", call.kwargs))
        inputs = {
            name: _value(value, files, *files.place(record.name, name))
            for root, tree in trees
            for name, value in leaves(tree, root)
        }
        outputs = {name: _value(value, files, entry, name) for name, value in call.returned()}
        if direction == "backward":
            # A gradient follows from the forward's inputs as well.
            incoming, outputs = _gradients(dump, record, call, files)
            inputs |= incoming
        return cls(dump, record, direction, inputs, outputs)

    @property
    def entry(self) -> str:
        return f"{self.record.name}.{self.direction}"


def _gradients(dump: Dump, record: Record, call: Call, files: StoredTensors) -> tuple[dict[str, Any], dict[str, Any]]:
    """Incoming and outgoing gradients, by the names of the arguments where the dump has these."""
    entry = f"{record.name}.backward"
    places = {f"output.{place}": f"grad.{name}" for place, name in enumerate(call.outgoing or ())}
    found: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    given = {f"output.{place}": spec for place, spec in enumerate((call.outgoing or {}).values())}
    for place, spec in {**dump.gradients(record), **given}.items():
        outgoing = place.startswith("output.")
        if outgoing and call.outgoing is not None and place not in places:
            continue
        name = places.get(place, f"grad.{place}") if outgoing else f"incoming.{place.removeprefix('input.')}"
        found[outgoing][name] = _value(spec, files, entry, place)
    return found


def _value(value: Any, files: StoredTensors, entry: str, field: str) -> Any:
    return Tensor(value, files, entry, field) if isinstance(value, TensorSpec) else value


# How two tensors compare: by what the dumps hold of both, values, checksums or statistics; and whether they are equal.
# Tensors whose statistics are equal may differ all the same.
Basis: TypeAlias = Literal["values", "checksums", "statistics", "nothing", "shapes", "dtypes"]


class TensorPair(Struct, frozen=True):
    """A tensor of each side: on what basis they are compared, and whether they are equal, as far as that tells.

    gap is the largest relative difference of Max, Min, Mean and Norm over what roundings explain, where statistics are
    all that both sides have; found the difference of the values, where they differ.
    """

    a: AnyTensor
    b: AnyTensor
    basis: Basis
    equal: bool
    gap: float = 0.0
    found: Difference | None = None

    @property
    def roundoff(self) -> float:
        """That of the coarser dtype."""
        return max(_roundoff(self.a.dtype), _roundoff(self.b.dtype))

    @property
    def relative_gap(self) -> float:
        """The relative RMSE; of statistics their largest relative difference."""
        return self.gap * STATISTICS_ROUNDOFFS * self.roundoff if self.found is None else self.found.gap

    @property
    def statistics(self) -> float | None:
        """As gap, whatever the basis is; None without statistics."""
        return statistics_gap(self.a.spec, self.b.spec)

    def describe(self) -> str:
        """The statistics that differ, of both sides."""
        known = (row for row in _in_common(self.a.spec, self.b.spec) if row[1] != row[2])
        return ", ".join(f"{name} {one:.7g} and {other:.7g}" for name, one, other in known)

    @property
    def agrees(self) -> bool:
        """Is it equal, or as near as equal tensors' statistics are? So is what neither dump says anything of."""
        return self.equal or self.basis == "nothing" or (self.found is None and self.gap <= 1 and self.is_recorded)

    @property
    def is_recorded(self) -> bool:
        """Do the dumps have it in one shape, and dtypes that can be compared?"""
        return self.basis not in ("shapes", "dtypes")


def compared(a: AnyTensor, b: AnyTensor) -> TensorPair:
    """Raises RecordError where a file cannot be used."""
    if a.shape != b.shape:
        return TensorPair(a, b, "shapes", False)
    if a.dtype != b.dtype and not casts_exactly(a.dtype, b.dtype):
        return TensorPair(a, b, "dtypes", False)
    if a.has_values and b.has_values:
        first, second = a.file(), b.file()
        # Most are equal byte for byte, and then need not be decoded.
        if first is not None and second is not None and a.dtype == b.dtype and _same_bytes(first, second):
            return TensorPair(a, b, "values", True)
        found = difference(a.array(), b.array())
        return TensorPair(a, b, "values", found.equal, found=found)
    gap = statistics_gap(a.spec, b.spec)
    if a.spec.checksum and b.spec.checksum and a.dtype == b.dtype:
        equal = a.spec.checksum == b.spec.checksum
        return TensorPair(a, b, "checksums", equal, 0.0 if equal else np.inf if gap is None else gap)
    return TensorPair(a, b, "nothing" if gap is None else "statistics", gap == 0, gap or 0.0)


def _same_bytes(a: Path, b: Path) -> bool:
    """Are two files equal, and not empty?"""
    with a.open("rb", buffering=0) as one, b.open("rb", buffering=0) as other:
        piece = b""
        while True:
            before, piece = piece, one.read(_PART)
            if piece != other.read(_PART):
                return False
            if not piece:
                return bool(before)


_STATISTICS = ("max", "min", "mean", "norm", "high", "low")
# Of elements that are not finite.
_COUNTS = ("nan", "inf", "negative_inf")


def statistics_gap(a: TensorSpec, b: TensorSpec) -> float | None:
    """The largest difference of both sides' statistics, as a multiple of 16 roundoffs of the coarser dtype: of Max, Min
    and Norm relative to themselves, of the mean relative to the RMS; of blocks, shares are as they are. 0 where all are
    equal, inf where one side alone is NaN or inf; None where they have no statistic in common."""
    if any(
        getattr(a, name) != getattr(b, name) for name in _COUNTS if None not in (getattr(a, name), getattr(b, name))
    ):
        return float(np.inf)
    known = _in_common(a, b)
    if not known:
        return None
    if a.blocks is not None and b.blocks is not None and a.blocks.not_finite != b.blocks.not_finite:
        return float(np.inf)
    largest = 0.0
    for name, *pair in known:
        one, other = map(float, pair)
        if one == other or (np.isnan(one) and np.isnan(other)):
            continue
        scale = 1.0 if name in SHARES else max(abs(one), abs(other))
        if name == "mean":
            scale = max(scale, _rms(a), _rms(b))
        gap = abs(one - other)
        largest = max(largest, gap / scale if np.isfinite(gap) else np.inf)
    return largest / (STATISTICS_ROUNDOFFS * max(_roundoff(a.dtype), _roundoff(b.dtype)))


def _in_common(a: TensorSpec, b: TensorSpec) -> list[tuple[str, Number, Number]]:
    """The statistics that both have, by name."""
    pairs = [(name, getattr(a, name), getattr(b, name)) for name in _STATISTICS]
    if a.blocks is not None and b.blocks is not None:
        pairs += [(name, getattr(a.blocks, name), getattr(b.blocks, name)) for name in ("binades", *SHARES)]
    return [(name, one, other) for name, one, other in pairs if one is not None and other is not None]


def _roundoff(dtype: str) -> float:
    """That of sums in a dtype; integers' statistics are sums in float32 as well."""
    own = float_format(dtype).roundoff if is_inexact(dtype) else 0.0
    return max(own, _SUMMED)


def _rms(spec: TensorSpec) -> float:
    """That of the elements, or the largest of them where the norm is unknown."""
    if spec.norm is not None and np.isfinite(spec.norm) and spec.size:
        return float(abs(spec.norm) / spec.size**0.5)
    known = [abs(float(each)) for each in (spec.max, spec.min) if each is not None and np.isfinite(float(each))]
    return max(known, default=0.0)


_Key: TypeAlias = "tuple[object, ...] | None"


class Producers:
    """The outputs of a dump's records. All records are decoded when it is made."""

    def __init__(self, dump: Dump) -> None:
        self._dump = dump
        self._places = {record.name: place for place, record in enumerate(dump.records)}
        self._made: dict[_Key, list[int]] = {}
        for place, record in enumerate(dump.records):
            with suppress(RecordError):
                for spec in dump.decode(record).output_specs():
                    for key in (_statistics(spec), _memory(spec)):
                        if key is not None:
                            self._made.setdefault(key, []).append(place)

    def of(self, record: Record) -> dict[str, str]:
        """The inputs that hold what an earlier call gave, each with the entry that gave it last."""
        return dict(self._of(record, _statistics))

    def makers(self, record: Record) -> dict[str, str]:
        """These, and inputs that lie where a result of an earlier call lay: attributes as `.mT` make views."""
        return {**dict(self._of(record, _memory)), **self.of(record)}

    def _of(self, record: Record, key: Callable[[TensorSpec], _Key]) -> Iterator[tuple[str, str]]:
        call = self._dump.decode(record)
        own = self._places.get(record.name, 0)
        for name, spec in call.tensors():
            # Many a number is as another one.
            places = self._made.get(key(spec), []) if spec.size > 1 or key is _memory else []
            before = bisect_left(places, own)
            if before:
                yield name, f"{self._dump.records[places[before - 1]].name}.forward"


def _statistics(spec: TensorSpec) -> _Key:
    """What the dump tells of a tensor's values; None where that is nothing."""
    numbers = (repr(number) if number is not None else None for number in (spec.max, spec.min, spec.mean, spec.norm))
    told = (*numbers, spec.checksum or None)
    return None if told == (None,) * 5 else (spec.dtype, spec.shape, *told)


def _memory(spec: TensorSpec) -> _Key:
    """Where it lay; None where the dump does not tell."""
    return None if spec.address is None else (spec.dtype, spec.address)
