"""The dtypes of dumps by name, what each floating format can hold, correct rounding to it, and distances in units in
the last place (ULP), measured from a float64 reference. float4 numbers are as tensors hold them: two a byte, the first
in the low four bits.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt
from msgspec import Struct

AnyArray: TypeAlias = npt.NDArray[Any]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
Float64Array: TypeAlias = npt.NDArray[np.float64]

# Dtypes of training that are narrower than float32.
NARROW_DTYPES = ("bfloat16", "float16")
# Dtypes that are computed in float64; all others are computed in float32.
WIDE_DTYPES = frozenset((np.dtype(np.float64), np.dtype(np.complex128)))
# The smallest normal float32: a device that flushes to zero makes 0 of what lies below.
SMALLEST_FLOAT32 = 2.0**-126
# An ulp of float32 at 1.
ULP_FLOAT32 = 2.0**-23

_COMPLEX_PARTS = {"complex64": "float32", "complex128": "float64"}
# NumPy's own casts round these correctly; the others are rounded here.
_NATIVE_FLOATS = ("float64", "float32", "float16")
_NARROW_FLOATS = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn",
)
# Two float4_e2m1fn a byte, as torch has them: no number, so that nothing computes with it. See `packed`.
PACKED = "float4_e2m1fn_x2"
_DISCRETE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")

# Not by dtype.kind: ml_dtypes registers its types as "V", and some as "f".
_FLOATS = frozenset((*_NATIVE_FLOATS, *_NARROW_FLOATS))
_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(getattr(ml_dtypes, name) if name in _NARROW_FLOATS else name)
    for name in (*_NATIVE_FLOATS, *_NARROW_FLOATS, *_COMPLEX_PARTS, *_DISCRETE)
} | {PACKED: np.dtype([(PACKED, np.uint8)])}
DTYPES = tuple(_DTYPES)
# Mask of a float64's bits that leaves the power of two below the number.
_EXPONENT_BITS = np.int64(0x7FF0_0000_0000_0000)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a bare name ("float32", "bfloat16", "bool"). Raises ValueError on any other name."""
    try:
        return _DTYPES[name]
    except KeyError:
        raise ValueError(f"no NumPy dtype for {name!r}; known: {', '.join(_DTYPES)}") from None


def is_floating(dtype: npt.DTypeLike) -> bool:
    """Is it a real floating dtype, bfloat16 and float8 included? Takes a dtype or a bare name."""
    return dtype_name(_resolve(dtype)) in _FLOATS


def is_complex(dtype: npt.DTypeLike) -> bool:
    """Is it a complex dtype? Takes a dtype or a bare name."""
    return _resolve(dtype).kind == "c"


def is_inexact(dtype: npt.DTypeLike) -> bool:
    """Is it a real or a complex floating dtype? Takes a dtype or a bare name."""
    return is_floating(dtype) or is_complex(dtype)


def _resolve(dtype: npt.DTypeLike) -> np.dtype[Any]:
    if isinstance(dtype, np.dtype):
        return dtype
    return numpy_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)


@cache
def dtype_name(dtype: np.dtype[Any]) -> str:
    """The dtype's name, which NumPy puts together anew each time, at the cost of a small array operation."""
    return PACKED if dtype == _DTYPES[PACKED] else dtype.name


class FloatFormat(Struct, frozen=True):
    """A binary floating format.

    precision counts the bits of the significand, the hidden one included. 2**min_exponent is the smallest normal
    number, max the largest finite one, smallest the smallest above zero. overflow is what the format puts beyond max:
    inf, NaN where it has no infinities, or max where it has neither (float4).
    """

    name: str
    precision: int
    min_exponent: int
    max: float
    smallest: float
    overflow: float

    @property
    def roundoff(self) -> float:
        """The largest relative error of one rounding, 2**-precision."""
        return 2.0**-self.precision

    @property
    def top_binade(self) -> float:
        """The largest power of two that the format has."""
        return 2.0 ** (math.frexp(self.max)[1] - 1)

    @property
    def beyond_max(self) -> float:
        """The number that would follow the largest finite one."""
        return self.max + self.top_binade * 2.0 ** (1 - self.precision)

    def spacing(self, values: Float64Array) -> Float64Array:
        """The distance between neighbours of the format in the binade of each value, as a new array.

        Zeros and subnormals have the spacing of the smallest normal; values beyond max, inf and NaN have the spacing of
        max.
        """
        power = binades(values, np.empty(values.shape))
        np.maximum(power, 2.0**self.min_exponent, out=power)
        np.minimum(power, self.top_binade, out=power)
        power *= 2.0 ** (1 - self.precision)
        return power

    def overflowed(self, values: Float64Array) -> Float64Array:
        """The values, with overflow (in the value's sign) in place of all beyond max."""
        return np.where(np.abs(values) > self.max, np.copysign(self.overflow, values), values)


