"""What torch's own 16-bit kernel gives is a warning where rounding inside explains it, and nobody else's output is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace

from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.standards.noise.standard import NoiseStandard
from tests.support.asking import Given, by_noise, comparison, normal

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


def test_a_change_of_the_reference_leaves_the_own_bits() -> None:
    asked = comparison(ROUNDED, EXPECTED, dtype="bfloat16", runs=RUNS, own_result=ROUNDED)
    assert NoiseStandard().judge(asked.with_reference(np.copy)).verdict == "warning"
    other = replace(asked.with_reference(np.copy), actual=np.nextafter(ROUNDED, ml_dtypes.bfloat16(9)))
    assert NoiseStandard().judge(other).verdict == "error"


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


HALF = EXPECTED.astype(np.float16)
HALF_RUNS = {"perturbed_narrow": [EXPECTED * (1 + 2.0**-11 * normal(400, seed=seed)) for seed in range(1, 5)]}


LOST = np.where(np.arange(400) == 7, np.inf, EXPECTED)
HALF_CASE: Any = {"dtype": "float16", "runs": {**HALF_RUNS, "overflowing_steps": [LOST]}, "api": "Torch.exp"}


@pytest.mark.parametrize("lost", [np.inf, -np.inf, np.nan])
def test_float16_may_overflow_inside_on_the_cpu(lost: float) -> None:
    actual = np.where(np.arange(400) == 7, lost, HALF).astype(np.float16)
    found = judged(actual, actual, **HALF_CASE)
    assert (found.verdict, "kernel here, which rounds inside and overflows: " in found.reason) == ("warning", True)
    assert (found.metrics["noise_ratio"], found.worst[0].index) == (np.inf, (7,))
    assert judged(actual, None, **HALF_CASE).verdict == "error"
    wrong = np.where(np.arange(400) == 9, 2 * actual, actual).astype(np.float16)
    assert judged(wrong, wrong, **HALF_CASE).verdict == "error"


@pytest.mark.parametrize("place", [8, 7])
def test_what_no_step_leads_to_is_no_overflow(place: int) -> None:
    actual = np.where(np.arange(400) == place, np.nan, HALF).astype(np.float16)
    runs = {**HALF_RUNS, "overflowing_steps": [LOST] if place == 8 else []}
    assert judged(actual, actual, **{**HALF_CASE, "runs": runs}).verdict == "error"


class Absolute(Given, frozen=True, kw_only=True):
    """What the reference gives for absolute values."""

    sizes: AnyArray

    def with_arguments(self, values: Mapping[str, Any]) -> AnyArray:
        assert all((value >= 0).all() for value in values.values())
        return self.sizes


def of_sums(actual: AnyArray, terms: int, sizes: AnyArray | None = None, **more: Any) -> OutputVerdict:
    """The framework's own product, or what `more` says, of that many terms."""
    found = actual.astype(ml_dtypes.bfloat16)
    given: Any = {"api": "Torch.prod", "reference": {"output.0": np.empty(400)}, "args": (np.ones((400, terms)),)}
    asked = comparison(found, EXPECTED, dtype="bfloat16", runs=RUNS, own_result=found, **{**given, **more})
    if sizes is not None:
        asked = replace(asked, evidence=Absolute(RUNS, own=found, sizes=sizes))
    return NoiseStandard().judge(asked)


@pytest.mark.parametrize(("terms", "verdict"), [(100, "warning"), (10, "error")])
def test_sums_of_n_terms_are_off_by_n_roundoffs_of_each(terms: int, verdict: str) -> None:
    """They are a fifth too small, which is 51 roundoffs."""
    assert of_sums(0.8 * EXPECTED, terms, EXPECTED).verdict == verdict
    assert of_sums(0.8 * EXPECTED, terms).verdict == verdict
    assert of_sums(0.8 * EXPECTED, terms, EXPECTED, api="Torch.exp").verdict == "error"


def test_terms_that_cancel_may_leave_more() -> None:
    """Ten terms: each result is the small rest of sums that are eight times as large."""
    assert of_sums(0.8 * EXPECTED, 10, 8 * EXPECTED).verdict == "warning"
    assert of_sums(np.where(np.arange(400) == 7, -EXPECTED, 0.8 * EXPECTED), 10, 8 * EXPECTED).verdict == "error"


