"""Gradients that may go to any of several equal values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray, widen
from pytest_probe.standards import choices
from pytest_probe.standards.noise import NoiseStandard
from pytest_probe.standards.question import Question
from pytest_probe.standards.verdict import OutputVerdict


class Ties:
    """By noise; where that fails, by noise on the sums over equal input values, since the order of equals is free."""

    name = "ties"

    def judge(self, question: Question) -> OutputVerdict:
        plain = NoiseStandard().judge(question)
        values = question.argument(0, "input")
        fits = isinstance(values, np.ndarray) and values.shape == question.actual.shape
        if plain.verdict != "error" or not fits or not question.name.endswith((".input.0", ".kwargs.input")):
            return plain
        groups = choices.groups(question, values)
        if groups.max(initial=0) + 1 == values.size:
            return plain
        summed = replace(
            question,
            actual=_sums(groups, widen(question.actual)).astype(question.actual.dtype),
            expected=_sums(groups, question.expected),
            runs=lambda kind, count: [_sums(groups, run) for run in question.runs(kind, count)],
            witness=None,
        )
        verdict = NoiseStandard().judge(summed)
        if verdict.verdict == "error":
            return plain
        return replace(verdict, standard=self.name, shape=question.actual.shape)


def _sums(groups: AnyArray, gradient: AnyArray) -> AnyArray:
    return np.bincount(groups, weights=gradient.reshape(-1))