def binades(values: Float64Array, out: Float64Array) -> Float64Array:
    """The largest power of two up to each magnitude, written to `out`: 0 for subnormals of float64, inf for NaN."""
    np.bitwise_and(values.view(np.int64), _EXPONENT_BITS, out=out.view(np.int64))
    return out


def float_format(dtype: npt.DTypeLike) -> FloatFormat:
    """The format of a floating dtype, of the parts of a complex one. Raises ValueError on integers and bool."""
    name = dtype_name(_resolve(dtype))
    return _format(_COMPLEX_PARTS.get(name, name))


@cache
def _format(name: str) -> FloatFormat:
    if name not in _FLOATS:
        raise ValueError(f"{name} is no floating dtype; known: {', '.join((*_NATIVE_FLOATS, *_NARROW_FLOATS))}")
    dtype = _DTYPES[name]
    limits: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    with np.errstate(all="ignore"):
        overflow = float(np.array(np.inf).astype(dtype).astype(np.float64))
    return FloatFormat(
        name=name,
        precision=int(limits.nmant) + 1,
        min_exponent=int(limits.minexp),
        max=float(limits.max),
        # NumPy gives zero where the processor flushes: float64 has that number of the narrower formats all the same.
        smallest=float(limits.smallest_subnormal) or 2.0 ** (int(limits.minexp) - int(limits.nmant)),
        overflow=overflow,
    )


def widen(array: npt.ArrayLike) -> AnyArray:
    """The array in float64, or complex128 where it is complex: itself where it is that already.

    Exact for every floating dtype; integers beyond 2**53 are rounded.
    """
    values = np.asarray(array)
    wide = np.complex128 if values.dtype.kind == "c" else np.float64
    if values.dtype == wide:
        return values
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return values.astype(wide)


def round_to_spacing(values: Float64Array, spacing: Float64Array) -> Float64Array:
    """The multiple of spacing nearest to each value, ties to even. Exact: spacing holds powers of two."""
    return np.rint(values / spacing) * spacing


def round_to(array: npt.ArrayLike, dtype: npt.DTypeLike) -> AnyArray:
    """Float64 or complex128 values, rounded once to the nearest number of a floating or complex dtype, ties to even.

    Beyond the largest finite number and its half ulp comes inf, or NaN in the formats without infinities (all float8
    but e5m2), or the largest number in float4, where NaN becomes zero. What float8_e8m0fnu lacks, zero and negative
    numbers, becomes NaN; its ties go up.
    Raises ValueError where dtype is no floating one.
    """
    target = _resolve(dtype)
    rounding = float_format(target)
    values = widen(array)
    with np.errstate(all="ignore"):
        # ml_dtypes casts float64 by way of float32, which rounds twice; what lies on the grid already passes unharmed.
        if rounding.name not in _NATIVE_FLOATS:
            values = round_to_spacing(values, rounding.spacing(values))
        return np.asarray(values).astype(target)


_FLOAT4 = np.dtype(ml_dtypes.float4_e2m1fn)


def is_packed(array: AnyArray) -> bool:
    return dtype_name(array.dtype) == PACKED


