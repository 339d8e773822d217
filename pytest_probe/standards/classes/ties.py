"""Gradients that may go to any of several equal values."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, widen
from pytest_probe.standards.classes import tie_groups
from pytest_probe.standards.noise.standard import NoiseStandard


class Ties:
    """By noise; where that fails, by noise on the sums over equal input values, since the order of equals is free."""

    name = "ties"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        plain = NoiseStandard().judge(comparison)
        values = comparison.call.argument("input")
        fits = isinstance(values, np.ndarray) and values.shape == comparison.actual.shape
        if plain.verdict != "error" or not fits or not comparison.name.endswith((".input.0", ".kwargs.input")):
            return plain
        groups = tie_groups.groups(comparison, values)
        # No two elements may stand for one another: nothing is free.
        if groups.max(initial=0) + 1 == values.size:
            return plain
        summed = replace(
            comparison,
            actual=_sums(groups, widen(comparison.actual)).astype(comparison.actual.dtype),
            expected=_sums(groups, comparison.expected),
            evidence=comparison.evidence.transformed(lambda run: _sums(groups, run)),
        )
        verdict = NoiseStandard().judge(summed)
        if verdict.verdict == "error":
            return plain
        return replace(verdict, standard=self.name, shape=comparison.actual.shape)


def _sums(groups: AnyArray, gradient: AnyArray) -> AnyArray:
    return np.bincount(groups, weights=gradient.reshape(-1))
