"""Random outputs: the pattern by its distribution, the kept elements by noise given that pattern."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pytest_probe.errors import Unsupported
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, round_to, widen
from pytest_probe.standards import distributions
from pytest_probe.standards.noise import NoiseStandard
from pytest_probe.standards.question import Question
from pytest_probe.standards.verdict import Outcome, OutputVerdict

# Dimensions of an input without a batch dimension; 0: every element is dropped for itself.
DROPOUTS: Mapping[str, int] = {"dropout": 0, "dropout1d": 2, "dropout2d": 0, "dropout3d": 4}
CHANNELWISE = frozenset({"dropout1d", "dropout2d", "dropout3d"})
SIGMAS = 6.0
UNLIKELY = 1e-9


class Random:
    """Dropout by its pattern and kept elements, drawn values by their distribution; other random APIs are skipped."""

    name = "random"

    def judge(self, question: Question) -> OutputVerdict:
        if question.direction == "forward" and distributions.known(question):
            return self._drawn(question)
        values = question.argument(0, "input")
        if question.facts.name == "rrelu" and not question.argument(3, "training", False):
            return NoiseStandard().judge(question)
        if question.facts.name not in DROPOUTS or not isinstance(values, np.ndarray):
            raise Unsupported(f"{question.facts.name} gives random values", "random values")
        probability, training = _settings(question)
        if not training or probability in (0.0, 1.0):
            return NoiseStandard().judge(question)
        return self._dropout(question, widen(values), probability)

    def _drawn(self, question: Question) -> OutputVerdict:
        trouble = distributions.trouble(question)
        dtype = question.actual.dtype.name
        outcome: Outcome = "pass" if trouble is None else "error"
        return OutputVerdict(question.name, question.actual.shape, dtype, outcome, self.name, trouble or "")

    def _dropout(self, question: Question, values: AnyArray, probability: float) -> OutputVerdict:
        source = values if question.direction == "forward" else widen(question.gradients["output.0"])
        kept = _kept(question, values, source)
        verdict = _judged(question, np.where(kept, source, 0.0), 1 / (1 - probability))
        trouble = _pattern_trouble(
            kept, (values != 0) & (source != 0), probability, _channels(question.facts.name, values.ndim)
        )
        if verdict.verdict == "error" or trouble is None:
            return replace(verdict, standard=self.name)
        return replace(verdict, verdict="error", standard=self.name, reason=trouble)


def _judged(question: Question, kept: AnyArray, factor: float) -> OutputVerdict:
    """By noise, without runs and a witness, which draw other patterns. Some 16-bit kernels round the factor first."""
    factors = dict.fromkeys((factor, float(widen(round_to(factor, question.actual.dtype)))))
    for number in factors:
        given = replace(question, expected=kept * number, runs=lambda kind, count: [], witness=None)
        verdict = NoiseStandard().judge(given)
        if verdict.verdict != "error":
            break
    return verdict


def _settings(question: Question) -> tuple[float, bool]:
    p = question.argument(1, "p", 0.5)
    training = question.argument(2, "training", question.kwargs.get("train", True))
    return float(p), bool(training)


def _kept(question: Question, values: AnyArray, source: AnyArray) -> BoolArray:
    """Which elements the device kept: by its forward output where the input tells, else by the output in question."""
    judged: BoolArray = widen(question.actual) != 0
    forward = question.forward.get("output.0")
    if question.direction == "forward" or not isinstance(forward, np.ndarray):
        return judged
    return np.where(values != 0, widen(forward) != 0, judged)


def _channels(name: str, rank: int) -> int:
    """How many leading dimensions number the channels that are dropped as a whole; all of them for plain dropout."""
    if name not in CHANNELWISE:
        return rank
    return 1 if rank == DROPOUTS[name] else 2


def _pattern_trouble(kept: BoolArray, telling: BoolArray, probability: float, channels: int) -> str | None:
    """What is wrong with the pattern: its share of zeros, that a channel was not dropped as a whole, that it repeats
    itself."""
    if channels < kept.ndim:
        shape = kept.shape[:channels]
        kept, telling = kept.reshape(*shape, -1), telling.reshape(*shape, -1)
        if ((kept & telling).any(-1) & (~kept & telling).any(-1)).any():
            return "a channel is dropped in part"
        kept, telling = np.asarray((kept & telling).any(-1)), np.asarray(telling.any(-1))
    trials = int(np.count_nonzero(telling))
    dropped = trials - int(np.count_nonzero(kept & telling))
    run, longest = _longest_run(telling & ~kept), _longest_likely(trials, probability)
    if run > longest:
        return f"{run:,} elements in a row are dropped where p = {probability:g} explains {longest:,}"
    spread = SIGMAS * (trials * probability * (1 - probability)) ** 0.5
    if abs(dropped - trials * probability) <= spread + 1:
        return distributions.repetition(np.where(telling, ~kept - probability, 0.0), probability * (1 - probability))
    explained = f"p = {probability:g} explains {trials * probability:,.0f} +- {spread:,.0f}"
    return f"{dropped:,} of {trials:,} elements are dropped where {explained}"


def _longest_run(flags: BoolArray) -> int:
    """How many in a row are set at most, in memory's order."""
    ends = np.flatnonzero(~np.concatenate([[False], flags.ravel(), [False]]))
    return int(np.diff(ends).max(initial=1)) - 1


def _longest_likely(trials: int, probability: float) -> int:
    """The longest run that comes by chance more than once in 10^9 outputs."""
    return math.ceil(math.log(UNLIKELY / max(trials, 1)) / math.log(probability))
