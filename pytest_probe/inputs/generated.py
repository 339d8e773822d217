"""Values for a tensor of which a dump has only shape, dtype and statistics.

They are float64, complex128, int64, uint64 or bool in the tensor's shape; `generate_in` brings them to a dtype, large
ones as they are drawn. The
draw depends on the recorded dtype and statistics, never on the dtype of the case. Where a dump has the shares of values
that occur many times (zeros, a most frequent value, whole rows of one value), the generated numbers have them too, and
the other numbers give what Mean and Norm then leave.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Literal, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.inputs import recorded_statistics
from pytest_probe.inputs.draws import (
    LARGE,
    Constant,
    Draw,
    InMemory,
    Merged,
    Numbers,
    Rows,
    constant,
    put,
    round_to_dtype,
    whole,
    written,
)
from pytest_probe.inputs.recorded_statistics import Statistics
from pytest_probe.model.dump import TensorSpec
from pytest_probe.numerics.dtypes import (
    PACKED,
    AnyArray,
    BoolArray,
    Float64Array,
    float_format,
    is_complex,
    is_floating,
    numpy_dtype,
    packed,
    round_to,
)

# Shares may come from a sample: if zeros and the mode are more than this, the mean gives their numbers better.
_TWO_VALUES = 0.95


def floats_with_masses(spec: TensorSpec, rng: np.random.Generator, wanted: Statistics) -> Numbers:
    """Float64 numbers of the wanted statistics, shape (spec.size,), with the spec's shares of frequent values."""
    if not (spec.zeros or spec.mode or spec.constant_rows) or wanted.low == wanted.high:
        return recorded_statistics.drawn(rng, spec.size, wanted)
    rows = constant_rows(spec, rng)
    width = spec.size // rows.size
    if rows.all():
        norm = None if wanted.norm is None else wanted.norm / math.sqrt(width)
        return np.repeat(recorded_statistics.floats(rng, rows.size, wanted._replace(norm=norm)), width)
    of_rows = _row_values(spec, rng, wanted, int(np.count_nonzero(rows)))
    left = _Left.of(spec.size, wanted).without(of_rows, width)
    others = _others(spec, rng, left, of_rows, width)
    if isinstance(others, Draw) or spec.size > LARGE:
        return Rows(rows, of_rows, others if isinstance(others, Draw) else InMemory(others))
    values = np.empty((rows.size, width))
    values[rows] = of_rows[:, None]
    values[~rows] = others.reshape(-1, width)
    return values.reshape(-1)


def constant_rows(spec: TensorSpec, rng: np.random.Generator) -> BoolArray:
    """Which rows, along the last dimension, are constant; the only row of a vector is not."""
    width = spec.shape[-1] if len(spec.shape) > 1 and spec.shape[-1] > 1 else spec.size
    count, share = spec.size // width, 0.0 if spec.constant_rows is None else spec.constant_rows[0]
    if share >= 1:
        return np.ones(count, bool)
    return recorded_statistics.choice(rng, count, min(max(round(share * count), share > 0), count - 1))


class _Left(Struct, frozen=True):
    """Numbers still to be made: how many, and what they add up to. None: unknown."""

    count: int
    wanted: Statistics
    total: float | None
    squares: float | None

    @classmethod
    def of(cls, count: int, wanted: Statistics) -> _Left:
        total = None if wanted.mean is None else wanted.mean * count
        return cls(count, wanted, total, None if wanted.norm is None else wanted.norm**2)

    def without(self, values: Float64Array, copies: int) -> _Left:
        """What is left when so many copies of each value are made."""
        total = None if self.total is None else self.total - copies * float(values.sum())
        squares = None if self.squares is None else self.squares - copies * float(values.dot(values))
        return _Left(self.count - copies * values.size, self.wanted, total, squares)

    def statistics(self, whole: _Left) -> Statistics:
        """The statistics of the remaining numbers. Their relative error is larger than the whole tensor's."""
        mean = None if self.total is None else self.total / self.count
        norm = None if self.squares is None else math.sqrt(max(self.squares, 0.0))
        lost = max(_ratio(whole.total, self.total), _ratio(whole.squares, self.squares), 1.0)
        return self.wanted._replace(mean=mean, norm=norm, error=self.wanted.error * lost)


