"""References of one case under other assumptions: a device mode, or other arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pytest_probe.frameworks.base import Jitter, Way
from pytest_probe.frameworks.modes import Mode
from pytest_probe.inputs import Arguments
from pytest_probe.numerics.dtypes import AnyArray, is_floating, widen
from pytest_probe.perturbation import OutputRuns, Perturbation, results
from pytest_probe.records.model import Direction
from pytest_probe.replay import Replay
from pytest_probe.standards.question import Assumption, Question


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
    _made: dict[Assumption, tuple[Mapping[str, Any], Perturbation] | None] = field(default_factory=dict)

    def __call__(self, question: Question, assumption: Assumption) -> Question | None:
        if assumption not in self._made:
            self._made[assumption] = self._reference(assumption, question.roundoff)
        made = self._made[assumption]
        name = question.name.removeprefix("grad.")
        if made is None or name not in made[0]:
            return None
        expected = np.asarray(made[0][name])
        expected = widen(expected) if is_floating(expected.dtype) else expected
        if expected.shape != question.expected.shape or _same(expected, question.expected):
            return None
        return replace(question, expected=expected, runs=OutputRuns(made[1], name, expected.shape), witness=None)

    def _reference(self, assumption: Assumption, roundoff: float) -> tuple[Mapping[str, Any], Perturbation] | None:
        mode = self._resolved(assumption.mode)
        replay = self.replay
        if assumption.argument is not None:
            arguments = _with_argument(replay.candidate.arguments, *assumption.argument)
            replay = replace(replay, candidate=replace(replay.candidate, arguments=arguments), _changed=replay.changed)
        jitter = None if assumption.sample is None else Jitter(roundoff, assumption.sample)
        backward = self.direction == "backward"
        try:
            way = Way(dtype="float64", mode=mode, jitter=jitter)
            run = replay.reference_run(replay.leaves, way, replay.wanted if backward else None)
            found = replay.framework.gradients(run, replay.seeds) if backward else results(run, replay.changed)
        except Exception:
            return None  # beyond the call's domain like that
        return found, Perturbation(replay, self.key, roundoff, self.narrow, backward, mode)

    def _resolved(self, mode: Mode | None) -> Mode | None:
        return replace(mode, sums=self.narrow) if mode is not None and mode.sums == "narrow" else mode


def _same(first: AnyArray, second: AnyArray) -> bool:
    """Are two references alike to float64's own rounding?"""
    return bool(np.allclose(first, second, rtol=1e-12, atol=0.0, equal_nan=True))


def _with_argument(arguments: Arguments, position: int, name: str, value: Any) -> Arguments:
    if position < len(arguments.args):
        return replace(arguments, args=(*arguments.args[:position], value, *arguments.args[position + 1 :]))
    return replace(arguments, kwargs={**arguments.kwargs, name: value})
