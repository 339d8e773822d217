"""How closely 16-bit kernels of torch's CPU are judged, and whether they pass: the CPU is the device.

    python benchmarks/narrow_kernels.py [--dtypes bfloat16,float16] [--seeds 2] [--apis addmm,...] [--unlisted]

Calls of every API in the narrow_* lists (tests/support/calls), and those given, in three sizes: how many fail, the
largest and RMS ratio over its limit, and the share of mutations (benchmarks/mutations.py) that is found.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.mutations import mutants  # noqa: E402
from pytest_probe.check import Checker, RunRequest  # noqa: E402
from pytest_probe.model.verdict import OutputVerdict  # noqa: E402
from pytest_probe.numerics.dtypes import is_complex, is_floating  # noqa: E402
from pytest_probe.registry import Registry  # noqa: E402
from pytest_probe.standards import STANDARDS, Comparison  # noqa: E402
from pytest_probe.standards.tables import _classes  # noqa: E402
from tests.support.calls.computing import COMPUTING  # noqa: E402
from tests.support.calls.making import Maker  # noqa: E402

MEASURED = ("noise_ratio", "noise_ratio_limit", "noise_rms", "noise_rms_limit")
SIZES = ((3, 5), (64, 64), (37, 1031))


class Score(Struct):
    """What was made of one API's outputs in one direction and dtype."""

    healthy: int = 0
    flagged: int = 0
    mutated: int = 0
    found: int = 0
    largest: float = 0.0
    rms: float = 0.0
    sources: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    alarms: list[str] = field(default_factory=list)


class Scoring(Struct):
    """Judges as auto does, and keeps score of it on mutated outputs."""

    unlisted: bool
    name: str = "scoring"
    scores: dict[str, Score] = field(default_factory=lambda: defaultdict(Score))
    case: str = ""
    label: str = ""

    def judge(self, comparison: Comparison) -> OutputVerdict:
        if self.unlisted:
            classes = frozenset(kind for kind in comparison.classes if not kind.startswith("narrow"))
            comparison = replace(comparison, case=replace(comparison.case, classes=classes))
        auto = STANDARDS["auto"]
        verdict = auto.judge(comparison)
        if not (is_floating(comparison.actual.dtype) or is_complex(comparison.actual.dtype)):
            return verdict
        score = self.scores[f"{self.case} {comparison.direction}"]
        score.healthy += 1
        score.sources[str(verdict.metrics.get("scale_from", verdict.standard))] += 1
        if "noise_ratio" in verdict.metrics:
            metrics = {name: float(verdict.metrics[name]) for name in MEASURED}
            score.largest = max(score.largest, metrics["noise_ratio"] / metrics["noise_ratio_limit"])
            score.rms = max(score.rms, metrics["noise_rms"] / metrics["noise_rms_limit"])
        if verdict.verdict == "error":
            score.flagged += 1
            score.alarms.append(f"{self.label} {comparison.name} {list(comparison.actual.shape)}: {verdict.reason}")
            return replace(verdict, verdict="pass")  # or its cause would be looked for
        for label, changed in mutants(comparison, score.mutated):
            outcome = auto.judge(replace(comparison, actual=changed)).verdict
            score.mutated += 1
            score.found += outcome == "error"
            score.missed[label] += outcome != "error"
        return verdict


def measured(names: Iterable[str], dtype: str, seeds: int, scoring: Scoring) -> None:
    registry = Registry.default()
    registry.standards[scoring.name] = scoring
    checker = Checker(RunRequest(device="cpu", standard=scoring.name), registry)
    for name in names:
        scoring.case = name
        for number, making in enumerate(COMPUTING[name]):
            for size in SIZES:
                for seed in range(seeds):
                    made = making(Maker(dtype, *size, seed))
                    scoring.label = f"call {number} {size} seed {seed}"
                    verdicts = checker.compare(
                        made.function, made.function, made.args, made.kwargs, api=made.api, backward=True
                    )
                    for verdict in verdicts:
                        if verdict.verdict == "skip" and "differentiated" not in verdict.reason:
                            print(f"    {name} {scoring.label}: {verdict.reason}")


def listed() -> list[str]:
    lists = (names for kind, names in _classes().items() if kind.startswith("narrow"))
    return sorted({entry.partition("@")[0] for names in lists for entry in names})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default="bfloat16,float16")
    parser.add_argument("--apis", default="", help="these instead of those listed; 'all'")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--unlisted", action="store_true", help="judge as if no list named the API")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| API | dtype | outputs | flagged | largest / limit | RMS / limit | mutated | found | missed most | from |")
    print("|---" * 10 + "|")
    names = options.apis.split(",") if options.apis else listed()
    names = list(COMPUTING) if options.apis == "all" else names
    for dtype in options.dtypes.split(","):
        for name in names:
            scoring = Scoring(options.unlisted)
            measured([name], dtype, options.seeds, scoring)
            report(dtype, scoring)


def report(dtype: str, scoring: Scoring) -> None:
    for name, score in scoring.scores.items():
        missed = ", ".join(f"{label} {count}" for label, count in score.missed.most_common(2) if count)
        share = score.found / max(score.mutated, 1)
        source = ", ".join(f"{label} {count}" for label, count in score.sources.most_common(3))
        print(
            f"| {name} | {dtype} | {score.healthy} | {score.flagged} | {score.largest:.2f} | {score.rms:.2f} "
            f"| {score.mutated} | {share:.0%} | {missed} | {source} |",
            flush=True,
        )
        for alarm in score.alarms:
            print(f"    {alarm}", flush=True)


if __name__ == "__main__":
    main()
