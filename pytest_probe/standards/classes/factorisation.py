"""Factors that are defined up to signs or a basis: judged by residual, orthogonality and spectrum.

Of matrices M, shape (..., m, n) with the larger side n, and their factors, for example U S V^H of svd:

- residual: max |M - U S V^H| / (u |M| sqrt(n)), in eigh and eig max |M V - V L| over the same; |M| is Frobenius' norm
- orthogonality: max |Q^H Q - I| / (u sqrt(n)) of each basis Q
- spectrum: max |s - s of the reference| / (u |M| sqrt(n)) of singular values or of eigh's eigenvalues

eig has lengths of eigenvectors for orthogonality and the trace for the spectrum; qr without Q has R^H R - M^H M over
|M|. u is the roundoff of the call, or of a 16-bit output. Each may be 32 at most. LAPACK's test programs use the same
quotients, with n in place of sqrt(n).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.errors import Unsupported
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics import metrics
from pytest_probe.numerics.dtypes import AnyArray, float_format, is_floating, widen
from pytest_probe.standards.noise.standard import NoiseStandard

# Residuals in units of u |M| sqrt(n). Chosen: backward stable algorithms have small constants; nothing finer was
# measured.
_LIMIT = 32.0
# Outputs that signs and basis leave alone.
_VALUES: Mapping[str, str] = {"svd": "output.1", "eigh": "output.0"}
# Eigenvalues that come in no order of their own.
UNORDERED = ("eig", "eigvals")


class Factorisation:
    """Residual and spectrum in units of u |M| sqrt(n), orthogonality in units of u sqrt(n), each at most 32: u is the
    roundoff, |M| the Frobenius norm of each matrix M, n its longer side. The residual is the largest |element| of
    U S V^H - M, Q R - M or M X - X L, orthogonality that of Q^H Q - I, and of eig the largest ||x| - 1|.

    By noise where a call does not give all factors. Gradients by noise, undecided where the device's factors differ
    from the reference's, since other signs may explain it.
    """

    name = "factorisation"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        if comparison.direction == "backward":
            verdict = NoiseStandard().judge(comparison)
            # The gradient of singular values or eigenvalues alone is defined whatever signs the factors have.
            hangs = set(comparison.case.incoming) != {_VALUES.get(comparison.call.name)}
            if verdict.verdict == "error" and hangs and not _same_factors(comparison):
                free = "order" if comparison.call.name in UNORDERED else "signs or basis"
                found = f"it depends on the {free} of the factors, which an algorithm may choose"
                raise Unsupported(f"{comparison.name}: {verdict.reason}, but {found}", "free signs or basis")
            return verdict
        matrix = comparison.call.argument("input")
        errors = _errors(comparison, widen(matrix)) if isinstance(matrix, np.ndarray) and matrix.size else {}
        if not errors:
            return NoiseStandard().judge(_in_order(comparison) if comparison.call.name in UNORDERED else comparison)
        words = max(errors, key=lambda key: errors[key])
        value = errors[words]
        measured = {**metrics.describe(comparison.actual, comparison.expected), words: value}
        shape, dtype = comparison.actual.shape, comparison.actual.dtype.name
        if value <= _LIMIT:
            return OutputVerdict(comparison.name, shape, dtype, "pass", self.name, "", measured)
        unit = "u sqrt(n)" if words == "orthogonality" else "u |M| sqrt(n)"
        reason = f"{words} of {value:,.4g} {unit} (limit {_LIMIT:g})"
        return OutputVerdict(comparison.name, shape, dtype, "error", self.name, reason, measured)


def _in_order(comparison: Comparison) -> Comparison:
    """The comparison with the eigenvalues of the device, and of perturbed runs, in the order of the reference's."""
    wanted = comparison.expected
    if comparison.name != "output.0" or comparison.actual.shape != wanted.shape or not wanted.size:
        return comparison
    return replace(
        comparison,
        actual=_paired(comparison.actual, wanted),
        evidence=comparison.evidence.transformed(lambda run: _paired(run, wanted)),
    )


def _paired(values: AnyArray, wanted: AnyArray) -> AnyArray:
    """Each row of values in another order: the nearest pairs with a row of wanted first."""
    if not np.isfinite(values).all() or not np.isfinite(wanted).all():
        return values
    result = values.reshape(-1, values.shape[-1]).copy()
    for row, aims in zip(result, wanted.reshape(result.shape), strict=True):
        distances = np.abs(widen(row)[:, None] - aims)
        left, places = set(range(len(row))), np.full(len(row), -1)
        for pair in np.argsort(distances, axis=None):
            source, place = divmod(int(pair), len(row))
            if source in left and places[place] < 0:
                places[place] = source
                left.remove(source)
            if not left:
                break
        row[:] = row[places]
    return result.reshape(values.shape)


def _same_factors(comparison: Comparison) -> bool:
    """Has the device chosen the reference's signs, basis and order? The factors that the gradients belong to agree to
    half of their digits then."""
    chosen = comparison.case.incoming.keys() & comparison.case.reference.keys()
    pairs = [(comparison.case.forward.get(name), comparison.case.reference[name]) for name in chosen]
    arrays = [(actual, value) for actual, value in pairs if isinstance(actual, np.ndarray)]
    share = _unit(comparison) ** 0.5
    return bool(arrays) and all(
        actual.shape == np.shape(value)
        and bool(np.all(np.abs(widen(actual) - value) <= share * np.max(np.abs(value), initial=0.0)))
        for actual, value in arrays
    )