@pytest.mark.parametrize("factor", [10.0, -1.0])
def test_no_sum_loses_more_than_all_of_its_terms(factor: float) -> None:
    assert of_sums(factor * EXPECTED, 10_000, EXPECTED).verdict == "error"


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_a_choice_among_terms_rounds_nothing(reduce: str) -> None:
    args = (np.ones((400, 100)), 1, np.zeros((400, 100), np.int64), np.ones((400, 100)))
    given: Any = {"api": "Torch.scatter_reduce", "args": (*args, reduce)}
    assert of_sums(0.8 * EXPECTED, 100, EXPECTED, **given).verdict == "error"
    given["args"] = (*args, "sum")
    assert of_sums(0.8 * EXPECTED, 100, EXPECTED, **given).verdict == "warning"


WANTED = 1 + np.arange(200) / 256


def between_kernels(seed: int) -> AnyArray:
    """Off by an ulp or not at all, as rounding between kernels makes it."""
    return np.asarray(WANTED + 2.0**-7 * np.random.default_rng(seed).integers(-1, 2, 200))


STEPS = [between_kernels(seed) for seed in range(2, 7)]
NEIGHBOURS = {"neighbours": [WANTED] * 4}
COMPOSED = {"composed_steps": STEPS[:1], "composed_steps_moved": STEPS[1:], **NEIGHBOURS}
STEPWISE = {"stepwise_steps": STEPS[:1], "stepwise_steps_moved": STEPS[1:], **NEIGHBOURS}
KERNEL = between_kernels(1).astype(ml_dtypes.bfloat16)


def by_steps(actual: AnyArray, own: AnyArray | None, runs: Any) -> OutputVerdict:
    narrow = np.asarray(actual).astype(ml_dtypes.bfloat16)
    return by_noise(narrow, WANTED, dtype="bfloat16", narrow="bfloat16", runs=runs, own_result=own)


def test_what_rounding_of_each_step_explains_passes() -> None:
    found = by_steps(KERNEL, KERNEL, COMPOSED)
    assert (found.verdict, found.reason) == ("pass", "rounds between its kernels")
    first = STEPS[0].astype(ml_dtypes.bfloat16)
    found = by_steps(first, first, STEPWISE)
    assert (found.verdict, found.reason) == ("pass", "rounds each step in bfloat16")


@pytest.mark.parametrize("runs", [COMPOSED, STEPWISE], ids=["between kernels", "each step"])
def test_steps_explain_nothing_of_another_function(runs: Any) -> None:
    for own in (None, np.nextafter(KERNEL, ml_dtypes.bfloat16(9))):
        assert by_steps(KERNEL, own, runs).verdict == "error"


@pytest.mark.parametrize("runs", [COMPOSED, STEPWISE], ids=["between kernels", "each step"])
@pytest.mark.parametrize(
    "wrong",
    [KERNEL * 1.05, np.where(np.arange(200) == 7, 1.2 * WANTED, KERNEL), np.roll(KERNEL, 1)],
    ids=["scaled", "one element", "shifted"],
)
def test_a_fault_of_the_kernel_is_no_rounding_of_its_steps(wrong: AnyArray, runs: Any) -> None:
    own = np.asarray(wrong).astype(ml_dtypes.bfloat16)
    assert by_steps(wrong, own, runs).verdict == "error"


@pytest.mark.parametrize("on_cpu", [True, False])
def test_steps_that_are_off_by_a_share_of_the_result_are_a_warning_on_the_cpu(on_cpu: bool) -> None:
    stepwise = [np.where(np.arange(200) % 2, WANTED * (1 + 0.1 * normal(200, seed=seed)), WANTED) for seed in range(5)]
    runs = {"stepwise_steps": stepwise[:1], "stepwise_steps_moved": stepwise[1:], **NEIGHBOURS}
    actual = stepwise[0].astype(ml_dtypes.bfloat16)
    given: Any = {"dtype": "bfloat16", "narrow": "bfloat16", "runs": runs, "on_cpu": on_cpu, "own_kernels": "cuda"}
    found = by_noise(actual, WANTED, own_result=actual, **given)
    assert (found.verdict, "rounds each step in bfloat16" in found.reason) == ("warning" if on_cpu else "pass", True)
