"""Finiteness alone: is what is inf or NaN explained?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec.structs import replace

from pytest_probe.errors import Unsupported
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OVERFLOW, Element, Outcome, OutputVerdict
from pytest_probe.numerics.dtypes import (
    AnyArray,
    BoolArray,
    float_format,
    is_complex,
    is_floating,
    numpy_dtype,
    round_to,
    widen,
)
from pytest_probe.standards.exact import elements
from pytest_probe.standards.noise.explanation import OWN_KERNEL, overflows_inside, whose_result

# normal: the reference is beyond the dtype's range, or not finite itself. abnormal: it is neither. saturated: the
# device gives its largest number where the reference is beyond that. missed: another finite one.
_Overflow: TypeAlias = Literal["normal", "abnormal", "saturated", "missed"]
INHERITED = "inherited overflow"
# Roundoffs of the dtype by which a reference near its largest number may lie on either side of it.
_EDGE = 4.0
_OUTCOMES: dict[_Overflow, Outcome] = {"normal": "pass", "abnormal": "error", "missed": "error", "saturated": "warning"}
# No run has the numbers that a device draws, or finds in memory.
_UNKNOWN = frozenset(("random", "uninitialised"))


class Finite:
    """Every element that is inf or NaN is one in the reference's float64 too, once that is rounded to the dtype, and
    the other way round. What inputs bring with them is nobody's fault here."""

    name = "finite"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        dtype = comparison.actual.dtype
        if not (is_floating(dtype) or is_complex(dtype)):
            return _verdict(comparison, "pass", "", {})
        lost = ~np.isfinite(_wide(comparison.actual))
        beyond = _beyond(comparison.expected, dtype)
        if not (lost.any() or beyond.any()):
            return _verdict(comparison, "pass", "", {})
        if not comparison.classes.isdisjoint(_UNKNOWN):
            raise Unsupported(f"{comparison.call.name} gives random values, some of them not finite", "random values")
        return self._explained(comparison, lost, beyond)

    def _explained(self, comparison: Comparison, lost: BoolArray, beyond: BoolArray) -> OutputVerdict:
        """The verdict where either side has elements that are not finite."""
        # Where the reference is so near to the largest number that rounding decides on which side it lies.
        dtype = comparison.actual.dtype
        largest, narrow = _largest(dtype), np.empty(0, dtype).real.dtype if is_complex(dtype) else dtype
        with np.errstate(invalid="ignore"):
            away = np.abs(np.abs(comparison.expected) - largest)
            near = np.asarray(away <= _EDGE * float_format(narrow).roundoff * largest)
        abnormal, missed = lost & ~beyond & ~near, beyond & ~lost & ~near
        saturated = missed & (np.abs(_wide(comparison.actual)) >= largest)
        if (abnormal | (missed & ~saturated)).any():
            # What steps in the device's own precision do, or inputs that are rounded otherwise, is no fault.
            for run in _runs(comparison):
                over = _beyond(run, dtype)
                abnormal &= ~over
                missed &= over
        inside = abnormal & overflows_inside(comparison) if abnormal.any() else abnormal
        abnormal &= ~inside
        abnormal |= _turned(comparison, lost & beyond)
        missed, saturated = missed & ~saturated, missed & saturated
        for kind, where in (("abnormal", abnormal), ("missed", missed)):
            if where.any():
                return self._overflow_verdict(comparison, kind, where, lost, beyond)
        if inside.any():
            found = self._overflow_verdict(comparison, "abnormal", inside, lost, beyond)
            return replace(
                found, verdict="warning", reason=f"{whose_result(comparison)}'s {OWN_KERNEL}: {found.reason}"
            )
        # Are all arguments, and incoming gradients, numbers?
        arrays = [*comparison.case.incoming.values(), *comparison.call.all_arrays]
        numbers = (_wide(array) for array in arrays if is_floating(array.dtype) or is_complex(array.dtype))
        if not all(bool(np.isfinite(array).all()) for array in numbers):
            raise Unsupported(f"{comparison.name} is not finite, and neither is an argument", INHERITED)
        if saturated.any():
            return self._overflow_verdict(comparison, "saturated", saturated, lost, beyond)
        return self._overflow_verdict(comparison, "normal", lost, lost, beyond)

    def _overflow_verdict(
        self, comparison: Comparison, kind: Any, where: BoolArray, lost: BoolArray, beyond: BoolArray
    ) -> OutputVerdict:
        metrics = {OVERFLOW: kind, "not_finite": int(lost.sum()), "not_finite_expected": int(beyond.sum())}
        dtype, outcome = comparison.actual.dtype, _OUTCOMES[kind]
        count = f"{int(where.sum()):,} of {where.size:,} elements"
        words = {
            "normal": f"{count} are inf or NaN, as the reference is in {dtype.name}",
            "abnormal": f"{count} are inf or NaN where the reference is a number that {dtype.name} holds",
            "missed": f"{count} are finite where the reference is not, in {dtype.name}",
            "saturated": f"{count} are {_largest(dtype):.6g}, the largest number of {dtype.name}, in the place of inf",
        }
        worst = elements(comparison, where) if outcome != "pass" else ()
        return _verdict(comparison, outcome, f"{kind}: {words[kind]}", metrics, worst)


def _verdict(
    comparison: Comparison, outcome: Outcome, reason: str, metrics: dict[str, Any], worst: tuple[Element, ...] = ()
) -> OutputVerdict:
    actual = comparison.actual
    return OutputVerdict(comparison.name, actual.shape, actual.dtype.name, outcome, Finite.name, reason, metrics, worst)


def _wide(array: AnyArray) -> AnyArray:
    return array if is_complex(array.dtype) else widen(array)


def _largest(dtype: np.dtype[Any]) -> float:
    """The largest finite number; of a complex dtype, that of its parts."""
    return float_format(np.empty(0, dtype).real.dtype if is_complex(dtype) else dtype).max


def _beyond(values: AnyArray, dtype: np.dtype[Any]) -> BoolArray:
    """Where values, rounded to the dtype, are not finite."""
    with np.errstate(all="ignore"):
        if is_complex(dtype):
            return np.asarray(~np.isfinite(np.asarray(values).astype(dtype)))
        return np.asarray(~np.isfinite(widen(np.asarray(round_to(values, dtype)))))


def is_beyond(values: Any, dtype: str) -> bool:
    """Is any of the values, rounded to this dtype, not finite?"""
    return bool(_beyond(np.asarray(values), numpy_dtype(dtype)).any())


def _turned(comparison: Comparison, both: BoolArray) -> BoolArray:
    """Where an infinity has the other sign than the number of the reference, which is beyond the range."""
    if is_complex(comparison.actual.dtype):
        return np.zeros(both.shape, dtype=bool)
    wide, expected = widen(comparison.actual), comparison.expected
    return np.asarray(both & np.isinf(wide) & np.isfinite(expected) & (np.sign(wide) != np.sign(expected)))


def _runs(comparison: Comparison) -> Iterator[AnyArray]:
    """Runs whose steps overflow as a device's may, and on another device the CPU's own result."""
    evidence, shape = comparison.evidence, comparison.expected.shape
    yield from (run for run in evidence.perturbed(2) if run.shape == shape)
    if comparison.roundoff == float_format("float32").roundoff:
        yield from (run for run in evidence.float32_steps(1) if run.shape == shape)
    if comparison.case.narrow:
        yield from (run for run in evidence.narrow_steps(1) if run.shape == shape)
    own = evidence.cpu_result()
    if own is not None and own.shape == shape:
        yield _wide(own)
