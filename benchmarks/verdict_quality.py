"""How good the verdicts are: the share of wrong outputs found and of healthy outputs flagged.

    python benchmarks/verdict_quality.py [--dumps DIR] [--dtypes float32,bfloat16,float16] [--alarms]

The CPU is the device. Every output of every case of the dumps of tests/data, or of those below DIR, cast to each dtype,
is judged, and then every mutation of it (benchmarks/mutations.py).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.mutations import mutants  # noqa: E402
from pytest_probe.execution import Case, Checker, Conditions  # noqa: E402
from pytest_probe.numerics.dtypes import is_complex, is_floating  # noqa: E402
from pytest_probe.records import find_dumps, read_dump  # noqa: E402
from pytest_probe.registry import Registry  # noqa: E402
from pytest_probe.standards import STANDARDS, Question, Standard  # noqa: E402
from pytest_probe.standards.verdict import OutputVerdict  # noqa: E402
from tests.dumps import DUMPS, unpack  # noqa: E402

NAMES = ("auto", "noise", "exact")


@dataclass
class Score:
    """What one standard made of one source in one dtype."""

    healthy: int = 0
    flagged: int = 0
    warned: int = 0
    mutated: int = 0
    found: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    alarms: Counter[str] = field(default_factory=Counter)


@dataclass
class Scoring:
    """A standard that judges as another does, and keeps score of it and of others on mutated outputs."""

    name: str = "scoring"
    scores: dict[str, Score] = field(default_factory=lambda: defaultdict(Score))
    case: str = ""

    def judge(self, question: Question) -> OutputVerdict:
        verdicts = [self._score(question, STANDARDS[name], self.scores[name]) for name in NAMES]
        return verdicts[0]

    def _score(self, question: Question, standard: Standard, score: Score) -> OutputVerdict:
        verdict = standard.judge(question)
        score.healthy += 1
        score.flagged += verdict.verdict == "error"
        score.warned += verdict.verdict == "warning"
        if verdict.verdict == "error":
            score.alarms[f"{self.case} {question.name}: {verdict.reason}"] += 1
        elif is_floating(question.actual.dtype) or is_complex(question.actual.dtype):
            for label, changed in mutants(question.actual, score.mutated):
                outcome = standard.judge(replace(question, actual=changed)).verdict
                score.mutated += 1
                score.found += outcome == "error"
                score.missed[label] += outcome != "error"
        return verdict


def from_dumps(paths: list[Path], dtype: str, scoring: Scoring) -> None:
    """All cases of dumps, cast to dtype."""
    registry = Registry.default()
    registry.standards[scoring.name] = scoring
    checker = Checker(Conditions(device="cpu", standard=scoring.name), registry)
    for path in paths:
        dump = read_dump(path)
        for record in dump.records:
            for direction in record.directions:
                scoring.case = f"{path.parent.name}: {record.name}.{direction}"
                checker.check(Case(dump, record, direction, dtype))
            checker.release()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dumps", type=Path, help="a folder of dumps, instead of those of tests/data")
    parser.add_argument("--dtypes", default="float32,bfloat16,float16")
    parser.add_argument("--alarms", action="store_true", help="list every healthy output that auto flags")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(
        "| source | dtype | standard | healthy | flagged | warned | mutated | found | missed most |\n"
        + "|---" * 8
        + "|"
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = find_dumps(options.dumps) if options.dumps else [unpack(name, Path(folder)) for name in DUMPS]
        for dtype in options.dtypes.split(","):
            scoring = Scoring()
            from_dumps(paths, dtype, scoring)
            report(dtype, scoring, options.alarms)


def report(dtype: str, scoring: Scoring, alarms: bool) -> None:
    for name, score in scoring.scores.items():
        missed = ", ".join(f"{label} {count}" for label, count in score.missed.most_common(2) if count)
        share = score.found / max(score.mutated, 1)
        print(
            f"| {dtype} | {name} | {score.healthy:,} | {score.flagged:,} | {score.warned:,} "
            f"| {score.mutated:,} | {share:.1%} | {missed} |",
            flush=True,
        )
    if alarms:
        for alarm in scoring.scores["auto"].alarms:
            print(f"    {alarm}", flush=True)


if __name__ == "__main__":
    main()
