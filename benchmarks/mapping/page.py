"""The tables of the proofs, as docs/mapping has them: which call corresponds to which, and how closely they agree."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path

from benchmarks.mapping import mindspore_cases, paddle_cases
from benchmarks.mapping.entries import PADDLE, Subject
from benchmarks.mapping.proof import Proof
from pytest_probe.frameworks.mapping.table import packaged

_FOLDER = Path(__file__).parents[2] / "docs" / "mapping"


def table_of(subject: Subject) -> Path:
    return _FOLDER / f"{subject.map.replace('_', '-')}.csv"


def written(proofs: Sequence[Proof], subject: Subject = PADDLE) -> str:
    """The table. `worst` is the largest difference, as a share of the output's scale, `within` its limit, and `why` the
    reason where float64 is not computed as such; a record that gives an argument which is `not covered` is a skip."""
    own, looser = ("paddle", paddle_cases.LOOSER) if subject is PADDLE else ("mindspore", mindspore_cases.LOOSER)
    text = StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([own, "torch", "calls", "worst", "refused by one", "not covered", "within", "why"])
    for api, *cells in _rows(proofs, subject):
        limit, reason = looser.get(api, (1e-12, ""))
        rows.writerow([api, *cells, f"{limit:.0e}", reason])
    return text.getvalue()


def _rows(proofs: Sequence[Proof], subject: Subject) -> Iterator[tuple[str, ...]]:
    entries = packaged(subject.map).entries
    for proof in sorted(proofs, key=lambda each: each.api):
        entry = entries[proof.api]
        other = entry.path if entry.function is None else "several"
        missing = ", ".join(proof.uncovered) if proof.calls else ""
        yield proof.api, other, str(proof.calls), f"{proof.worst:.0e}", str(proof.refused), missing