def _unit(comparison: Comparison) -> float:
    """u: factors of 16 bit are rounded to that, however they were computed."""
    actual = comparison.actual.dtype
    return max(comparison.roundoff, float_format(actual).roundoff if is_floating(actual) else 0.0)


def _errors(comparison: Comparison, matrix: AnyArray) -> Mapping[str, float]:
    """Errors of the factors that the device gave, in their units; empty where they are not all there."""
    factors = _factors(comparison.case.forward)
    name = comparison.call.name
    try:
        found = _absolute(comparison, matrix, factors)
    except ValueError:  # another output has another shape than the reference's, and an error of its own
        return {}
    if found and comparison.name == _VALUES.get(name):
        found["spectrum"] = np.abs(widen(comparison.actual) - comparison.expected).max(-1, initial=0.0)
    norm = np.linalg.norm(matrix, axis=(-2, -1))
    size = max(matrix.shape[-2:])
    with np.errstate(divide="ignore"):
        lost = np.minimum(size * comparison.allowance.lost / norm**2, 1 / _LIMIT) if comparison.allowance.lost else 0.0
    unit = _unit(comparison) * size**0.5 + lost
    # An error of a basis is one of unit vectors; all others are errors of the matrix.
    scales = {"orthogonality": np.ones_like(norm)}
    return {
        words: _largest(error / (unit * scales.get(words, np.where(norm, norm, 1.0)))) for words, error in found.items()
    }


def _factors(outputs: Mapping[str, Any]) -> list[AnyArray]:
    return [widen(value) for _, value in sorted(outputs.items()) if isinstance(value, np.ndarray)]


def _absolute(comparison: Comparison, matrix: AnyArray, factors: list[AnyArray]) -> dict[str, AnyArray]:
    """The largest absolute errors of each matrix of a batch."""
    name = comparison.call.name
    if name == "svd" and len(factors) == 3 and comparison.call.argument("compute_uv") is not False:
        # torch.svd gives V, torch.linalg.svd its conjugate transpose: the reference's factors show which.
        u, s, v = factors
        known = _factors(comparison.case.reference) or factors
        sizes = [_largest(_rest(matrix, *known, turned=turned)) for turned in (False, True)]
        turned = sizes[1] < sizes[0]
        skew = _skew(v) if turned else _skew(_adjoint(v))
        return {"residual": _rest(matrix, u, s, v, turned=turned), "orthogonality": np.maximum(_skew(u), skew)}
    if name == "eigh" and len(factors) == 2:
        # What eigh sees: it reads one triangle, and of the diagonal the real part.
        lower = comparison.call.argument("UPLO").upper() == "L"
        strict = np.tril(matrix, -1) if lower else np.triu(matrix, 1)
        diagonal = np.diagonal(matrix, axis1=-2, axis2=-1).real
        matrix = strict + _adjoint(strict) + diagonal[..., None] * np.eye(matrix.shape[-1])
        return {"residual": _eigen(matrix, *factors), "orthogonality": _skew(factors[1])}
    if name == "qr" and len(factors) == 2 and factors[0].size:
        return {"residual": _worst(factors[0] @ factors[1] - matrix), "orthogonality": _skew(factors[0])}
    # Mode "r" gives no Q: what R promises without it is R^H R = M^H M.
    if name == "qr" and len(factors) == 2:
        return {"residual": _worst(_squared(factors[1]) - _squared(matrix)) / np.linalg.norm(matrix, axis=(-2, -1))}
    if name == "eig" and len(factors) == 2:
        values, vectors = factors
        length = np.abs(np.linalg.norm(vectors, axis=-2) - 1.0).max(-1, initial=0.0)
        trace = np.abs(values.sum(-1) - np.trace(matrix, axis1=-2, axis2=-1))
        return {"residual": _eigen(matrix, values, vectors), "orthogonality": length, "spectrum": trace}
    return {}


def _eigen(matrix: AnyArray, values: AnyArray, vectors: AnyArray) -> AnyArray:
    return _worst(matrix @ vectors - vectors * values[..., None, :])


def _rest(matrix: AnyArray, u: AnyArray, s: AnyArray, v: AnyArray, *, turned: bool) -> AnyArray:
    """The residual of u s v, or of u s v^H; inf where that has another shape."""
    right, rank = _adjoint(v) if turned else v, s.shape[-1]
    if right.shape[-1] != matrix.shape[-1]:
        return np.asarray(np.inf)
    return _worst((u[..., :rank] * s[..., None, :]) @ right[..., :rank, :] - matrix)


def _adjoint(matrix: AnyArray) -> AnyArray:
    return np.swapaxes(matrix, -2, -1).conj()


def _squared(matrix: AnyArray) -> AnyArray:
    return _adjoint(matrix) @ matrix


def _skew(basis: AnyArray) -> AnyArray:
    return _worst(_squared(basis) - np.eye(basis.shape[-1]))


def _worst(matrix: AnyArray) -> AnyArray:
    return np.asarray(np.abs(matrix).max((-2, -1), initial=0.0))


def _largest(errors: AnyArray) -> float:
    largest = float(errors.max(initial=0.0))
    return float("inf") if np.isnan(largest) else largest
