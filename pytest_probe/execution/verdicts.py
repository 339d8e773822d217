"""The verdict on a case, from those on its outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_probe.core.arguments import Array, Leaf, floats_of, mapped
from pytest_probe.core.verdict import SEVERITY, ArgumentRow, OutputVerdict, Verdict, conclusion
from pytest_probe.execution.replay import Replay
from pytest_probe.numerics.dtypes import AnyArray, is_complex, widen


def verdict_on(replay: Replay, standard: str, outputs: tuple[OutputVerdict, ...]) -> Verdict:
    """That of the worst output, with the arguments where a report shows them."""
    outcome, reason = conclusion(outputs)
    rows = argument_rows(replay) if SEVERITY[outcome] > SEVERITY["pass"] else ()
    reference = replay.reference
    names = sorted({dtype.name for dtype in floats_of(reference.leaves).values()})
    replaced = reference.candidate.replaced
    return Verdict(outcome, standard, reason, "", "+".join(names), outputs, rows, reference.notes, replaced)


def argument_rows(replay: Replay) -> tuple[ArgumentRow, ...]:
    """The argument table of a report."""
    found: list[ArgumentRow] = []

    def row(value: Any, name: str) -> Any:
        if isinstance(value, (Leaf, Array)):
            found.append(ArgumentRow(name, value.array.shape, value.array.dtype.name, _range(value.array)))
        else:
            found.append(ArgumentRow(name, None, type(value).__name__, str(value)[:60]))
        return value

    mapped(replay.reference.candidate.arguments, row)
    found.extend(
        ArgumentRow(f"grad.{name}", array.shape, array.dtype.name, _range(array))
        for name, array in replay.incoming.items()
    )
    return tuple(found)


def _range(array: AnyArray) -> str:
    wide = np.abs(array) if is_complex(array.dtype) else widen(array)
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        return "empty" if not array.size else "no finite value"
    text = f"{finite.min():.6g} .. {finite.max():.6g}"
    return text if finite.size == array.size else f"{text}, {array.size - finite.size:,} not finite"
