from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.errors import Unsupported
from pytest_probe.model.comparison import Allowance
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.standards.classes.factorisation import Factorisation
from tests.support.asking import comparison, normal

A = normal(8, 8)
SYMMETRIC = A + A.T


def judge(
    api: str, actual: list[Any], expected: list[Any], matrix: AnyArray, output: int = 0, **more: Any
) -> OutputVerdict:
    dtype = np.complex64 if np.iscomplexobj(actual[-1]) else np.float32
    given = [np.asarray(value, dtype if np.iscomplexobj(value) else np.float32) for value in actual]
    asked = comparison(
        given[output],
        expected[output],
        api=api,
        name=f"output.{output}",
        **{"args": (matrix.astype(dtype if np.iscomplexobj(matrix) else np.float32),), **more},
        forward={f"output.{index}": value for index, value in enumerate(given)},
        reference={f"output.{index}": np.asarray(value) for index, value in enumerate(expected)},
    )
    return Factorisation().judge(asked)


def eigh(matrix: AnyArray) -> list[AnyArray]:
    return list(np.linalg.eigh(matrix.astype(np.float32).astype(np.float64)))


def svd(matrix: AnyArray, full: bool = True) -> list[AnyArray]:
    return list(np.linalg.svd(matrix.astype(np.float32).astype(np.float64), full_matrices=full))


SIGNS = np.array([1.0, -1, 1, -1, -1, 1, 1, -1])
EIGH, SVD = eigh(SYMMETRIC), svd(A)
QR = list(np.linalg.qr(A))
EIG = list(np.linalg.eig(A))


