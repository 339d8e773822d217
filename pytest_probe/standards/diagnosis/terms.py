"""Terms that are missing, or there twice: multiples of arguments in what the output is off by."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from pytest_probe.numerics.dtypes import Float64Array
from pytest_probe.standards.diagnosis.factors import slices_within
from pytest_probe.standards.diagnosis.failed_output import (
    MIN_WRONG_ELEMENTS,
    Cause,
    FailedOutput,
    broadcast_or_none,
    part_of,
)

# How near 1 a coefficient must be to be called missing, or twice.
NEAR = 1e-2
# Elements that are looked at, arguments of which there may be multiples, elements of a slice for each multiple.
PART, TERMS, EACH = 1 << 16, 5, 8
# Slices that are looked at one by one.
FEW_SLICES = 8

REFERENCE, ONE = "the right result", "1"
Term = tuple[str, Float64Array]


class SliceTerm:
    """One index of an argument that is missing, or there twice, in one index of the output's first dimension."""

    def explain(self, failed: FailedOutput) -> Cause | None:
        shape = failed.wrong.shape
        if len(shape) < 2 or failed.wrong[0].size < MIN_WRONG_ELEMENTS:
            return None
        bad = np.flatnonzero(failed.wrong.reshape(shape[0], -1).any(axis=1)).tolist()
        if len(bad) > FEW_SLICES:
            return None
        for name, values in failed.inputs():
            if values.shape[1:] == shape[1:] and values.shape[0] > 1:
                words = self._found(failed, bad, name, values)
                if words:
                    return Cause("term", words)
        return None

    def _found(self, failed: FailedOutput, bad: Sequence[int], name: str, values: Float64Array) -> str:
        found, words = np.array(failed.expected), ""
        for index in bad:
            gap = failed.actual[index] - failed.expected[index]
            distances = [np.abs(values - sign * gap).reshape(len(values), -1).max(axis=1) for sign in (1.0, -1.0)]
            twice = bool(distances[0].min() < distances[1].min())
            best = int(np.argmin(distances[0] if twice else distances[1]))
            found[index] += values[best] if twice else -values[best]
            words = words or f"index {index} of dim 0 {'has twice' if twice else 'lacks'} index {best} of {name}"
        return words if failed.explained(found) else ""


class Combination:
    """What the output is off by is a sum of multiples of arguments, the same for all of it or others for each slice; it
    may be the reference itself, too. sliced: others for each slice, and with the reference."""

    def __init__(self, *, sliced: bool) -> None:
        self._sliced = sliced

    def explain(self, failed: FailedOutput) -> Cause | None:
        if not failed.floating:
            return None
        failed = part_of(failed, PART)
        if failed.wrong.size > 2 * PART or failed.count < 2 * EACH:
            return None
        for basis, within in self._forms(failed):
            words = self._fitted(failed, basis, within)
            if words:
                return Cause("factor" if basis[0][0] == REFERENCE else "term", words)
        return None

    def _forms(self, failed: FailedOutput) -> Iterator[tuple[Sequence[Term], tuple[int, ...]]]:
        """What may be added, the fewest terms first, and over which dimensions alike."""
        terms = list(itertools.islice(_terms(failed), TERMS))
        every = tuple(range(failed.wrong.ndim))
        for size in (1, 2):
            for chosen in itertools.combinations(terms, size):
                if not self._sliced:
                    if chosen[0][0] != ONE or size > 1:  # a number alone is an offset
                        yield chosen, every
                    continue
                yield from ((chosen, within) for within in slices_within(failed))
                # Three terms and a number: of smooth numbers they make anything.
                if size == 1 or chosen[0][0] != ONE:
                    basis = ((REFERENCE, failed.expected), *chosen)
                    yield from ((basis, within) for within in (every, *slices_within(failed)))

    def _fitted(self, failed: FailedOutput, basis: Sequence[Term], within: tuple[int, ...]) -> str:
        used = failed.wrong & np.isfinite(failed.actual) & np.isfinite(failed.expected)
        slices = max(1, int(np.count_nonzero(used.any(axis=within))))
        if np.count_nonzero(used) < EACH * len(basis) * slices:
            return ""
        gap = np.where(used, failed.actual - failed.expected, 0.0)
        rows = [np.where(used, values, 0.0) for _, values in basis]
        square = np.stack([np.stack([np.sum(a * b, axis=within) for a in rows], -1) for b in rows], -1)
        right = np.stack([np.sum(gap * row, axis=within) for row in rows], -1)
        try:
            factors = (np.linalg.pinv(square, hermitian=True) @ right[..., None])[..., 0]
        except np.linalg.LinAlgError:
            return ""
        spread = [np.expand_dims(factors[..., place], within) for place in range(len(basis))]
        values = failed.expected + sum((f * values for f, (_, values) in zip(spread, basis, strict=True)), np.zeros(()))
        if not failed.explained(values, least=2 * EACH):
            return ""
        return _words(basis, factors, same=len(within) == failed.wrong.ndim)


def _words(basis: Sequence[Term], factors: Float64Array, *, same: bool) -> str:
    names = [name for name, _ in basis]
    if not same:
        return f"off by multiples of {' and '.join(names)}, others for each slice"
    if len(names) == 1 and abs(abs(float(factors[0])) - 1) < NEAR:
        return f"{names[0]} {'added once too often' if factors[0] > 0 else 'missing'}"
    return "off by " + " and ".join(f"{float(f):.4g} times {name}" for f, name in zip(factors, names, strict=True))


def _terms(failed: FailedOutput) -> Iterator[Term]:
    """Arguments and forward outputs in the output's shape, those of one number for each channel too."""
    shape = failed.wrong.shape
    yield ONE, np.ones(shape)
    for name, values in itertools.chain(failed.outputs(), failed.inputs()):
        if values.size < MIN_WRONG_ELEMENTS or values.ndim > len(shape) or not np.isfinite(values).all():
            continue
        for form in dict.fromkeys((values.shape, (*values.shape, *(1,) * (len(shape) - 1 - values.ndim)))):
            wide = broadcast_or_none(values.reshape(form), shape)
            if wide is not None:
                yield name, wide
