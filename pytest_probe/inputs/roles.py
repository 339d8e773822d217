"""What an argument must be besides having its statistics: an index, a label, a mask of so many, a positive definite
matrix.

A role makes the values of the argument that it is given to, and keeps to the recorded range as far as the role allows.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.inputs import recorded_statistics
from pytest_probe.inputs.generated import DtypeKind, generate, integer_range
from pytest_probe.model.dump import TensorSpec
from pytest_probe.numerics.dtypes import AnyArray

# Kinds of dtype that a role can make; an argument of another kind has none.
_INTEGER: frozenset[DtypeKind] = frozenset({"integer"})
_FLOAT: frozenset[DtypeKind] = frozenset({"float"})
_MATRIX: frozenset[DtypeKind] = frozenset({"float", "complex"})


class Role(Struct, frozen=True):
    """A role and how it changes tensors whose dtype is one of its kinds."""

    kinds: ClassVar[frozenset[DtypeKind]] = _INTEGER

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        """Values in the tensor's shape, as `generated.generate` makes them. The tensor is not empty."""
        raise NotImplementedError


class Index(Role, frozen=True):
    """Integers in [low, stop). stop None: the recorded range decides.

    axis: no value occurs twice along it ("all": anywhere), where the range has enough; an index of as many elements as
    values is a permutation in any case. ignored: a value outside the range that stays where it was recorded as an
    extreme (ignore_index), in one of ten places.
    """

    stop: int | None
    low: int = 0
    axis: int | Literal["all"] | None = None
    ignored: int | None = None

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        low, high = self._range(spec)
        length = spec.size if self.axis in ("all", None) or not spec.shape else spec.shape[int(self.axis)]
        if self._distinct(spec, length, high - low + 1):
            values = _distinct(spec, rng, length, low, high, -1 if self.axis in ("all", None) else int(self.axis))
        else:
            values = recorded_statistics.integers(rng, spec.size, low, high).reshape(spec.shape)
        if self._keeps_ignored(spec):
            # No statistic gives the number of ignored ones. Chosen: a tenth, so that most targets count.
            count = spec.size if spec.min == spec.max else max(1, spec.size // 10)
            values[recorded_statistics.choice(rng, spec.size, count).reshape(spec.shape)] = self.ignored
        return values

    def _range(self, spec: TensorSpec) -> tuple[int, int]:
        largest = max(self.low, self.stop - 1) if self.stop is not None else None
        if spec.min is None or spec.max is None:
            return self.low, largest if largest is not None else self.low + 9
        low, high = integer_range(spec)
        if self._keeps_ignored(spec):
            low, high = self.low if low == self.ignored else low, self.low if high == self.ignored else high
            if spec.min == self.ignored and largest is not None and spec.max == self.ignored:
                high = largest
        low, high = max(low, self.low), max(high, self.low)
        return (low, high) if largest is None else (min(low, largest), min(high, largest))

    def _distinct(self, spec: TensorSpec, length: int, span: int) -> bool:
        if self.axis is None:
            return len(spec.shape) == 1 and length == span > 1 and self.low == 0
        return 1 < length <= span

    def _keeps_ignored(self, spec: TensorSpec) -> bool:
        outside = self.ignored is not None and (
            self.ignored < self.low or (self.stop is not None and self.ignored >= self.stop)
        )
        return outside and self.ignored in (spec.min, spec.max)


def _distinct(spec: TensorSpec, rng: np.random.Generator, length: int, low: int, high: int, axis: int) -> AnyArray:
    """One random order of the range, entered at a random place by each lane along the axis."""
    lanes = spec.size // length
    # One permutation for all lanes: one for each would take as long as sorting.
    order = low + rng.permutation(high - low + 1)
    entry = rng.integers(order.size, size=(lanes, 1))
    values: AnyArray = order[(entry + np.arange(length)) % order.size]
    if lanes == 1:
        return values.reshape(spec.shape)
    others = [extent for place, extent in enumerate(spec.shape) if place != axis % len(spec.shape)]
    return np.ascontiguousarray(np.moveaxis(values.reshape(*others, length), -1, axis))


class Size(Role, frozen=True):
    """Numbers that decide the shape of what the call gives: nothing but the numbers themselves will do."""

    kinds: ClassVar[frozenset[DtypeKind]] = frozenset({"integer", "float"})

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        raise NoValues


class NoValues(Exception):
    """A tensor's values were not recorded, and no others can replace them."""


class Coordinates(Role, frozen=True):
    """Rows of as many indices as there are extents, each below its own."""

    extents: tuple[int, ...]

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        rows = (*spec.shape[:-1], 1)
        columns = [Index(extent).make(replace(spec, shape=rows), rng) for extent in self.extents if math.prod(rows)]
        return np.concatenate(columns, axis=-1) if columns else np.zeros(spec.shape, np.int64)


class Boxes(Role, frozen=True):
    """Corners (left, top, right, bottom) of boxes inside an image, the second behind the first."""

    kinds: ClassVar[frozenset[DtypeKind]] = _FLOAT
    extents: tuple[int, ...]

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        corners = np.sort(rng.random((*spec.shape[:-1], 2, 2)), axis=-2)
        height, width = self.extents
        return (corners * (width, height)).reshape(spec.shape)


class Places(Role, frozen=True):
    """Flat indices into a plane, where each of the last dimensions' planes is written by itself: none twice in one
    plane, where the range has enough (pooling whose windows overlap repeats them, with equal values)."""

    stop: int | None
    dimensions: int

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        others = spec.shape[: -self.dimensions]
        flat = replace(spec, shape=(*others, math.prod(spec.shape[len(others) :])))
        return Index(self.stop, axis=len(others)).make(flat, rng).reshape(spec.shape)


class Count(Role, frozen=True):
    """A tensor with as many True, or numbers other than zero, as the recorded outputs say."""

    kinds: ClassVar[frozenset[DtypeKind]] = frozenset({"bool", "integer", "float", "complex"})
    chosen: int

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        if spec.dtype == "bool":
            return recorded_statistics.choice(rng, spec.size, self.chosen).reshape(spec.shape)
        values = generate(spec, rng).reshape(-1)
        chosen = min(self.chosen, spec.size)
        # The smallest become the zeros: what else was recorded changes least.
        order = np.argsort(np.abs(values), kind="stable")
        zeros, others = order[: spec.size - chosen], order[spec.size - chosen :]
        values[zeros] = 0
        extremes = (extreme for extreme in (spec.max, spec.min) if extreme and math.isfinite(extreme))
        values[others[values[others] == 0]] = next(extremes, 1)
        return values.reshape(spec.shape)


class Mask(Role, frozen=True):
    """A mask of attention, where True is `attends` or hides; the first of no row is hidden."""

    kinds: ClassVar[frozenset[DtypeKind]] = frozenset({"bool"})
    attends: bool

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        values = generate(spec, rng)
        if spec.shape and values.any() and not values.all():
            values[..., 0] = self.attends
        return values


class Band(Role, frozen=True):
    """A mask of attention that hides all keys but `before` ones before the query's place and `after` behind it."""

    kinds: ClassVar[frozenset[DtypeKind]] = frozenset({"bool", "integer"})
    before: int
    after: int

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        rows, columns = spec.shape[-2:]
        place = np.arange(columns) - np.arange(rows)[:, None]
        return np.broadcast_to((place > self.after) | (place < -self.before), spec.shape).copy()


class Ends(Role, frozen=True):
    """Where groups of about equal extent end, the last one at `total`."""

    total: int

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        return np.cumsum(Parts(self.total).make(spec, rng)).reshape(spec.shape)


class Within(Role, frozen=True):
    """Floats in [low, high]: probabilities, variances, rates."""

    kinds: ClassVar[frozenset[DtypeKind]] = _FLOAT
    low: float = 0.0
    high: float = math.inf

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        if spec.max is not None and spec.min is not None:
            values = generate(spec, rng)
            return np.clip(values, self.low, self.high, out=values)
        if math.isfinite(self.high):
            return rng.uniform(self.low, self.high, spec.shape)
        return np.asarray(self.low + np.abs(rng.standard_normal(spec.shape)))


class Weights(Role, frozen=True):
    """Weights of a draw: not negative, and at least `drawn` of each row positive."""

    kinds: ClassVar[frozenset[DtypeKind]] = _FLOAT
    drawn: int

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        values = Within().make(spec, rng)
        if values.ndim:
            head = values[..., : self.drawn]
            head[head == 0] = values.max() or 1.0
        return values


class Signs(Role, frozen=True):
    """-1 and 1, as margin losses want their targets; as recorded where that is one of them."""

    kinds: ClassVar[frozenset[DtypeKind]] = frozenset({"integer", "float"})

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        if spec.min == spec.max and spec.max in (-1, 1):
            return np.full(spec.shape, int(spec.max))
        return np.where(recorded_statistics.choice(rng, spec.size, (spec.size + 1) // 2), 1, -1).reshape(spec.shape)


class Divisor(Role, frozen=True):
    """Integers other than zero, unless zero was recorded as an extreme."""

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        values = generate(spec, rng)
        if 0 in (spec.min, spec.max):
            return values
        values[values == 0] = integer_range(spec)[1] or 1
        return values


class Parts(Role, frozen=True):
    """Lengths: integers, not negative and about equal, whose sum is fixed."""

    total: int

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        each, rest = divmod(self.total, spec.size)
        return each + recorded_statistics.choice(rng, spec.size, rest).astype(np.int64).reshape(spec.shape)


class Running(Role, frozen=True):
    """How many sequences of a batch run at each step: from the recorded maximum falling to 1, of a fixed sum."""

    total: int

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        others = (integer_range(spec)[1] if spec.max is not None else -(-self.total // spec.size)) - 1
        # Each step has one sequence at least; the rest of the sum goes to the first steps, as packing sorts them.
        left = self.total - spec.size - others * np.arange(spec.size)
        return 1 + np.clip(left, 0, max(others, 0)).reshape(spec.shape)


class Offsets(Role, frozen=True):
    """Where bags begin: from 0, rising, to at most `total`; the last is the end of all where `closed`."""

    total: int
    closed: bool = False

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        largest = self.total if spec.max is None else min(integer_range(spec)[1], self.total)
        values = np.sort(rng.integers(0, largest, spec.size, endpoint=True))
        values[-1] = self.total if self.closed else largest
        values[0] = 0
        return values.reshape(spec.shape)


class Pivots(Role, frozen=True):
    """Row exchanges of a factorisation: element i is in [i + 1, rows]."""

    rows: int

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        if not spec.shape:
            return np.ones((), np.int64)
        first = np.minimum(np.arange(1, spec.shape[-1] + 1), self.rows)
        return rng.integers(first, self.rows, spec.shape, endpoint=True)


class Sorted(Role, frozen=True):
    """Rising along the last dimension."""

    kinds: ClassVar[frozenset[DtypeKind]] = frozenset({"integer", "float"})

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        values = generate(spec, rng)
        return np.sort(values, axis=-1) if spec.shape else values


class PositiveDefinite(Role, frozen=True):
    """A positive definite matrix of the recorded norm (of the recorded maximum where there is no norm).

    X X* / n + 1 with normal X: its condition number is about 5.
    """

    kinds: ClassVar[frozenset[DtypeKind]] = _MATRIX

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        if not _is_square(spec):
            return generate(spec, rng)
        size = spec.shape[-1]
        unknown = replace(spec, max=None, min=None)
        normal = generate(unknown, rng)
        matrix = normal @ normal.conj().swapaxes(-1, -2) / size + np.eye(size)
        for recorded, own in ((spec.norm, np.linalg.norm(matrix)), (spec.max, np.abs(matrix).max())):
            if recorded is not None and math.isfinite(recorded) and recorded > 0:
                return np.asarray(matrix * (recorded / own))
        return np.asarray(matrix)


class Symmetric(Role, frozen=True):
    """A symmetric or Hermitian matrix: the lower triangle of what the statistics give, mirrored."""

    kinds: ClassVar[frozenset[DtypeKind]] = _MATRIX

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        values = generate(spec, rng)
        if not _is_square(spec):
            return values
        lower = np.tril(values, -1)
        diagonal = np.einsum("...ii->...i", values).real
        matrix = lower + lower.conj().swapaxes(-1, -2)
        np.einsum("...ii->...i", matrix)[...] = diagonal
        return np.asarray(matrix)


class Invertible(Role, frozen=True):
    """A matrix that its zeros leave invertible: the largest numbers that the statistics give are its diagonal."""

    kinds: ClassVar[frozenset[DtypeKind]] = _MATRIX

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        values = generate(spec, rng)
        if not _is_square(spec) or values.all():
            return values
        diagonal = np.broadcast_to(np.eye(spec.shape[-1], dtype=bool), spec.shape)
        largest = np.zeros(values.size, dtype=bool)
        largest[np.argsort(np.abs(values).ravel(), kind="stable")[-np.count_nonzero(diagonal) :]] = True
        made = np.empty_like(values)
        made[diagonal], made[~diagonal] = values.ravel()[largest], values.ravel()[~largest]
        return made


class Triangle(Role, frozen=True):
    """A factor to solve with, of which one triangle is used: its diagonal outweighs the rest of each row."""

    kinds: ClassVar[frozenset[DtypeKind]] = _MATRIX

    def make(self, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
        values = generate(spec, rng)
        if not _is_square(spec):
            return values
        diagonal = np.einsum("...ii->...i", values)
        others = np.abs(values).sum(axis=-1) - np.abs(diagonal)
        diagonal[...] = np.maximum(np.abs(diagonal), np.where(others > 0, others, 1.0))
        return values


def _is_square(spec: TensorSpec) -> bool:
    return len(spec.shape) > 1 and spec.shape[-1] == spec.shape[-2]
