"""What torch's own 16-bit kernel gives is a warning where rounding inside explains it, and nobody else's output is."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray
from tests.support.asking import by_noise, normal

# A roundoff of bfloat16.
ROUNDOFF = 2.0**-8
EXPECTED = 1 + 0.5 * np.abs(normal(400))
# What inputs that move by a roundoff of bfloat16 do.
RUNS = {"perturbed_narrow": [EXPECTED * (1 + ROUNDOFF * normal(400, seed=seed)) for seed in range(1, 5)]}
# A kernel that rounds inside.
ROUNDED = (EXPECTED * (1 + ROUNDOFF * normal(400, seed=5))).astype(ml_dtypes.bfloat16)


def judged(actual: AnyArray, own: AnyArray | None, **more: Any) -> OutputVerdict:
    return by_noise(actual, EXPECTED, **{"dtype": "bfloat16", "runs": RUNS, "own_result": own, **more})


def test_what_rounding_inside_explains_is_a_warning() -> None:
    found = judged(ROUNDED, ROUNDED)
    assert found.verdict == "warning"
    words = "torch's own 16-bit kernel here, which rounds inside: noise ratio "
    assert found.reason.startswith(words)
    assert (found.metrics["scale_from"], found.metrics["noise_ratio_limit"]) == ("16-bit steps", 16.0)


@pytest.mark.parametrize(
    ("own", "more"),
    [
        (None, {}),
        (np.nextafter(ROUNDED, ml_dtypes.bfloat16(9)), {}),
        (ROUNDED, {"on_cpu": False}),
        (ROUNDED, {"runs": {}}),
        (ROUNDED.astype(np.float32), {"dtype": "float32"}),
    ],
    ids=["another function", "other bits", "another device", "nothing rounds", "float32"],
)
def test_anything_else_is_an_error(own: AnyArray | None, more: dict[str, Any]) -> None:
    assert judged(ROUNDED, own, **more).verdict == "error"


@pytest.mark.parametrize(
    "wrong",
    [
        ROUNDED * ml_dtypes.bfloat16(1.05),
        np.where(np.arange(400) == 7, 1.5 * EXPECTED, ROUNDED),
        np.roll(ROUNDED, 1),
        EXPECTED * (1 + ROUNDOFF),
    ],
    ids=["scaled", "one element", "shifted", "biased"],
)
def test_a_fault_of_the_kernel_is_an_error(wrong: AnyArray) -> None:
    actual = wrong.astype(ml_dtypes.bfloat16)
    assert judged(actual, actual).verdict == "error"


def test_an_overflow_inside_is_an_error_though_runs_overflow() -> None:
    torn = [np.where(np.arange(400) == 7, np.inf, run) for run in (ROUNDED, *RUNS["perturbed_narrow"])]
    actual = torn[0].astype(ml_dtypes.bfloat16)
    assert judged(actual, actual, runs={"perturbed_narrow": torn[1:]}).verdict == "error"