TURN = np.linalg.qr(normal(4, 4))[0]
COMPLEX = (normal(5, 5) + 1j * normal(5, 5, seed=1)).astype(np.complex64).astype(np.complex128)
HERMITIAN = COMPLEX + COMPLEX.conj().T
OF_HERMITIAN = list(np.linalg.eigh(HERMITIAN))
TURNED = OF_HERMITIAN[1] * np.exp(1j * np.arange(5))
REAL_DIAGONAL = np.tril(COMPLEX, -1) + np.tril(COMPLEX, -1).conj().T + np.diag(np.diag(COMPLEX).real)
OF_DIAGONAL = list(np.linalg.eigh(REAL_DIAGONAL))
BOTH = np.stack([SYMMETRIC * 1e6, SYMMETRIC])
OF_BOTH = eigh(BOTH)
HALVES = {"L": np.tril(SYMMETRIC), "U": np.triu(SYMMETRIC)}
# What is factored, the factors, those of the reference where they are others, and how the call was made.
RIGHT: dict[str, tuple[str, AnyArray, list[Any], list[Any] | None, dict[str, Any]]] = {
    "eigenvalues of no numbers": ("Torch.linalg.eigvals", np.zeros((0, 0)), [np.zeros(0, complex)], None, {}),
    "eigenvalues of no matrices": (
        "Torch.linalg.eigvals", np.zeros((0, 3, 3)), [np.zeros((0, 3), complex)], None, {}
    ),
    "an empty matrix": ("Torch.linalg.eigh", np.zeros((0, 0)), [np.zeros(0), np.zeros((0, 0))], None, {}),
    "eigenvectors of either sign": ("Torch.linalg.eigh", SYMMETRIC, [EIGH[0], EIGH[1] * SIGNS], EIGH, {}),
    "qr of either sign": ("Torch.linalg.qr", A, [QR[0] * SIGNS, QR[1] * SIGNS[:, None]], QR, {}),
    "singular vectors of either sign": (
        "Torch.linalg.svd", A, [SVD[0] * SIGNS, SVD[1], SVD[2] * SIGNS[:, None]], SVD, {}
    ),
    "the older svd": ("Torch.svd", A, [SVD[0], SVD[1], SVD[2].T], None, {}),
    "the basis of equal eigenvalues": ("Torch.linalg.eigh", np.eye(4), [np.ones(4), TURN], [np.ones(4), np.eye(4)], {}),
    **{
        f"{rows} x {columns}, {full=}": (
            "Torch.linalg.svd", normal(rows, columns), svd(normal(rows, columns), full), None, {}
        )
        for rows, columns in ((5, 3), (3, 5)) for full in (True, False)
    },
    "complex vectors that are turned": ("Torch.linalg.eigh", HERMITIAN, [OF_HERMITIAN[0], TURNED], OF_HERMITIAN, {}),
    "the real part of the diagonal": ("Torch.linalg.eigh", COMPLEX, OF_DIAGONAL, None, {}),
    **{
        f"the triangle {name} alone": (
            "Torch.linalg.eigh", half, EIGH, None,
            {"args": ((half + 100 * (half == 0)).astype(np.float32),), "kwargs": {"UPLO": name}},
        )
        for name, half in HALVES.items()
    },
    "R alone": ("Torch.linalg.qr", A, [np.zeros(0), QR[1] * SIGNS[:, None]], [np.zeros(0), QR[1]], {}),
    "a small matrix beside a large one": ("Torch.linalg.eigh", BOTH, OF_BOTH, None, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_factors(name: str) -> None:
    api, matrix, actual, expected, how = RIGHT[name]
    for output in range(len(actual)):
        if name != "R alone" or output:
            found = judge(api, actual, expected or actual, matrix, output, **how)
            assert (found.verdict, found.standard) == ("pass", "factorisation" if matrix.size else "exact"), output


@pytest.mark.parametrize(
    ("error", "lost", "verdict"), [(1e-3, 0, "error"), (1e-3, 2.0**-126, "pass"), (0.3, 2.0**-126, "error")]
)
def test_a_device_that_flushes_may_lose_terms_of_its_norms(error: float, lost: float, verdict: str) -> None:
    """Of 64 squares of about 2^-120 the terms below 2^-126."""
    q, r = QR
    small = A * 2.0**-60
    factors, allowance = [q, r * 2.0**-60 * (1 + error)], Allowance(lost=lost)
    assert judge("Torch.linalg.qr", factors, [q, r * 2.0**-60], small, allowance=allowance).verdict == verdict


def off(array: AnyArray, index: Any, by: float) -> AnyArray:
    changed = array.copy()
    changed[index] += by
    return changed


@pytest.mark.parametrize(
    ("api", "matrix", "right", "wrong", "output"),
    [
        ("Torch.linalg.eigh", SYMMETRIC, EIGH, [EIGH[0], off(EIGH[1], (2, 3), 1e-4)], 1),
        ("Torch.linalg.eigh", SYMMETRIC, EIGH, [EIGH[0] * 1.0001, EIGH[1]], 0),
        ("Torch.linalg.eigh", SYMMETRIC, EIGH, [EIGH[0], EIGH[1] * 1.0001], 1),
        ("Torch.linalg.eigh", SYMMETRIC, EIGH, [EIGH[0][::-1], EIGH[1][:, ::-1]], 0),
        ("Torch.linalg.eigh", SYMMETRIC, EIGH, [EIGH[0], EIGH[1] * np.nan], 1),
        ("Torch.linalg.svd", A, SVD, [off(SVD[0], (2, 3), 1e-4), *SVD[1:]], 0),
        ("Torch.linalg.svd", A, SVD, [-SVD[0], -SVD[1], SVD[2]], 1),
        ("Torch.linalg.svd", A, SVD, [SVD[0], SVD[1], SVD[2][::-1]], 2),
        ("Torch.linalg.svd", A, SVD, [SVD[0], SVD[1], SVD[2].T], 2),
        ("Torch.svd", A, [SVD[0], SVD[1], SVD[2].T], SVD, 2),
        ("Torch.linalg.qr", A, QR, [QR[0], off(QR[1], (0, 0), 1e-4)], 1),
        ("Torch.linalg.qr", A, QR, [QR[0] * 2, QR[1] / 2], 0),
        ("Torch.linalg.eig", A, EIG, [EIG[0], EIG[1] * 0], 1),
        ("Torch.linalg.eig", A, EIG, [EIG[0][[0] * 8], EIG[1][:, [0] * 8]], 0),
        ("Torch.linalg.eig", A, EIG, [EIG[0] * 1.0001, EIG[1]], 0),
        ("Torch.linalg.eigh", HERMITIAN, OF_HERMITIAN, [OF_HERMITIAN[0], TURNED.conj()], 1),
        ("Torch.linalg.eigh", BOTH, OF_BOTH, [OF_BOTH[0], off(OF_BOTH[1], (1, 2, 3), 1e-4)], 1),
        ("Torch.linalg.qr", A, [np.zeros(0), QR[1]], [np.zeros(0), QR[1] * 1.0001], 1),
    ],
)
def test_wrong_factors(api: str, matrix: AnyArray, right: list[Any], wrong: list[Any], output: int) -> None:
    assert judge(api, right, right, matrix, output).verdict == "pass"
    assert judge(api, wrong, right, matrix, output).verdict == "error"


def test_null_vectors_are_orthogonal_too() -> None:
    matrix = np.diag([1.0, 0.0])
    right = [np.eye(2), np.array([1.0, 0.0]), np.eye(2)]
    wrong = [np.eye(2), np.array([1.0, 0.0]), np.array([[1.0, 0.0], [1.0, 0.0]])]
    assert judge("Torch.linalg.svd", right, right, matrix, 2).verdict == "pass"
    found = judge("Torch.linalg.svd", wrong, right, matrix, 2)
    assert found.reason.startswith("orthogonality of ")


def test_factors_that_were_not_asked_for_are_judged_by_noise() -> None:
    given = [np.zeros((8, 8)), SVD[1], np.zeros((8, 8))]
    for output in range(3):
        found = judge("Torch.svd", given, given, A, output, kwargs={"compute_uv": False})
        assert (found.verdict, found.standard) == ("pass", "noise")


def test_factors_of_wrong_shapes_have_an_error_of_their_own() -> None:
    assert judge("Torch.linalg.qr", [QR[0][:, :3], QR[1]], QR, A, 1).standard == "noise"


# Gradients


def gradient(actual: AnyArray, seeds: set[str], factors: Any = EIGH) -> OutputVerdict:
    more: Any = {"name": "grad.input.0", "direction": "backward", "args": (A.astype(np.float32),)}
    more["forward"] = {f"output.{index}": value.astype(np.float32) for index, value in enumerate(factors)}
    more["reference"] = {f"output.{index}": value for index, value in enumerate(EIGH)}
    asked = comparison(actual, A, api="Torch.linalg.eigh", dtype="float32", incoming=dict.fromkeys(seeds, A), **more)
    return Factorisation().judge(asked)


def test_gradients_are_judged_by_noise() -> None:
    assert gradient(A, {"output.0", "output.1"}).verdict == "pass"


def test_a_gradient_of_vectors_may_hang_on_their_signs() -> None:
    with pytest.raises(Unsupported, match="depends on the signs or basis") as caught:
        gradient(-A, {"output.0", "output.1"}, [EIGH[0], -EIGH[1]])
    assert caught.value.kind == "free signs or basis"


def test_a_gradient_is_wrong_where_the_signs_are_the_references() -> None:
    assert gradient(-A, {"output.0", "output.1"}).verdict == "error"
    assert gradient(A, {"output.0", "output.1"}).verdict == "pass"


def test_a_gradient_of_values_alone_does_not() -> None:
    assert gradient(-A, {"output.0"}).verdict == "error"
