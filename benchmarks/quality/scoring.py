"""Keeps score of the standards on healthy outputs and on mutated ones."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from benchmarks.mutations import mutants
from benchmarks.quality.kinds import Emulated, Kind, Watched
from benchmarks.quality.samples import LeftOut, Sample, Samples, seed_of
from pytest_probe import frameworks
from pytest_probe.check import CaseOutcome, Checker, RunRequest
from pytest_probe.errors import Unsupported
from pytest_probe.model.device_modes import Behaviour
from pytest_probe.model.verdict import OutputVerdict, Verdict
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.registry import Registry
from pytest_probe.standards import STANDARDS, Comparison, Standard
from pytest_probe.standards.device_modes.allowed import under_modes

LOST = 64 * 2.0**-126
NO_ONE_ANSWER = frozenset({"random", "uninitialised"})


class Score(Struct):
    """What one standard made of one source on one device in one dtype; lists are of the outputs that it got wrong.

    refused counts outputs of a device in a mode that is not allowed, and caught those that are found so.
    """

    healthy: int = 0
    flagged: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    mutated: int = 0
    missed: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    passed: list[str] = field(default_factory=list)


class Outcome(Struct, frozen=True):
    """A standard's verdict, and that under the modes that are allowed; None where it decides nothing."""

    plain: OutputVerdict | None
    allowed: OutputVerdict | None


class Scoring(Struct):
    """In the place of a standard: asks all standards what a checker asks, on the healthy output and on mutated ones.

    Its own verdict is always a pass. A standard that knows no classes is not asked of outputs with no one right
    answer: random values, memory as it was found.
    """

    framework: Watched
    kind: Kind
    modes: Sequence[Behaviour]
    standards: Collection[str]
    name: ClassVar[str] = "scoring"
    scores: dict[str, Score] = field(default_factory=lambda: {name: Score() for name in STANDARDS})
    left_out: Counter[str] = field(default_factory=Counter)
    case: str = ""

    def judge(self, comparison: Comparison) -> OutputVerdict:
        passed = OutputVerdict(
            comparison.name, comparison.actual.shape, comparison.actual.dtype.name, "pass", self.name
        )
        classes = comparison.classes
        if self.framework.draws and "random" not in classes:
            self.left_out["random values in an API that is not random by name"] += 1
            return passed
        if self.kind.is_mode and ("random" in classes or self._alike(comparison)):
            self.left_out["outputs that the mode leaves alone"] += 1
            return passed
        changes = [] if self.kind.faulty else list(mutants(comparison, seed_of(self.case), LOST * self.kind.tiny))
        asked = [name for name in self.standards if name == "auto" or not classes & NO_ONE_ANSWER]
        where = f"{self.case} {comparison.name}"
        healthy = self._verdicts(comparison, asked)
        for name, outcome in healthy.items():
            self._count(name, where, outcome)
        decided = [name for name, outcome in healthy.items() if outcome.allowed is not None]
        for label, changed in changes:
            for name, outcome in self._verdicts(_with(comparison, changed), decided).items():
                self._count_mutant(self.scores[name], f"{where}: {label}", outcome.allowed)
        return passed

    def _alike(self, comparison: Comparison) -> bool:
        return self.framework.alike(comparison.name, comparison.actual, self.kind.visible)

    def _verdicts(self, comparison: Comparison, names: Sequence[str]) -> dict[str, Outcome]:
        """What the standards say. auto says who judged: that one need not be asked again."""
        found: dict[str, Outcome] = {}
        judged: dict[str, Outcome] = {}
        for name in names:
            found[name] = judged[name] if name in judged else self._asked(STANDARDS[name], comparison)
            plain = found[name].plain
            if plain is not None:
                judged.setdefault(plain.standard, found[name])
        return found

    def _asked(self, standard: Standard, comparison: Comparison) -> Outcome:
        plain = _judged(standard, comparison)
        if plain is None or plain.verdict not in ("error", "warning") or not self.modes:
            return Outcome(plain, plain)
        with contextlib.suppress(Unsupported):
            return Outcome(plain, under_modes(standard, comparison, plain, self.modes) or plain)
        return Outcome(plain, None)

    def _count(self, name: str, where: str, outcome: Outcome) -> None:
        score = self.scores[name]
        if self.kind.is_mode:
            score.refused += 1
            if outcome.plain is None or outcome.plain.verdict != "error":
                score.passed.append(where)
        if self.kind.faulty:
            return
        verdict = outcome.allowed
        if verdict is None:
            self.left_out[f"outputs that {name} does not decide"] += 1
            return
        score.healthy += 1
        if verdict.verdict in ("error", "warning"):
            listed = score.flagged if verdict.verdict == "error" else score.warned
            listed.append(f"{where}: {verdict.reason}")

    def _count_mutant(self, score: Score, where: str, verdict: OutputVerdict | None) -> None:
        score.mutated += 1
        if verdict is None or verdict.verdict != "error":
            score.kinds[where.rpartition(": ")[2]] += 1
            score.missed.append(where)

    def add(self, verdict: Verdict) -> None:
        """Count what a case ended in before a standard was asked."""
        if verdict.verdict == "skip":
            self.left_out[f"cases skipped: {verdict.kind}"] += 1
        elif verdict.verdict == "error":
            reasons = [f"{output.name}: {output.reason}" for output in verdict.outputs if output.verdict == "error"]
            for score in (self.scores[name] for name in self.standards):
                score.healthy += len(reasons) or 1
                score.flagged += [f"{self.case} {reason}" for reason in reasons or [verdict.reason.splitlines()[0]]]


