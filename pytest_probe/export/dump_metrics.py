"""What ptdbg_ascend 2.3 and 4.0 and msprobe 1.0.4 print of two arrays, to the letter: metrics, then a message.

2.3 takes values as they are. The others put 0 where both sides are equally NaN or inf, and add the dtype's eps to both
sides where B is 0, which their other metrics see as well; 4.0 divides first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from pytest_probe.numerics.arrays import PASS, blocks
from pytest_probe.numerics.dtypes import AnyArray

# Cosine, MaxAbsErr, in newer tools MaxRelativeErr and the shares of elements within a thousandth and five thousandths;
# and the message.
Columns: TypeAlias = tuple[str, ...]
NO_BENCH = "No bench data matched."
_EPS = np.finfo(float).eps
_SCALAR, _EMPTY = (f"This is {kind}, can not compare." for kind in ("type of scalar data", "empty data"))
_SHAPES = "Shape of NPU and bench Tensor do not match. Skipped."
_PLACES = "The position of inf or nan in NPU and bench Tensor do not match."
_ONE = "This tensor is scalar."
_ZERO = "Cannot compare by Cosine Similarity, All the data is Zero in {} dump data."
_NAN = "Cannot compare by Cosine Similarity, the dump data has NaN."
_QUOTIENT = "Cannot compare by MaxRelativeError, the data contains nan in dump data."
_FUZZY = " Fuzzy matching data, the comparison accuracy may be affected."


def older(a: AnyArray, b: AnyArray) -> Columns:
    """2.3's."""
    a, b = _readable(a), _readable(b)
    if not a.ndim:
        cosine = int(np.all(a == b)) if a.dtype == bool else 1
        return str(cosine), f"{_distance(a, b):.6f}", _SCALAR
    if not a.size:
        return "1", "0", _EMPTY
    if a.shape != b.shape:
        return "shape unmatched", "shape unmatched", _SHAPES
    found = _sums(a, b, "as they are")
    cosine_text, message = ("1.000000", _ONE) if found.size == 1 else found.cosine(6)
    return cosine_text, f"{found.largest:.6f}", message


def newer(a: AnyArray, b: AnyArray, *, renamed: bool = False) -> Columns:
    """4.0's; renamed: the sides have other names for it."""
    a, b = _readable(a), _readable(b)
    if not a.ndim and not b.ndim:
        return _of_scalars(a, b)
    if not a.size:
        return "unsupported", "0", "0", "0", "0", _EMPTY
    if a.shape != b.shape:
        return (*("shape unmatched",) * 5, _SHAPES)
    found = _sums(a, b, "divided first")
    if not found.alike:
        return (*("N/A",) * 5, _PLACES)
    cosine = "unsupported" if found.size == 1 else found.cosine(12)[0]
    message = (_QUOTIENT if math.isnan(found.quotient) else "") + (_FUZZY if renamed else "")
    return cosine, f"{found.largest:.12f}", *found.quotients(), message


def msprobe(a: AnyArray, b: AnyArray, *, renamed: bool = False) -> Columns:
    """msprobe's, of real data; renamed: the sides have other names for it."""
    a, b = _readable(a), _readable(b)
    fuzzy = _FUZZY if renamed else ""
    if not a.size:
        return "unsupported", "0", "0", "0", "0", _EMPTY + fuzzy
    if a.shape != b.shape:
        return (*("shape unmatched",) * 5, _SHAPES + fuzzy)
    if not a.ndim:
        _, largest, quotient, *_ = _of_scalars(a, b)
        message = _SCALAR + (_QUOTIENT if quotient == "Nan" else "")
        return "unsupported", _as_float(largest), _as_float(quotient), "Nan", "Nan", message + fuzzy
    found = _sums(a, b, "finite first")
    if not found.alike:
        return (*("N/A",) * 5, _PLACES + fuzzy)
    cosine, message = ("unsupported", _ONE) if found.size == 1 else found.cosine(12)
    message += _QUOTIENT if math.isnan(found.quotient) else ""
    numbers = map(_as_float, (_text(found.largest), *found.quotients()))
    if cosine not in ("Nan", "unsupported"):
        # One near 1 has six digits.
        cosine = repr(round(float(cosine), 6) if float(cosine) > 0.9999 else float(cosine))
    return cosine, *numbers, message + fuzzy


def _of_scalars(a: AnyArray, b: AnyArray) -> Columns:
    x, y = a.copy(), b.copy()
    quotient = _text(np.max(_quotients(x, y)))
    return "unsupported", f"{_distance(x, y):.12f}", quotient, "Nan", "Nan", _SCALAR


