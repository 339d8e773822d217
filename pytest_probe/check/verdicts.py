"""The verdict on a case, from those on its outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_probe.check.replay import Replay
from pytest_probe.model.arguments import Array, Leaf, floats_of, mapped
from pytest_probe.model.verdict import SEVERITY, ArgumentRow, OutputVerdict, Verdict, conclusion
from pytest_probe.numerics.dtypes import AnyArray, dtype_name, is_complex, widen

# Elements whose range is taken at a time.
PART = 1 << 20


def verdict_on(replay: Replay, standard: str, outputs: tuple[OutputVerdict, ...]) -> Verdict:
    """That of the worst output, with the arguments where a report shows them."""
    outcome, reason = conclusion(outputs)
    rows = argument_rows(replay) if SEVERITY[outcome] > SEVERITY["pass"] else ()
    reference = replay.reference
    names = sorted({dtype_name(dtype) for dtype in floats_of(reference.leaves).values()})
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
    """In parts, since an argument may be most of the memory."""
    if not array.size:
        return "empty"
    flat = array.reshape(-1)
    parts = (_finite(flat[start : start + PART]) for start in range(0, flat.size, PART))
    found = [(part.min(), part.max(), part.size) for part in parts if part.size]
    if not found:
        return "no finite value"
    low, high, finite = min(part[0] for part in found), max(part[1] for part in found), sum(part[2] for part in found)
    text = f"{low:.6g} .. {high:.6g}"
    return text if finite == array.size else f"{text}, {array.size - finite:,} not finite"


def _finite(values: AnyArray) -> AnyArray:
    wide = np.abs(values) if is_complex(values.dtype) else widen(values)
    found: AnyArray = wide[np.isfinite(wide)]
    return found