def _ratio(whole: float | None, part: float | None) -> float:
    return abs(whole / part) if whole and part else 1.0


def _row_values(spec: TensorSpec, rng: np.random.Generator, wanted: Statistics, count: int) -> Float64Array:
    shared = None if spec.constant_rows is None else spec.constant_rows[1]
    if shared is not None:
        # Callers add rows that are not finite.
        return np.full(count, min(max(shared, wanted.low), wanted.high))
    middle = (wanted.low + wanted.high) / 2 if wanted.mean is None else wanted.mean
    square = middle**2 if wanted.norm is None else wanted.norm**2 / spec.size
    spread = math.sqrt(max(square - middle**2, 0.0)) or (wanted.high - wanted.low) / 8
    return np.clip(rng.normal(middle, spread, count), wanted.low, wanted.high)


def _others(spec: TensorSpec, rng: np.random.Generator, left: _Left, rows: Float64Array, width: int) -> Numbers:
    """The elements outside of constant rows."""
    counts = {0.0: spec.zeros or 0.0, **dict([spec.mode] if spec.mode else [])}
    extremes = (left.wanted.low, left.wanted.high)
    if sum(counts.values()) >= _TWO_VALUES and set(counts) == set(extremes) and left.total is not None:
        return recorded_statistics.drawn(rng, left.count, left.statistics(left))
    chosen: list[tuple[float, BoolArray]] = []
    rest = left
    for value, share in counts.items():
        wished = round(share * spec.size) - width * int(np.count_nonzero(rows == value))
        # The rest has both extremes.
        count = min(wished - (value in extremes), rest.count - 2)
        if count > 0 and extremes[0] <= value <= extremes[1]:
            chosen.append((value, recorded_statistics.choice(rng, rest.count, count)))
            rest = rest.without(np.array([value]), count)
    numbers = recorded_statistics.drawn(rng, rest.count, rest.statistics(left))
    for value, places in reversed(chosen):
        # The numbers with a value put between them, so that it stands at these places.
        if isinstance(numbers, Draw) or places.size > LARGE:
            others = numbers if isinstance(numbers, Draw) else InMemory(numbers)
            numbers = Merged(places, Constant(places.size - others.size, value), others)
        else:
            values = np.full(places.size, value)
            values[~places] = numbers
            numbers = values
    return numbers


DtypeKind: TypeAlias = Literal["bool", "integer", "float", "complex", "packed"]

# Integers of which nothing is known: valid as an index nearly everywhere.
_UNKNOWN_INTEGERS = (0, 9)
# Relative error of a recorded mean or norm on top of its rounding: captures sum in float32.
_STATISTICS_ERROR = 2e-6
# Share of the dtype's largest number: so low a minimum with a usual maximum is the fill value of a mask.
_LOWEST = 0.9


@cache
def kind_of(dtype: str) -> DtypeKind:
    """Which of the five kinds a dtype is; packed: two numbers share a byte. Raises ValueError where it is not known."""
    if dtype == "bool":
        return "bool"
    if is_floating(dtype):
        return "float"
    if dtype == PACKED:
        return "packed"
    return "complex" if is_complex(dtype) else "integer"


