"""The verdict on a case, from those on its outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_probe.execution.arguments import floats_of, mapped
from pytest_probe.execution.replay import Replay
from pytest_probe.frameworks.base import Array, Leaf
from pytest_probe.numerics.dtypes import AnyArray, is_complex, widen
from pytest_probe.standards.verdict import SEVERITY, ArgumentRow, OutputVerdict, Verdict, conclusion


def summed(standard: str, outputs: tuple[OutputVerdict, ...], replay: Replay) -> Verdict:
    outcome, reason = conclusion(outputs)
    rows = _rows(replay) if SEVERITY[outcome] > SEVERITY["pass"] else ()
    names = sorted({dtype.name for dtype in floats_of(replay.leaves).values()})
    return Verdict(outcome, standard, reason, "", "+".join(names), outputs, rows, replay.notes)


def _rows(replay: Replay) -> tuple[ArgumentRow, ...]:
    """The argument table of a report."""
    found: list[ArgumentRow] = []

    def row(value: Any, name: str) -> Any:
        if isinstance(value, (Leaf, Array)):
            found.append(ArgumentRow(name, value.array.shape, value.array.dtype.name, _range(value.array)))
        else:
            found.append(ArgumentRow(name, None, type(value).__name__, str(value)[:60]))
        return value

    mapped(replay.candidate.arguments, row)
    found.extend(
        ArgumentRow(f"grad.{name}", seed.shape, seed.dtype.name, _range(seed)) for name, seed in replay.seeds.items()
    )
    return tuple(found)


def _range(array: AnyArray) -> str:
    wide = np.abs(array) if is_complex(array.dtype) else widen(array)
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        return "empty" if not array.size else "no finite value"
    text = f"{finite.min():.6g} .. {finite.max():.6g}"
    return text if finite.size == array.size else f"{text}, {array.size - finite.size:,} not finite"
