"""Real dumps, whole: on the CPU every item passes, or is skipped for a reason that is known.

    pytest tests/evidence/test_corpus.py --corpus=DIR

checks every dump of PyTorch below DIR beside the test data.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec import Struct, field

from pytest_probe.model.verdict import Verdict
from pytest_probe.records import find_dumps, read_dump
from tests.support.checking import verdicts
from tests.support.dumps import DUMPS, unpack

# What no replay can know or do; docs/dumps.md explains each.
KNOWN = frozenset(("ambiguous name",))
MOST_SKIPPED, MOST_WARNINGS = 0.03, 0.01


class Counts(Struct):
    """Verdicts and kinds of skips by number, and a line for everything that must not be."""

    outcomes: Counter[str] = field(default_factory=Counter)
    skips: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, path: Path, case: str, verdict: Verdict) -> None:
        self.outcomes[verdict.verdict] += 1
        if verdict.verdict == "skip":
            self.skips[verdict.kind] += 1
        if verdict.verdict == "error" or (verdict.verdict == "skip" and verdict.kind not in KNOWN):
            self.wrong.append(f"{path}::{case}: {verdict.verdict}: {verdict.kind}: {verdict.reason}")

    def share(self, outcome: str) -> float:
        return self.outcomes[outcome] / max(self.outcomes.total(), 1)

    def __str__(self) -> str:
        lines = [", ".join(f"{count:,} {outcome}" for outcome, count in self.outcomes.most_common())]
        return "\n".join([*lines, *(f"{count:>8,}  {kind}" for kind, count in self.skips.most_common())])


def counted(paths: Iterable[Path]) -> Counts:
    """The counts over dumps; an exception that leaves the checker is a crash, and left to pytest."""
    counts = Counts()
    for path in paths:
        for case, verdict in verdicts(path, workers=os.cpu_count() or 1).items():  # one thread: tensors are small
            counts.add(path, case, verdict)
    return counts


def check(counts: Counts) -> None:
    assert not counts.wrong, "\n".join(counts.wrong)
    assert counts.outcomes["pass"] > 0
    assert counts.share("warning") <= MOST_WARNINGS
    assert counts.share("skip") <= MOST_SKIPPED


def test_faults_planted_in_the_test_data_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = counted(unpack(name, tmp_path) for name in DUMPS)
    with capsys.disabled():
        print(f"\ntest data: {counts}")
    check(counts)


def test_faults_planted_in_a_given_corpus_are_found(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = request.config.getoption("corpus")
    if folder is None:
        pytest.skip("give a folder of dumps: --corpus=DIR")
    found = [path for path in find_dumps(Path(folder)) if read_dump(path).framework == "pytorch"]
    counts = counted(found)
    with capsys.disabled():
        print(f"\n{len(found)} dumps: {counts}")
    check(counts)
