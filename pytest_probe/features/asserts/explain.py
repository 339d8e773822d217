"""What the difference of two arrays looks like, where nothing is known of the call that made them. And where the
test's source says what both sides were computed by: the lines that put a check without a tolerance into the place of an
assert, and the cause that `probe.check` names. Such a check knows the arguments, and runs the reference again with
others.

In: actual and expected, of one shape. Out: metrics, the worst elements, and a diagnosis as failing items have it.
Neither side is exact: the expected one is often computed in the dtype under test, and errs by roundings of its own.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check import Checker, RunRequest
from pytest_probe.features.asserts.failed import CASTS, FailedAssert, source_of, value_of
from pytest_probe.model.comparison import ComparedCase, Comparison, Evidence
from pytest_probe.model.run import BoundCall
from pytest_probe.model.verdict import Diagnosis, Element, OutputVerdict
from pytest_probe.numerics import metrics, regions, statistics
from pytest_probe.numerics.dtypes import (
    NARROW_DTYPES,
    WIDE_DTYPES,
    AnyArray,
    BoolArray,
    Float64Array,
    alike,
    float_format,
    is_floating,
    is_inexact,
    numpy_dtype,
    round_to,
    ulp,
    ulp_distance,
    widen,
)
from pytest_probe.numerics.statistics import has_distinct
from pytest_probe.registry import Registry
from pytest_probe.standards import diagnosis
from pytest_probe.standards.diagnosis.failed_output import (
    MIN_WRONG_ELEMENTS,
    NEARLY_ALL,
    Cause,
    FailedOutput,
    Recogniser,
    is_confined,
)
from pytest_probe.standards.diagnosis.precision import one_step, rounded_inside
from pytest_probe.standards.diagnosis.ranges import constant, not_finite
from pytest_probe.standards.exact import Exact, elements
from pytest_probe.user_errors import allowing_refusal

# Ulps of the narrower dtype, at the element or at the RMS, whichever is larger: what is farther off is no rounding.
_FAR = 2.0
# Ulps of the arithmetic's dtype at the RMS that sums of some thousand terms in two orders differ by at most. Chosen:
# TF32 and bfloat16 inside are off by hundreds and thousands.
_ORDERS = 64.0
# Of the errors, how many more on one side than on the other, and by how many standard errors, have a direction.
_BALANCED, _SIGMAS = 0.35, 4.0
# Elements whose bits are looked at, how many have bits to speak of, and the share of them whose last bit may be 0.
_LOOKED_AT, _MANY, _SHORT = 1 << 16, 32, 0.75

# Causes of what is far off, whose middle is no measure of rounding.
_FURTHER = tuple(cause for cause in diagnosis.CAUSES if cause is not rounded_inside)
# What these give are inputs, and not what is tested.
_MAKERS = frozenset("arange array asarray empty from_numpy full linspace load ones rand randn tensor zeros".split())


def explain(actual: AnyArray, expected: AnyArray) -> tuple[Diagnosis | None, list[str], tuple[Element, ...]]:
    """What the difference of two arrays of one shape, of numbers or bool, looks like, None without one; lines
    that say how large it is; and the worst elements."""
    comparison = _comparison(actual, expected)
    precision, differ = comparison.precision, ~alike(widen(actual), widen(expected))
    if not differ.any():
        return None, [], ()
    with np.errstate(all="ignore"):
        wrong, found = _diagnosis(comparison, differ)
        gap = widen(actual) - comparison.expected
    finite = gap[np.isfinite(gap)]
    size, rmse = _rms(finite), metrics.relative_rmse(actual, comparison.expected).value
    # The mean error in units of the RMS error.
    bias = float(np.abs(finite.mean())) / size if size else 0.0
    equal = 100 * (1 - float(np.mean(differ)))
    lines = [f"equal: {equal:.3g} %; relative RMSE {rmse:.3g}; bias {bias:.2g} of the RMS error"]
    # In ulps of the narrower dtype; of integers their differences.
    distances, unit = np.abs(gap), ""
    if precision.kind not in "iub":
        distances, unit = ulp_distance(comparison.actual, comparison.expected, precision), " ULP"
        most = np.quantile(distances, 0.99, method="nearest")
        lines.append(
            f"ULP of {precision.name}: largest {distances.max():.4g}, mean {distances.mean():.4g}, "
            f"99 % at most {most:.4g}"
        )
    if differ.size > 1:
        lines.append(f"error: {statistics.spread_line(distances)}{unit}")
    worst = elements(comparison, wrong)
    return found, lines, tuple(replace(each, ulp=float(distances[each.index])) for each in worst)


def _comparison(actual: AnyArray, expected: AnyArray) -> Comparison:
    """As a standard has one, of a call with no arguments."""
    floats = [held_dtype(side) for side in (actual, expected) if is_inexact(side.dtype)]
    if floats and len(floats) < 2:
        actual = actual.astype(expected.dtype if is_floating(expected.dtype) else actual.dtype)
    precision = min(floats, key=lambda dtype: float_format(dtype).precision) if floats else actual.dtype
    wide = all(dtype in WIDE_DTYPES for dtype in floats)
    return Comparison(
        name="",
        case=ComparedCase(BoundCall("", "", False, False, {}, {}, {}), frozenset(), "forward", "", False),
        actual=actual,
        expected=widen(expected),
        precision=precision,
        roundoff=2.0**-53 if wide else 2.0**-24,
        evidence=Evidence(),
    )


def held_dtype(side: AnyArray) -> np.dtype[Any]:
    """The dtype whose numbers an array holds: bfloat16 or float16 where a wider one was made of it, as tests do to
    compare. Whole and other short numbers are no sign of that: of those made of 16 bit half need the last bit."""
    values = side.ravel()[:: max(1, side.size // _LOOKED_AT)]
    if not is_floating(side.dtype) or side.dtype.itemsize <= 2:
        return side.dtype
    values = values[np.isfinite(values) & (values != 0)].astype(np.float64)
    if values.size < _MANY:
        return side.dtype
    for dtype in map(numpy_dtype, NARROW_DTYPES):
        # Zeros of the last bit: the multiples of two ulps.
        steps = values / ulp(values, dtype)
        if np.all(steps == np.rint(steps)) and np.mean(steps % 2 == 0) < _SHORT:
            return dtype
    return side.dtype


def _diagnosis(comparison: Comparison, differ: BoolArray) -> tuple[BoolArray, Diagnosis]:
    """Which elements are wrong, and what explains them: rounding, or the first cause of the elements that are farther
    off."""
    floating = comparison.precision.kind not in "iub"
    own = ulp(comparison.expected, comparison.precision) if floating else np.zeros(differ.shape)
    stages: list[tuple[BoolArray, Float64Array, Sequence[Recogniser]]] = [(differ, own, (rounding,))]
    if has_distinct(comparison.expected[differ], MIN_WRONG_ELEMENTS):
        unit = np.maximum(own, ulp(_rms(comparison.expected), comparison.precision)) if floating else own
        far = differ & ~(np.abs(widen(comparison.actual) - comparison.expected) <= _FAR * unit)
        stages += [(far, unit, _FURTHER)] if far.any() else []
        # What is nearer has the form of many causes by chance.
        stages += [(differ, own, (one_step, rounded_inside))]
    else:
        # A few numbers are a factor, an offset and a limit of a few others, whatever made them.
        stages += [(differ, own, (not_finite, zeros))]
    tried = []
    for wrong, allowed, causes in stages:
        verdict = OutputVerdict("", wrong.shape, comparison.actual.dtype.name, "error", Exact.name)
        found = diagnosis.diagnose_elements(Exact(), comparison, verdict, wrong, allowed, "quick", causes)
        if found.cause:
            return wrong, found
        tried.append((wrong, found))
    return next((each for each in tried if is_confined(each[1].where)), tried[-1])


def _rms(values: Float64Array) -> float:
    finite = values[np.isfinite(values)]
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.mean(np.abs(finite) ** 2))) if finite.size else 0.0


def zeros(failed: FailedOutput) -> Cause | None:
    """Zeros where other numbers are expected, or the other way round."""
    only = any(not side[failed.wrong].any() for side in (failed.actual, failed.expected))
    return constant(failed) if only else None


def rounding(failed: FailedOutput) -> Cause | None:
    """Errors as small as roundings of the narrower dtype, or of sums in another order, and without direction."""
    narrow, roundoff = failed.comparison.precision, failed.comparison.roundoff
    if not failed.floating:
        return None
    error = np.where(alike(failed.actual, failed.expected), 0.0, failed.actual - failed.expected)
    step = 2 * roundoff * _rms(failed.expected)
    once = (error == 0) | (np.abs(error) <= ulp(failed.expected, narrow))
    if not np.all(once | (np.abs(error) <= _ORDERS * step)):
        return None
    sides = ((failed.expected, failed.actual), (failed.actual, failed.expected))
    if not any(np.all(widen(round_to(exact, narrow)) == other) for exact, other in sides):
        # A direction up or down, or to or from zero.
        signs, expected = np.sign(error[error != 0]), failed.expected[error != 0]
        means = (signs.mean(), (signs * np.sign(expected)).mean())
        one_sided = max(abs(float(mean)) for mean in means)
        if one_sided > max(_BALANCED, _SIGMAS / np.sqrt(signs.size)):
            words = f"at most one step of {narrow.name}, always to one side: cut, or a factor near 1"
            small = once.all() and one_sided >= 2 * NEARLY_ALL - 1
            return one_step(failed) or (Cause("precision", words) if small else None)
    # A few results near zero are no place, where others differ elsewhere.
    several = failed.confined or np.count_nonzero(~once) > regions.FEW
    if several and not once.all() and is_confined(regions.describe(~once)):
        return None
    if once.all() or narrow.itemsize < 4:
        return Cause("precision", f"one {narrow.name} rounding explains it")
    words = f"at most {np.abs(error).max() / step:.2g} ulp of the RMS, as sums in another order have"
    return Cause("precision", f"{narrow.name} roundings: {words}")


def replacement(failed: FailedAssert) -> list[str]:
    """Three lines; none where it is not known what gave both sides."""
    calls = compared_calls(failed)
    if calls is None:
        return []
    actual, expected = calls
    kwargs = ", ".join(f'"{each.arg}": {ast.unparse(each.value)}' for each in actual.keywords)
    more = f", kwargs={{{kwargs}}}" if kwargs else ""
    function, reference = ast.unparse(actual.func), ast.unparse(expected.func)
    inputs = ", ".join(map(ast.unparse, actual.args))
    return ["probe.check(", f"    {function}, reference={reference}, inputs=[{inputs}]{more},", ")"]


def compared_calls(failed: FailedAssert) -> tuple[ast.Call, ast.Call] | None:
    """The calls that gave both sides; None where a side is not what one call gave, or both got other arguments."""
    if failed.call is None or failed.statement is None or len(failed.call.args) < 2:
        return None
    tree = ast.parse(source_of(failed.frame))
    # What each name was assigned last before the assert; None where that was another statement.
    values = {
        id(node.targets[0]): node.value for node in ast.walk(tree) if isinstance(node, ast.Assign) and node.targets
    }
    stored = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    lines = range(failed.frame.f_code.co_firstlineno, failed.statement.lineno)
    there = sorted((node for node in stored if node.lineno in lines), key=lambda node: node.lineno)
    before = {node.id: values.get(id(node)) for node in there}
    actual, expected = (_made_by(side, before) for side in failed.call.args[:2])
    if actual is None or expected is None or _arguments(actual) != _arguments(expected):
        return None
    alike = ast.unparse(actual.func) == ast.unparse(expected.func)
    named = all(_is_function(each, failed.frame) for each in (actual.func, expected.func))
    return (actual, expected) if named and not alike else None


def _made_by(side: ast.expr, before: Mapping[str, ast.expr | None]) -> ast.Call | None:
    """The call that gave a side, with positional arguments to give to another function as well."""
    found: ast.expr | None = without_casts(side)
    if isinstance(found, ast.Name):
        found = before.get(found.id)
    found = None if found is None else without_casts(found)
    if not isinstance(found, ast.Call) or not found.args or any(each.arg is None for each in found.keywords):
        return None
    return None if any(isinstance(arg, ast.Starred) for arg in found.args) else found


def without_casts(side: ast.expr) -> ast.expr:
    """Without casts: a check makes its own."""
    while (
        isinstance(side, ast.Call)
        and isinstance(side.func, ast.Attribute)
        and side.func.attr in (*CASTS, "astype", "to")
    ):
        side = side.func.value
    return side


def _is_function(node: ast.expr, frame: FrameType) -> bool:
    """Is it the name of something that is tested, and no method of a tensor or of a number?"""
    name, root = ast.unparse(node), node
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name) or name.rpartition(".")[2] in _MAKERS:
        return False
    owner = frame.f_locals.get(root.id, frame.f_globals.get(root.id))
    return owner is not None and (root is node or not hasattr(owner, "shape"))


def _arguments(call: ast.Call) -> list[str]:
    keywords = sorted((each.arg or "", ast.unparse(each.value)) for each in call.keywords)
    return [ast.unparse(without_casts(arg)) for arg in call.args] + [f"{name}={value}" for name, value in keywords]


def cause_by_check(failed: FailedAssert) -> str:
    """The cause; "" where none is named, or where something would have to be computed to ask for it."""
    calls = compared_calls(failed)
    if calls is None or failed.call is None or frameworks.MODULES[frameworks.DEFAULT] not in sys.modules:
        return ""
    actual, expected = calls
    names = {**failed.frame.f_globals, **failed.frame.f_locals}
    try:
        args = [value_of(arg, names) for arg in actual.args]
        kwargs = {str(each.arg): value_of(each.value, names) for each in actual.keywords}
        reference = value_of(expected.func, names)
    except (AttributeError, KeyError):
        return ""
    side = without_casts(failed.call.args[0])
    try:
        given = value_of(side, names)
    except (AttributeError, KeyError):
        given = failed.actual
    with allowing_refusal():
        # What the test got is judged, and its function not called again.
        checker = Checker(RunRequest(device=str(getattr(given, "device", "cpu"))), Registry.default())
        found = checker.compare(lambda *_, **__: given, reference, args, kwargs, dtype=False)
        causes = (output.diagnosis.cause for output in found[0].outputs if output.diagnosis is not None)
        return next(causes, "")
    return ""