def accuracy(columns: Columns, *, is_older: bool = False, none: str = "Nan") -> str:
    """ "Yes" or "No", "Unmatched" shapes, or `none` where columns tell neither, which msprobe calls "None"."""
    cosine, largest = columns[:2]
    if cosine == "shape unmatched":
        return "Unmatched"
    if none in (cosine, largest):
        return none
    if "N/A" in (cosine, largest):
        return "No"
    try:
        likeness, distance = float(cosine), float(largest)
    except ValueError:
        return none
    alone = not is_older and (likeness < 0.9 or distance > 1)
    return "No" if (likeness < 0.99 and distance > 0.001) or alone else "Yes"


def not_found(file: str) -> Mapping[str, Columns]:
    """What the tools print of values that cannot be read, by the fields of a row."""
    message = f"Dump file: {file} not found."
    return {
        "ptdbg_23": ("Nan", "Nan", f"Dump file:{file} not found"),
        "ptdbg_40": (*("Nan",) * 5, message),
        "msprobe": (*("None",) * 5, message),
    }


class _Sums(Struct, frozen=True):
    """Sums over two arrays; alike: NaN and inf are at the same places. below: how many quotients are less than a
    thousandth, and than five."""

    size: int
    product: float = 1.0
    squares: tuple[float, float] = (1.0, 1.0)
    largest: float = 0.0
    quotient: float = 0.0
    below: tuple[int, int] = (0, 0)
    alike: bool = True

    def cosine(self, digits: int) -> tuple[str, str]:
        """With the message."""
        a, b = map(math.sqrt, self.squares)
        if a <= _EPS and b <= _EPS:
            return "1.0", ""
        if a <= _EPS or b <= _EPS:
            return "Nan", _ZERO.format("npu" if a <= _EPS else "Bench")
        with np.errstate(invalid="ignore"):
            found = np.float64(self.product) / (np.float64(a) * b)
        if np.isnan(found):
            return "Nan", _NAN
        text = f"{found:.{digits}f}"
        return ("1.0" if float(text) > 0.99999 else text), ""

    def quotients(self) -> tuple[str, ...]:
        return _text(self.quotient), *(_text(count / self.size) for count in self.below)


def _sums(a: AnyArray, b: AnyArray, how: str) -> _Sums:
    if (a is b or (a.dtype == b.dtype and np.array_equal(a, b))) and np.isfinite(a).all():
        return _Sums(a.size, below=(a.size, a.size))
    pieces = zip(*(_of_piece(one, other, how) for one, other in blocks(a, b, PASS)), strict=True)
    product, ones, others, largest, quotient, thousandth, five, alike = map(np.array, pieces)
    with np.errstate(invalid="ignore", over="ignore"):
        squares, below = (float(ones.sum()), float(others.sum())), (int(thousandth.sum()), int(five.sum()))
        most = float(largest.max()), float(quotient.max())
        return _Sums(a.size, float(product.sum()), squares, *most, below, bool(alike.all()))


def _of_piece(one: AnyArray, other: AnyArray, how: str) -> tuple[Any, ...]:
    """how: values "as they are", "divided first", or "finite first", before they are divided."""
    with np.errstate(all="ignore"):
        alike = all(np.array_equal(kind(one), kind(other)) for kind in (np.isinf, np.isnan))
        x, y, quotients = one.copy(), other.copy(), np.zeros(1)
        if how == "finite first":
            x[~np.isfinite(x)], y[~np.isfinite(y)] = 0, 0
        if how != "as they are":
            quotients = _quotients(x, y)
            x[~np.isfinite(x)], y[~np.isfinite(y)] = 0, 0
        x, y = x.astype(float), y.astype(float)
        below = np.sum(quotients < 0.001), np.sum(quotients < 0.005)
        return x.dot(y), x.dot(x), y.dot(y), np.max(np.abs(x - y)), np.max(quotients), *below, alike


def _quotients(x: AnyArray, y: AnyArray) -> AnyArray:
    """|(x - y) / y| in their own dtype; adds eps to both, in place where they are floats, where y is 0."""
    if not all(np.issubdtype(side.dtype, np.floating) for side in (x, y)):
        x, y = x.astype(float), y.astype(float)
    zero, eps = y == 0, np.finfo(y.dtype).eps
    y[zero] += eps
    x[zero] += eps
    with np.errstate(all="ignore"):
        return np.asarray(np.abs((x - y) / y))


def _readable(array: AnyArray) -> AnyArray:
    """As the tools have it in a file: narrow floats that NumPy lacks in float32, complex numbers as their parts."""
    if array.dtype.kind == "c":
        return np.stack((array.real, array.imag), axis=-1)
    return array.astype(np.float32) if array.dtype.kind not in "fiub" else array


def _distance(a: AnyArray, b: AnyArray) -> float:
    with np.errstate(all="ignore"):
        return float(np.max(np.abs(a.astype(float) - b.astype(float) if "b" in a.dtype.kind + b.dtype.kind else a - b)))


def _text(value: float) -> str:
    return "Nan" if math.isnan(value) else f"{value:.12f}"


def _as_float(text: str) -> str:
    return text if text == "Nan" else repr(float(text))
