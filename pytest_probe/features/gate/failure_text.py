"""A case that got worse, as a failing item shows it: old and new side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pytest_probe.features.gate.gate import Judgement, OutputRows
from pytest_probe.features.gate.spread import Row

HEADINGS = {"worse": "worse than the baseline", "bits": "other bits than the baseline"}
# How the one line of pytest's summary begins.
SHORT = {"worse": "worse", "bits": "other bits"}


def heading(judgement: Judgement | None) -> str:
    """What the case is beside the baseline, where that fails it; else ""."""
    return HEADINGS[judgement.compared.change] if judgement is not None and judgement.fails else ""


def table(judgement: Judgement | None) -> Iterator[str]:
    """The lines of a failing item, for each output that differs."""
    if judgement is None or not judgement.fails:
        return
    compared = judgement.compared
    if judgement.before != compared.case.verdict:
        yield ""
        yield f"verdict in the baseline: {judgement.before}, now: {compared.case.verdict}"
    for output in judgement.outputs:
        if output.crcs is not None or any(row.factor != 1 for row in output.rows):
            yield from _output(output)


def _output(output: OutputRows) -> Iterator[str]:
    yield ""
    yield f"{output.name:<20} {'baseline':>11} {'now':>11} {'factor':>8} {'limit':>7}"
    for row in output.rows:
        yield _row(row)
    if output.crcs is not None:
        yield f"  {'CRC-32':<18} {output.crcs[0]:>11} {output.crcs[1]:>11}"


def _row(row: Row) -> str:
    factor = "" if math.isinf(row.factor) else f"{row.factor:.3g}"
    limit = "" if math.isinf(row.limit) else f"{row.limit:.3g}"
    mark = "  worse" if row.worse else ""
    return f"  {row.metric:<18} {row.before:>11.4g} {row.now:>11.4g} {factor:>8} {limit:>7}{mark}".rstrip()