def _with(comparison: Comparison, changed: AnyArray) -> Comparison:
    """The comparison where the device gave that; some judges look at all that it gave in the forward."""
    case = comparison.case
    if comparison.direction == "forward":
        case = replace(case, forward={**case.forward, comparison.name: changed})
    return replace(comparison, actual=changed, case=case)


def _judged(standard: Standard, comparison: Comparison) -> OutputVerdict | None:
    """The verdict; None where the standard decides nothing."""
    try:
        with np.errstate(all="ignore"):
            return standard.judge(comparison)
    except Unsupported:
        return None


def scored(kind: Kind, samples: Samples, standards: Collection[str] = STANDARDS) -> Scoring:
    """What the standards make of the samples on a device."""
    framework = Watched(frameworks.load(kind.framework))
    registry = Registry.default()
    request = RunRequest(device="cpu", standard=Scoring.name, allow=(kind.allow,), emulate=kind.emulate)
    checker = Checker(request, registry, framework=kind.framework)
    checker.engines.framework = framework
    device = Emulated(kind, checker.engines.device)
    if kind.variants:
        checker.engines.device = device
    scoring = Scoring(framework, kind, checker.engines.modes, standards)
    registry.standards[scoring.name] = scoring
    for number, sample in enumerate(samples):
        if isinstance(sample, LeftOut):
            scoring.left_out[sample.reason] += 1
            continue
        device.variant = number
        _check(sample, checker, scoring)
    return scoring


def _check(sample: Sample, checker: Checker, scoring: Scoring) -> None:
    sample.seed(seed_of(sample.label))
    scoring.framework.draws = False
    try:
        cases = sample.cases(checker)
    except Unsupported as error:
        scoring.left_out[f"cases skipped: {error.kind}"] += 1
        return
    checked: CaseOutcome | None = None
    for case in cases:
        scoring.case = f"{sample.label} {case.direction}"
        checked = checker.run(case, checked)
        scoring.add(checked.verdict)


def totals(scores: Mapping[str, Score]) -> Iterator[tuple[str, Score]]:
    """Standards that were asked something."""
    return ((name, score) for name, score in scores.items() if score.healthy or score.refused)