def unpacked(pairs: AnyArray, axis: int = -1) -> AnyArray:
    """float4_e2m1fn numbers of a packed array, or of its bytes: twice as many along the axis.

    torch packs along the dimension in which elements lie side by side: the last of a row-major tensor, the one before
    of a transposed matrix.
    """
    data = np.moveaxis(pairs, axis, -1).view(np.uint8)
    halves = np.stack([data & 0xF, data >> 4], axis=-1).reshape(*data.shape[:-1], -1)
    return np.moveaxis(halves.view(_FLOAT4), -1, axis)


def packed(values: AnyArray, axis: int = -1) -> AnyArray:
    """The packed array of float4_e2m1fn numbers: half as many along the axis. Raises ValueError where they are odd."""
    codes = np.moveaxis(values, axis, -1).astype(_FLOAT4, copy=False).view(np.uint8)
    if codes.shape[-1] % 2:
        raise ValueError(
            f"{codes.shape[-1]} float4 numbers along axis {axis}, expected an even number: two share a byte"
        )
    pairs = (codes[..., ::2] & 0xF) | (codes[..., 1::2] << 4)
    return np.moveaxis(pairs.astype(np.uint8).view(numpy_dtype(PACKED)), -1, axis)


def ulp(reference: npt.ArrayLike, dtype: npt.DTypeLike) -> Float64Array:
    """The unit in the last place of a dtype at each reference value, of the same shape, in float64.

    2**(max(floor(log2 |r|), min_exponent) - precision + 1): at zero and among subnormals the smallest subnormal,
    beyond the largest finite number the ULP of the largest, NaN at inf and NaN. Complex: the larger of both parts'.
    Raises ValueError where dtype is no floating or complex one.
    """
    values = widen(reference)
    if values.dtype.kind == "c":
        return np.maximum(ulp(values.real, dtype), ulp(values.imag, dtype))
    spacing, finite = float_format(dtype).spacing(values), np.isfinite(values)
    return spacing if finite.all() else np.where(finite, spacing, np.nan)


def ulp_distance(actual: npt.ArrayLike, reference: npt.ArrayLike, dtype: npt.DTypeLike) -> Float64Array:
    """|actual - reference| in units in the last place of dtype at the reference, fractional, never NaN.

    0 where both are NaN, or inf of one sign, or where the reference lies beyond the largest finite number and actual
    is what the dtype puts there (inf, or NaN in formats without infinities); inf where just one of them is NaN or inf
    otherwise. Complex: the larger of both parts'. Raises ValueError where dtype is no floating or complex one.
    """
    values, expected = widen(actual), widen(reference)
    if "c" in (values.dtype.kind, expected.dtype.kind):
        return np.maximum(
            ulp_distance(values.real, expected.real, dtype), ulp_distance(values.imag, expected.imag, dtype)
        )
    layout = float_format(dtype)
    # Where the process flushes subnormal numbers float64's spacing at zero is zero.
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        distance = np.abs(values - expected) / layout.spacing(expected)
        # One reduction finds every NaN and inf.
        if not np.isfinite(distance.max(initial=0.0)):
            nonfinite, penalty = nonfinite_distance(values, expected, layout)
            distance = np.where(nonfinite, penalty, np.where(values == expected, 0.0, distance))
    return np.asarray(distance)


def nonfinite_distance(
    actual: Float64Array, reference: Float64Array, layout: FloatFormat
) -> tuple[BoolArray, Float64Array]:
    """Where actual or reference is NaN or inf, and the distance there: 0 where they are alike, otherwise inf."""
    nonfinite = ~(np.isfinite(actual) & np.isfinite(reference))
    return nonfinite, np.where(alike(actual, layout.overflowed(reference)), 0.0, np.inf)


def alike(actual: Float64Array, expected: Float64Array) -> BoolArray:
    """Where both are the same value, NaN being like NaN and -0 like 0."""
    same: BoolArray = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    return same


def truncated(expected: AnyArray, dtype: np.dtype) -> AnyArray:
    """float64 numbers cut towards zero to a dtype."""
    nearest = widen(round_to(expected, dtype))
    above = np.abs(nearest) > np.abs(expected)
    with np.errstate(invalid="ignore", over="ignore"):
        below = widen(round_to(nearest - np.copysign(ulp(expected, dtype), nearest), dtype))
    return np.where(above, below, nearest)
