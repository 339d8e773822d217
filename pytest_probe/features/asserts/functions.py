"""Which functions compare two arrays, and what tolerance they give each element. Nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytest_probe.numerics import TOLERANCES

# By package, in whose module `testing` they are. The first two parameters of each are the sides.
FUNCTIONS: Mapping[str, frozenset[str]] = {
    "torch": frozenset(("assert_close", "assertEqual")),
    "numpy": frozenset(
        (
            "assert_allclose",
            "assert_almost_equal",
            "assert_array_almost_equal",
            "assert_array_almost_equal_nulp",
            "assert_array_equal",
            "assert_array_max_ulp",
            "assert_equal",
        )
    ),
}
# What an assert asks, of whatever package, with the tolerances of those of NumPy, which all share.
PREDICATES: Mapping[str, Mapping[str, float]] = {
    "allclose": {"rtol": 1e-5, "atol": 1e-8},
    "array_equal": {"rtol": 0.0, "atol": 0.0},
    "equal": {"rtol": 0.0, "atol": 0.0},
}
# The bits of a dtype's significand that are stored.
_BITS: Mapping[str, int] = {
    "bfloat16": 7, "float16": 10, "float32": 23, "complex64": 23, "float64": 52, "complex128": 52,
}  # fmt: skip


def narrower(dtypes: Iterable[str]) -> str:
    """The floating dtype of fewest bits among these names, "" where there is none."""
    return min((dtype for dtype in dtypes if dtype in _BITS), key=_BITS.__getitem__, default="")


def one_ulp(dtype: str) -> float:
    """The distance of 1 to the next number of a floating dtype."""
    return 2.0 ** -_BITS[dtype]


def is_assert(module: str, function: str) -> bool:
    """Is this function, of a module of this name, one of them?"""
    package, _, inside = module.partition(".")
    return inside.startswith("testing") and function in FUNCTIONS.get(package, ())


def tolerance(given: Mapping[str, Any], dtypes: Iterable[str]) -> tuple[float, float]:
    """rtol and atol of an assert: what it lets pass is atol + rtol * |expected|. given has what it was given, by name;
    dtypes are the names of both sides'."""
    names = list(dtypes)
    if "decimal" in given:
        # numpy.testing.assert_almost_equal: abs(desired - actual) < 1.5 * 10**-decimal.
        return 0.0, 1.5 * 10.0 ** -float(given["decimal"])
    for name in ("nulp", "maxulp"):
        if name in given:
            return float(given[name]) * one_ulp(narrower(names) or "float64"), 0.0
    if "rtol" in given or "atol" in given:
        return float(given.get("rtol", 0.0)), float(given.get("atol", 0.0))
    if "by_dtype" in given:
        pairs = [TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in names]
        return max(rtol for rtol, _ in pairs), max(atol for _, atol in pairs)
    return 0.0, 0.0
