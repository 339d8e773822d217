"""Why a case proves little: what its arguments and outputs are, by their extremes.

Of a case that ran arrays tell them, of one that did not the statistics of its dump.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

import numpy as np
from msgspec import Struct

from pytest_probe.inputs.role_table import roles
from pytest_probe.inputs.roles import Index
from pytest_probe.model.dump import Call, Direction, TensorSpec, named_tensors
from pytest_probe.model.run import BoundCall
from pytest_probe.numerics.dtypes import AnyArray, is_complex, is_inexact, widen


class Extremes(Struct, frozen=True):
    """A tensor by its extremes, None where they are not known or no numbers. kind is "float", "bool" or "integer"."""

    name: str
    kind: str
    size: int
    low: float | None
    high: float | None

    @classmethod
    def of_array(cls, name: str, array: AnyArray) -> Extremes:
        kind = _kind(array.dtype.name)
        if not array.size:
            return cls(name, kind, 0, None, None)
        # A complex number that is not zero differs from others by its modulus alone.
        wide = np.abs(array) if is_complex(array.dtype) else widen(array) if kind == "float" else array
        low, high = float(wide.min()), float(wide.max())
        known = not (np.isnan(low) or np.isnan(high) or (is_complex(array.dtype) and high))
        return cls(name, kind, array.size, low if known else None, high if known else None)

    @classmethod
    def of_spec(cls, name: str, spec: TensorSpec) -> Extremes:
        kind = _kind(spec.dtype)
        low, high = (None if value is None else float(value) for value in (spec.min, spec.max))
        if low is None and spec.norm == 0:
            low = high = 0.0
        known = low is not None and high is not None and low == low and high == high and not spec.nan
        return cls(name, kind, spec.size, low if known else None, high if known else None)

    @property
    def constant(self) -> bool:
        """Do all of several elements have one value, or are all zero?"""
        return self.low is not None and self.low == self.high and (self.size > 1 or self.low == 0)

    @property
    def zero(self) -> bool:
        return self.low == 0 and self.high == 0

    @property
    def value(self) -> str:
        if self.kind == "bool":
            return str(bool(self.low))
        return f"{self.low:.6g}"

    def __str__(self) -> str:
        return f"{self.name} is all zeros" if self.zero and self.kind == "float" else f"{self.name} is all {self.value}"


def _kind(dtype: str) -> str:
    if dtype == "bool":
        return "bool"
    return "float" if is_inexact(dtype) else "integer"


def hidden_by(arguments: Sequence[Extremes], outputs: Sequence[Extremes], bound: BoundCall) -> str:
    """What makes all outputs constant: an argument, a number, or the values of all."""
    floats = [each for each in arguments if each.kind == "float"]
    zeros = [each for each in floats if each.zero]
    masks = [each for each in arguments if each.kind == "bool" and each.constant]
    for each in (*zeros, *masks):
        return str(each)
    if bound.argument("p") == 1:
        return "p is 1, so that everything is dropped"
    if floats and all(each.constant for each in floats):
        return "each input is one number everywhere"
    return str(outputs[0])


def choosing(call: Call, bound: BoundCall) -> frozenset[str]:
    """The paths of labels and indices, in a recorded call that is bound with its own arguments."""
    return frozenset(path for path, role in roles(bound, call).items() if isinstance(role, Index))


def one_choice(arguments: Iterable[Extremes], paths: Container[str]) -> str:
    """The labels or indices at these paths that are all alike; "" where none are."""
    alike = (each for each in arguments if each.kind == "integer" and each.constant and each.name in paths)
    return next((str(each) for each in alike if each.size > 1), "")


def predicted(call: Call, direction: Direction, bound: BoundCall, classes: frozenset[str]) -> str:
    """Why a record's case will prove little, from the statistics in its dump; "" where they show nothing."""
    arguments = [Extremes.of_spec(*each) for each in call.tensors()]
    incoming: list[Extremes] = []
    if direction == "backward":
        given = call.gradients or ()
        incoming = [Extremes.of_spec(f"incoming gradient {place}", spec) for place, spec in enumerate(given) if spec]
        if incoming and all(each.zero for each in incoming):
            return str(incoming[0])
        outputs = [Extremes.of_spec(f"grad.{name}", spec) for name, spec in (call.outgoing or {}).items() if spec]
        # A gradient may be one number everywhere, as that of a sum is.
        outputs = [each for each in outputs if each.kind == "float"]
        hidden = bool(outputs) and all(each.zero for each in outputs)
    else:
        outputs = [Extremes.of_spec(*each) for each in named_tensors(call.outputs or (), "output")]
        outputs = [each for each in outputs if each.kind == "float"]
        hidden = bool(outputs) and all(each.constant for each in outputs)
    if not outputs and direction == "forward":
        return ""
    if hidden:
        reason = hidden_by([*arguments, *incoming], outputs, bound)
        # Copies and factories give constant numbers as they should, unless an argument hides what would show.
        if "exact" not in classes or reason != str(outputs[0]):
            return reason
    return one_choice(arguments, choosing(call, bound))
