"""Which functions compare two arrays, what tolerance they give each element, and how much of it each passing assert
uses: the functions are replaced by ones that measure afterwards. Nothing heavy is imported.

What is measured of an assert is two numbers. By how many times the tolerance the worst element is off: so many times
the tolerance would do. And the largest expected number, which says what else would pass.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType, ModuleType
from typing import Any

from pytest_probe.capture.children import watch_imports
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
    """The floating dtype of fewest bits among these names, "" without one."""
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


# A wrong scale that a test should find.
FACTOR = 1.05
# By module what is replaced in it.
_NAMES: Mapping[str, frozenset[str]] = {
    **{f"{package}.testing": names for package, names in FUNCTIONS.items()},
    **dict.fromkeys(("torch", "numpy", "jax.numpy", "paddle"), frozenset(("allclose",))),
}
# Of built-in functions, which do not say.
_OPERANDS: tuple[str, ...] = ("input", "other", "rtol", "atol")


class Measuring:
    """A function in the place of another one, with the name and the looks of it. asked: it answers, and asserts
    nothing itself."""

    def __init__(self, measured: Measured, name: str, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._measured = measured
        self.name, self.function, self.asked = name, function, name in PREDICATES
        # The names of the parameters, and the defaults of tolerances.
        self.parameters, self.defaults = _OPERANDS, dict[str, Any](PREDICATES["allclose"])
        with suppress(ValueError):
            found = inspect.signature(function).parameters
            self.parameters = tuple(name for name in found if name != "self")
            names = [name for name in ("rtol", "atol", "decimal", "nulp", "maxulp") if name in found]
            given = {name: found[name].default for name in names}
            self.defaults = {name: each for name, each in given.items() if each is not inspect.Parameter.empty}
            if self.defaults.get("rtol", 0) is None:
                self.defaults["by_dtype"] = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return self._measured.after(self, sys._getframe(1), args, kwargs)

    def __repr__(self) -> str:
        return repr(self.function)


class Measured:
    """Counts by function, tolerance and dtype, of one test at a time.

    rows: how many asserts; the largest share of the tolerance that one used; how many would pass zeros, and how many
    FACTOR times the expected numbers. What could not be measured counts alone.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, float, float, str], list[float]] = {}
        self._busy = False
        self._replaced: list[tuple[Any, str, Any]] = []
        self._by_original: dict[int, Measuring] = {}

    def taken(self) -> list[list[Any]]:
        """The rows since the last time, as plain lists."""
        rows, self.rows = self.rows, {}
        return [[*key, *values] for key, values in rows.items()]

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """Measure in here, by whatever name of a package, once it is imported."""

        def replace(module: str) -> None:
            for name in _NAMES[module]:
                function = getattr(sys.modules[module], name, None)
                if function is not None and not isinstance(function, Measuring):
                    wrapped = self._by_original.setdefault(id(function), Measuring(self, name, function))
                    self._set(sys.modules[module], name, function, wrapped)

        with watch_imports(_NAMES, replace):
            try:
                yield
            finally:
                for owner, name, function in reversed(self._replaced):
                    setattr(owner, name, function)

    def replace_in(self, modules: list[ModuleType]) -> None:
        """And in modules that had the functions by a name of their own before."""
        for module in modules:
            for name, value in list(vars(module).items()):
                wrapped = self._by_original.get(id(value))
                if wrapped is not None:
                    self._set(module, name, value, wrapped)

    def _set(self, owner: ModuleType, name: str, function: Any, wrapped: Any) -> None:
        self._replaced.append((owner, name, function))
        setattr(owner, name, wrapped)

    def after(self, function: Measuring, caller: FrameType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a function, and measure if it passes. The asserts inside another one are not the test's."""
        __tracebackhide__ = True
        if self._busy:
            return function.function(*args, **kwargs)
        self._busy = True
        try:
            result = function.function(*args, **kwargs)
            if not function.asked or (result and caller.f_lineno in _lines(caller.f_code.co_filename)):
                given = {**function.defaults, **dict(zip(function.parameters, args, strict=False)), **kwargs}
                self._add(function.name, given, function.parameters)
        finally:
            self._busy = False
        return result

    def _add(self, name: str, given: Mapping[str, Any], parameters: tuple[str, ...]) -> None:
        rtol = atol = used = top = 0.0
        dtypes: list[str] = []
        try:
            actual, expected = given[parameters[0]], given[parameters[1]]
            dtypes = [str(side.dtype).rpartition(".")[2] for side in (actual, expected) if hasattr(side, "dtype")]
            rtol, atol = tolerance({key: value for key, value in given.items() if value is not None}, dtypes)
            if rtol or atol:
                if hasattr(actual, "detach") and hasattr(expected, "detach"):
                    used, top = _used(_wide(actual), _wide(expected), rtol, atol)
                else:
                    from numpy import asarray, errstate

                    with errstate(all="ignore"):  # whose warnings would be the test's
                        used, top = _used(_wide(asarray(actual)), _wide(asarray(expected)), rtol, atol)
        except Exception:
            # No arrays, or none that can be measured: nothing that a test should notice.
            rtol = atol = 0.0
        row = self.rows.setdefault((name, rtol, atol, narrower(dtypes)), [0, 0.0, 0, 0])
        row[0] += 1
        row[1] = max(row[1], used)
        row[2] += top > 0 and top * (1 - rtol) <= atol
        row[3] += top > 0 and top * (FACTOR - 1 - rtol) <= atol


def _used(one: Any, other: Any, rtol: float, atol: float) -> tuple[float, float]:
    """The largest |actual - expected| / (atol + rtol |expected|), and the largest |expected|, of finite numbers; by the
    operations of the arrays' own framework, on their device."""
    size = abs(other)
    used, top = float((abs(one - other) / (size * rtol + atol)).max()), float(size.max())
    if used - used == 0 and top - top == 0:
        return used, top
    finite = abs(one - other) + size
    kept = finite - finite == 0
    size, gap = size[kept], abs(one - other)[kept]
    times = gap / (size * rtol + atol)
    times = times[times == times]
    return float(times.max()) if len(times) else 0.0, float(size.max()) if len(size) else 0.0


def _wide(side: Any) -> Any:
    """In float32 or wider, of a tensor without its gradient."""
    if hasattr(side, "detach"):
        side = side.detach()
        wide = side.dtype.itemsize > 2 and (side.dtype.is_floating_point or side.dtype.is_complex)
        return side if wide else side.float()
    wide = side.dtype.kind in "fc" and side.dtype.itemsize > 2
    return side if wide else side.astype("float32")


@functools.cache
def _lines(file: str) -> frozenset[int]:
    """The lines of a file's asserts, and of calls of assertTrue and the like."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return frozenset()
    found: set[int] = set()
    for node in ast.walk(tree):
        calls = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr[:6] == "assert"
        if isinstance(node, ast.stmt | ast.expr) and (isinstance(node, ast.Assert) or calls):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(found)