def generate(spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
    """Values with the recorded statistics. Raises ValueError where the dtype is not known."""
    return whole(draw(spec, rng)).reshape(spec.shape)


def generate_in(spec: TensorSpec, rng: np.random.Generator, dtype: str) -> AnyArray:
    """The same in a dtype."""
    return round_to_dtype(draw(spec, rng, dtype), dtype).reshape(spec.shape)


def draw(spec: TensorSpec, rng: np.random.Generator, dtype: str = "") -> Numbers:
    """The same values, flat; in a dtype already where many can only be drawn one after another."""
    kind = kind_of(spec.dtype)
    if kind == "integer":
        return recorded_statistics.integers(rng, spec.size, *integer_range(spec), dtype)
    if kind == "float":
        return _floats(spec, rng, dtype or "float64")
    if kind == "packed":
        if spec.max is None or spec.min is None:
            return rng.integers(256, size=spec.size).astype(np.float64)
        numbers = _floats(replace(spec, dtype="float32", shape=(2 * spec.size,)), rng)
        return packed(round_to(whole(numbers), "float4_e2m1fn")).view(np.uint8).astype(np.float64)
    return _booleans(spec, rng) if kind == "bool" else _complex(spec, rng)


def integer_range(spec: TensorSpec) -> tuple[int, int]:
    """The recorded range of an integer tensor within its dtype, however it was rounded; 0 to 9 where none is known."""
    limits = np.iinfo(numpy_dtype(spec.dtype))
    low, high = spec.min, spec.max
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        low, high = _UNKNOWN_INTEGERS
    low, high = sorted((int(low), int(high)))
    return min(max(low, limits.min), limits.max), min(max(high, limits.min), limits.max)


def _booleans(spec: TensorSpec, rng: np.random.Generator) -> BoolArray:
    if spec.true is not None:
        return recorded_statistics.choice(rng, spec.size, min(spec.true, spec.size))
    if spec.max is not None and not spec.max:
        return np.zeros(spec.size, bool)
    if spec.min:
        return np.ones(spec.size, bool)
    if spec.size == 1 and spec.max is not None:
        return np.ones(1, bool)
    # The number of True is unknown: half, so that both cases are run.
    return recorded_statistics.choice(rng, spec.size, (spec.size + 1) // 2)


def _floats(spec: TensorSpec, rng: np.random.Generator, dtype: str = "float64") -> Numbers:
    top, bottom = spec.max, spec.min
    if top is None or bottom is None:
        if spec.dtype == "float8_e8m0fnu":  # powers of two, without sign
            return np.exp2(np.rint(rng.standard_normal(spec.size)))
        return written(spec.size, dtype, rng.standard_normal)
    top, bottom = float(top), float(bottom)
    if spec.size < 2 or top == bottom:
        return constant(spec.size, top)
    if not (math.isfinite(top) and math.isfinite(bottom)):
        # With inf of the recorded signs and NaN among finite values, as many as were recorded, else one of each.
        if _finite(top) is not None and bottom == -math.inf:
            return _masked(spec, rng, bottom, _finite_part(spec, rng, bottom, top))
        values = whole(_finite_part(spec, rng, bottom, top))
        special = _special_values(spec, bottom, top)
        places = rng.choice(spec.size, min(len(special), spec.size), replace=False)
        values[places] = special[: places.size]
        return values
    form = _float_format(spec.dtype)
    # A mask's fill value and usual numbers: one distribution for both would spread over the whole range.
    if bottom <= -_LOWEST * form.max and abs(top) < math.sqrt(form.max):
        return _masked(spec, rng, bottom, _hanging(spec, rng, top))
    low, high = sorted((bottom, top))
    error = form.roundoff + _STATISTICS_ERROR
    return floats_with_masses(spec, rng, Statistics(low, high, _finite(spec.mean), _finite(spec.norm), error))


_float_format = cache(float_format)  # a look-up by name instead of a NumPy dtype's slow name


def _complex(spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
    """Recorded statistics are of the modulus; the phase is uniform. inf and NaN are in the real part."""
    if spec.max is None or spec.min is None:
        parts = rng.standard_normal((2, spec.size)) / math.sqrt(2)
        return np.asarray(parts[0] + 1j * parts[1])
    modulus = whole(_floats(replace(spec, dtype="float32" if spec.dtype == "complex64" else "float64"), rng))
    values: AnyArray = np.exp(2j * math.pi * rng.random(spec.size))
    # inf times a phase would be NaN in one part.
    usual = np.isfinite(modulus)
    values[usual] *= modulus[usual]
    values[~usual] = modulus[~usual]
    return values


def _special_values(spec: TensorSpec, bottom: float, top: float) -> list[float]:
    signs = [extreme for extreme in (top, bottom) if math.isinf(extreme)]
    if spec.nan is None or spec.inf is None:
        return [math.nan] * (math.isnan(top) or math.isnan(bottom)) + signs
    nan, inf = min(spec.nan, spec.size), min(spec.inf, spec.size)
    if spec.negative_inf is not None:
        negative = min(spec.negative_inf, inf)
        return [math.nan] * nan + [-math.inf] * negative + [math.inf] * (inf - negative)
    # With NaN among the elements the extremes are NaN, without a sign.
    return [math.nan] * nan + [(signs or [math.inf])[place % max(len(signs), 1)] for place in range(inf)]


def _finite_part(spec: TensorSpec, rng: np.random.Generator, bottom: float, top: float) -> Numbers:
    low = spec.low if spec.low is not None else _finite(bottom)
    high = spec.high if spec.high is not None else _finite(top)
    if low is not None and high is not None:
        if math.isfinite(low) and math.isfinite(high):
            return whole(floats_with_masses(spec, rng, Statistics(min(low, high), max(low, high))))
        # Nothing was finite.
        return np.asarray(np.where(recorded_statistics.choice(rng, spec.size, spec.size // 2), low, high))
    if high is not None:
        return _hanging(spec, rng, high)
    values: Float64Array = rng.standard_normal(spec.size)
    if low is not None:
        values += low - values.min()
    return values


def _hanging(spec: TensorSpec, rng: np.random.Generator, top: float) -> Numbers:
    """Normal numbers up to a maximum; all zero where that is 0, as in an attention mask."""
    if top == 0:
        return constant(spec.size, 0.0)
    values: Float64Array = rng.standard_normal(spec.size)
    values += top - values.max()
    return values


def _masked(spec: TensorSpec, rng: np.random.Generator, hidden: float, values: Numbers) -> Numbers:
    """Half of the elements hidden, or as many as the count or the mean says, but the first of no row: softmax of it is
    defined. Whole rows are hidden, or of another value, where the dump says so. The largest value stays.
    """
    hideable = np.ones(spec.size, bool)
    # A row that is hidden as a whole has no softmax.
    hideable[:: spec.shape[-1] if spec.shape[-1] > 1 else spec.size] = False
    # What is computed later is one number.
    largest = 0 if isinstance(values, Draw) else int(values.argmax())
    if not isinstance(values, Draw) and values.min() != values[largest]:
        hideable[largest] = False
    # The elements of constant rows, shape (size,).
    if spec.constant_rows is None:
        whole_rows = np.zeros(spec.size, bool)
    else:
        rows = constant_rows(spec, rng)
        whole_rows = np.repeat(rows, spec.size // rows.size)
    shared = None if spec.constant_rows is None else spec.constant_rows[1]
    if shared is not None and math.isfinite(shared):
        values = put(values, whole_rows, shared)
    hideable &= ~whole_rows
    top = float(values.part(0, 1)[0] if isinstance(values, Draw) else values[largest])
    # How many elements the mask hides, 1 at least.
    mean, share = _finite(spec.mean), 0.5
    if spec.inf is not None and math.isinf(hidden):
        share = min(spec.inf / spec.size, 1.0)
    elif mean is not None and math.isfinite(hidden):
        share = min(max((top - mean) / (top - hidden), 0.0), 1.0)
    left = max(round(share * spec.size), 1)
    if shared == hidden:
        values = put(values, whole_rows, hidden)
        left -= int(np.count_nonzero(whole_rows))
    chosen = np.zeros(spec.size, bool)
    chosen[hideable] = recorded_statistics.choice(rng, int(np.count_nonzero(hideable)), left)
    return put(values, chosen, hidden)


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
