"""Factors that are defined up to signs or a basis: judged by residual, orthogonality and spectrum."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray, widen
from pytest_probe.standards.noise import NoiseStandard
from pytest_probe.standards.question import Question
from pytest_probe.standards.verdict import OutputVerdict

LIMIT = 32.0


class Factorisation:
    """By noise; where that fails, by residual, orthogonality and spectrum in units of u |M| sqrt(n), at most 32."""

    name = "factorisation"

    def judge(self, question: Question) -> OutputVerdict:
        plain = NoiseStandard().judge(question)
        matrix = question.argument(0, "input", question.argument(0, "A"))
        if plain.verdict != "error" or question.direction == "backward" or not isinstance(matrix, np.ndarray):
            return plain
        worst = self._worst(question, widen(matrix))
        if worst is None:
            return plain
        words, value = worst
        measured = {**plain.metrics, words: value}
        shape, dtype = question.actual.shape, question.actual.dtype.name
        if value <= LIMIT:
            return OutputVerdict(question.name, shape, dtype, "pass", self.name, "", measured)
        reason = f"{words} of {value:,.4g} u |M| sqrt(n) (limit {LIMIT:g})"
        return OutputVerdict(question.name, shape, dtype, "error", self.name, reason, measured, plain.worst)

    def _worst(self, question: Question, matrix: AnyArray) -> tuple[str, float] | None:
        factors = {name: widen(value) for name, value in question.forward.items() if isinstance(value, np.ndarray)}
        errors = _errors(question, matrix, [factors[name] for name in sorted(factors)])
        if not errors:
            return None
        norm = np.linalg.norm(matrix, axis=(-2, -1)).max(initial=0.0)
        unit = question.roundoff * max(matrix.shape[-2:]) ** 0.5
        scaled = {
            words: error / (unit * (1.0 if words == "orthogonality" else norm or 1.0))
            for words, error in errors.items()
        }
        words = max(scaled, key=lambda key: scaled[key])
        return words, float(scaled[words])


def _errors(question: Question, matrix: AnyArray, factors: list[AnyArray]) -> Mapping[str, float]:
    """Largest absolute errors of the factors that the device gave; empty where they are not all there."""
    name = question.facts.name
    if name == "svd" and len(factors) == 3:
        u, s, v = factors
        if u.shape[-1] != s.shape[-1]:
            u = u[..., : s.shape[-1]]
        rebuilt = [(u * s[..., None, :]) @ right for right in _right_factors(v, s.shape[-1])]
        return {"residual": min(_largest(item - matrix) for item in rebuilt), "orthogonality": _skew(u)}
    if name == "eigh" and len(factors) == 2:
        values, vectors = factors
        matrix = _hermitian(matrix, question.argument(1, "UPLO", "L"))
        return {
            "residual": _largest(matrix @ vectors - vectors * values[..., None, :]),
            "orthogonality": _skew(vectors),
        }
    if name == "qr" and len(factors) == 2:
        return {"residual": _largest(factors[0] @ factors[1] - matrix), "orthogonality": _skew(factors[0])}
    if name == "eig" and len(factors) == 2:
        values, vectors = factors
        return {"residual": _largest(matrix @ vectors - vectors * values[..., None, :])}
    return {}


def _hermitian(matrix: AnyArray, triangle: str) -> AnyArray:
    """The matrix that eigh sees: it reads one triangle only."""
    half = np.tril(matrix) if triangle.upper() == "L" else np.triu(matrix)
    strict = np.tril(matrix, -1) if triangle.upper() == "L" else np.triu(matrix, 1)
    return half + np.swapaxes(strict, -2, -1).conj()


def _right_factors(v: AnyArray, rank: int) -> list[AnyArray]:
    """torch.svd gives V, torch.linalg.svd its conjugate transpose: what may stand on the right."""
    transposed = np.swapaxes(v, -2, -1).conj()
    return [side[..., :rank, :] for side in (v, transposed)]


def _skew(basis: AnyArray) -> float:
    product = np.swapaxes(basis, -2, -1).conj() @ basis
    return _largest(product - np.eye(product.shape[-1]))


def _largest(array: AnyArray) -> float:
    largest = float(np.abs(array).max(initial=0.0))
    return float("inf") if np.isnan(largest) else largest
