"""References of one case under other assumptions: a device mode, or other arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pytest_probe.execution.perturbation import OutputRuns, Perturbation, results
from pytest_probe.execution.replay import Replay
from pytest_probe.frameworks.base import Jitter, Way
from pytest_probe.frameworks.modes import Mode
from pytest_probe.inputs import Arguments
from pytest_probe.numerics.dtypes import AnyArray, is_floating, widen
from pytest_probe.records.model import Direction
from pytest_probe.standards.question import Assumption, Kind, Question, Runs

# Where a mode rounds operands, runs move by this share of a roundoff and what they do is enlarged as much: so small a
# shift takes no operand across a tie, which would show as the mode's own error. What may cross is asked for itself:
# results of steps within so many roundoffs of a tie, once all upwards and once all downwards.
SHARE = 2.0**-12
UNSURE = 4.0
CROSSED = 1.5

Results = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reference:
    """What the call gives under an assumption, twice more with unsure operands across their ties, and perturbed."""

    found: Results
    crossed: tuple[Results, ...]
    perturbation: Perturbation


@dataclass(slots=True)
class Otherwise:
    """Called with one output's question and an assumption: the same question about the reference that it gives.

    None where the call does not run like that, gives another shape, or the very same numbers. Each reference is
    computed once for all outputs of the case.
    """

    replay: Replay
    direction: Direction
    key: str
    narrow: str
    together: bool = False
    fixed: frozenset[str] = frozenset()
    _made: dict[Assumption, Reference | None] = field(default_factory=dict)

    def __call__(self, question: Question, assumption: Assumption) -> Question | None:
        if assumption not in self._made:
            self._made[assumption] = self._reference(assumption, question.roundoff)
        made = self._made[assumption]
        name = question.name.removeprefix("grad.")
        expected = None if made is None else _array(made.found, name)
        if made is None or expected is None or expected.shape != question.expected.shape:
            return None
        flushes = assumption.mode is not None and assumption.mode.flush  # the runs tell then, if not the numbers
        if _same(expected, question.expected) and not flushes:
            return None
        runs: Runs = OutputRuns(made.perturbation, name, expected.shape)
        if not made.crossed:
            return replace(question, expected=expected, runs=runs, witness=None, emulated=True)
        reached = _reached(question.actual, expected, [_array(run, name) for run in made.crossed])
        enlarged = Enlarged(runs, expected, reached)
        return replace(question, expected=reached, runs=enlarged, witness=None, emulated=True)

    def _reference(self, assumption: Assumption, roundoff: float) -> Reference | None:
        mode = self._resolved(assumption.mode)
        replay = self.replay
        if assumption.argument is not None:
            arguments = _with_argument(replay.candidate.arguments, *assumption.argument)
            replay = replace(replay, candidate=replace(replay.candidate, arguments=arguments), _changed=replay.changed)
        rounds = mode is not None and bool(mode.bits) and assumption.sample is None
        way = replace(replay.reference, mode=mode)
        if assumption.sample is not None:
            way = replace(way, jitter=Jitter(roundoff, assumption.sample))
        shifts = (UNSURE * roundoff, -UNSURE * roundoff) if rounds else ()
        try:
            found = self._results(replay, way)
            crossed = tuple(self._results(replay, replace(way, jitter=Jitter(0.0, unsure=shift))) for shift in shifts)
        except Exception:
            return None  # beyond the call's domain like that
        size = roundoff * SHARE if rounds else roundoff
        backward = self.direction == "backward"
        return Reference(
            found,
            crossed,
            Perturbation(replay, self.key, size, self.narrow, backward, mode, self.together, self.fixed),
        )

    def _results(self, replay: Replay, way: Way) -> Results:
        if self.direction == "forward":
            return results(replay.reference_run(replay.leaves, way, None), replay.changed)
        run = replay.reference_run(replay.leaves, way, replay.wanted)
        return replay.framework.gradients(run, replay.seeds)

    def _resolved(self, mode: Mode | None) -> Mode | None:
        return replace(mode, sums=self.narrow) if mode is not None and mode.sums == "narrow" else mode


@dataclass(frozen=True, slots=True)
class Enlarged:
    """Runs whose deviation from `source` is a share of what it stands for, moved to `target`."""

    runs: Runs
    source: AnyArray
    target: AnyArray

    def __call__(self, kind: Kind, count: int) -> list[AnyArray]:
        return [self.target + (run - self.source) / SHARE for run in self.runs(kind, count)]


def _reached(actual: AnyArray, expected: AnyArray, crossed: list[AnyArray | None]) -> AnyArray:
    """The number nearest to the actual one that operands across their ties may give."""
    if expected.dtype.kind != "f":
        return expected
    steps = [np.abs(run - expected) for run in crossed if run is not None and run.shape == expected.shape]
    reach = CROSSED * np.nan_to_num(np.maximum.reduce(steps), posinf=0.0) if steps else 0.0
    wide = widen(actual)
    return np.asarray(np.where(np.isfinite(wide), np.clip(wide, expected - reach, expected + reach), expected))


def _array(found: Results, name: str) -> AnyArray | None:
    if name not in found:
        return None
    array = np.asarray(found[name])
    return widen(array) if is_floating(array.dtype) else array


def _same(first: AnyArray, second: AnyArray) -> bool:
    """Are two references alike to float64's own rounding?"""
    return bool(np.allclose(first, second, rtol=1e-12, atol=0.0, equal_nan=True))


def _with_argument(arguments: Arguments, position: int, name: str, value: Any) -> Arguments:
    if position < len(arguments.args):
        return replace(arguments, args=(*arguments.args[:position], value, *arguments.args[position + 1 :]))
    return replace(arguments, kwargs={**arguments.kwargs, name: value})
