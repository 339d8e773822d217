from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pytest_probe.model.comparison import Evidence, RunKind
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics import noise_ratio
from pytest_probe.numerics.dtypes import AnyArray, round_to, widen
from pytest_probe.standards.noise.standard import NoiseStandard
from tests.support.asking import ONES, ULP, Given, by_noise, comparison, normal, off


def test_half_an_ulp_passes_without_a_run() -> None:
    made: list[int] = []

    class Counting(Evidence):
        def runs(self, kind: RunKind, count: int) -> list[AnyArray]:
            made.append(count)
            return []

    asked = replace(comparison(ONES, ONES + ULP / 4, dtype="float32"), evidence=Counting())
    found = NoiseStandard().judge(asked)
    assert (found.verdict, found.metrics["k"], found.metrics["noise_ratio"]) == ("pass", 0, 0.0)
    assert made == []


def test_what_no_run_explains_is_an_error() -> None:
    found = by_noise(
        off(1000), ONES, runs={kind: [ONES + ULP] * 4 for kind in ("perturbed", "float32", "float32_steps")}
    )
    assert found.verdict == "error"
    assert found.reason == "noise ratio 999.5 (limit 64), RMS noise ratio 99.95 (limit 13.6)"
    assert found.metrics["noise_ratio"] == 999.5
    assert found.metrics["noise_ratio_limit"] == 64.0
    assert (found.worst[0].index, found.worst[0].ratio) == ((0,), 999.5)


def test_nan_is_an_error() -> None:
    found = by_noise(np.where(ONES * np.arange(100) == 3, np.nan, ONES), ONES)
    assert found.verdict == "error"
    assert found.reason.startswith("noise ratio inf (limit 64)")
    assert found.worst[0].index == (3,)


def test_inf_where_runs_overflow_too_is_undecided_and_said_so() -> None:
    torn = np.where(np.arange(100) == 3, np.inf, ONES)
    found = by_noise(torn, ONES, runs={"perturbed": [torn] * 4})
    assert (found.verdict, found.metrics["undecided"]) == ("pass", 1)


def test_nan_is_an_error_even_where_runs_give_nan_too() -> None:
    torn = np.where(np.arange(100) == 3, np.nan, ONES)
    assert by_noise(torn, ONES, runs={"perturbed": [torn] * 4}).verdict == "error"


def test_a_wrong_number_where_runs_give_nan_is_an_error() -> None:
    torn = np.where(np.arange(100) == 0, np.nan, ONES)
    assert by_noise(off(1e6), ONES, runs={"perturbed": [torn] * 4}).verdict == "error"


def test_a_number_for_nan_is_an_error() -> None:
    wanted = np.where(np.arange(100) == 3, np.nan, ONES)
    assert by_noise(ONES, wanted, runs={"perturbed": [wanted] * 4}).verdict == "error"


def test_integers_are_exact_and_nothing_passes() -> None:
    assert by_noise(np.array([1, 2]), np.array([1, 2]), dtype="int64").verdict == "pass"
    assert by_noise(np.array([1, 3]), np.array([1, 2]), dtype="int64").verdict == "error"
    assert by_noise([], []).verdict == "pass"


def test_complex_parts_are_judged_together() -> None:
    wanted = ONES + 1j * ONES
    assert by_noise(wanted + 2j * ULP * (np.arange(100) == 0), wanted, dtype="complex64").verdict == "pass"
    assert by_noise(wanted + 1e3j * ULP * (np.arange(100) == 0), wanted, dtype="complex64").verdict == "error"


# Narrow dtypes


def test_a_shift_that_no_element_shows_is_an_error_in_16_bit() -> None:
    wanted = np.exp(normal(20_000))
    runs = {"perturbed": [wanted * (1 + 2.0**-17)]}
    assert by_noise(wanted * (1 + 2.0**-18), wanted, dtype="bfloat16", runs=runs).verdict == "pass"
    found = by_noise(wanted * (1 + 2.0**-13), wanted, dtype="bfloat16", runs=runs)
    assert float(found.metrics["noise_ratio"]) < 64
    assert found.verdict == "error"
    assert re.fullmatch(r"shifted on average by 9\.\d+ noise scales \(limit 8\), t = 17\.\d+", found.reason)


def test_a_scale_error_of_zero_mean_data_is_an_error_in_16_bit() -> None:
    wanted = normal(20_000)
    runs = {"perturbed": [wanted * (1 + 2.0**-17)]}
    found = by_noise(wanted * (1 + 2.0**-13), wanted, dtype="bfloat16", runs=runs)
    assert found.verdict == "error"
    assert found.reason.startswith("scaled on average by ")


def test_ties_that_a_kernel_rounds_twice_are_no_bias() -> None:
    """Quotients by 0.3 lie on ties of float16 by the hundred: float32 rounds to the tie, float64 does not."""
    x = np.arange(1, 4000) / 64
    wanted = x / float(np.float32(0.3))
    twice = widen(round_to(wanted, "float32"))
    assert np.count_nonzero(round_to(twice, "float16") != round_to(wanted, "float16")) > 50
    assert by_noise(twice, wanted, api="Torch.div", dtype="float16").verdict == "pass"


# Another device than the CPU


def test_the_cpus_own_kernel_is_a_witness() -> None:
    asked = {"on_cpu": False, "cpu_result": lambda: off(90).astype(np.float32)}
    found = by_noise(off(100), ONES, **asked)
    assert (found.verdict, found.reason) == ("pass", "as-cpu: the CPU's own kernel has as large an error (179)")
    assert by_noise(off(181), ONES, **asked).verdict == "error"
    assert by_noise(off(100), ONES, on_cpu=True, cpu_result=asked["cpu_result"]).verdict == "error"


def test_a_witness_without_digits_excuses_what_it_does_itself() -> None:
    """In the same elements, by twice as much, and nowhere else."""
    signs = np.where(np.arange(100) % 2, 1.0, -1.0)
    lost = (ONES + 5000 * ULP * signs).astype(np.float32)
    asked = {"on_cpu": False, "cpu_result": lambda: lost}
    assert by_noise(ONES - 6000 * ULP * signs, ONES, **asked).reason.startswith(
        "as-cpu: the CPU's own kernel has as large an error"
    )
    half = np.where(np.arange(100) < 50, lost, ONES).astype(np.float32)
    others = np.where(np.arange(100) < 50, ONES, lost)
    assert by_noise(others, ONES, on_cpu=False, cpu_result=lambda: half).verdict == "error"
    assert by_noise(off(5000), ONES, **asked).verdict == "error"


def test_a_witness_of_another_dtype_or_of_nan_says_nothing() -> None:
    wrong = off(100)
    assert by_noise(wrong, ONES, on_cpu=False, cpu_result=lambda: off(90).astype(np.float32)).verdict == "pass"
    assert by_noise(wrong, ONES, on_cpu=False, cpu_result=lambda: off(90).astype(np.float16)).verdict == "error"
    assert by_noise(wrong, ONES, on_cpu=False, cpu_result=lambda: np.full(100, np.nan, np.float32)).verdict == "error"


def test_a_witness_that_overflows_excuses_an_overflow_and_nothing_else() -> None:
    place = np.arange(100) == 3
    asked = {"on_cpu": False, "cpu_result": lambda: np.where(place, np.inf, off(90)).astype(np.float32)}
    found = by_noise(np.where(place, np.inf, ONES), ONES, **asked)
    assert (found.verdict, found.reason) == ("pass", "as-cpu: the CPU's own kernel overflows as well")
    assert by_noise(np.where(place, np.inf, off(100)), ONES, **asked).verdict == "pass"
    assert by_noise(np.where(place, np.inf, off(400)), ONES, **asked).verdict == "error"
    assert by_noise(np.where(place, 1.01, ONES), ONES, **asked).verdict == "error"
    assert by_noise(np.where(place, np.nan, ONES), ONES, **asked).verdict == "error"


def test_nan_of_a_witness_excuses_nan_where_no_step_of_its_kernel_is_known() -> None:
    """And where its factors are so large that a product may overflow on the way."""
    actual = np.where(np.arange(100) == 3, np.nan, ONES).astype(np.float16)
    asked: Any = {"dtype": "float16", "on_cpu": False, "runs": {"narrow_steps": [ONES] * 4}}
    asked["args"] = (np.full((100, 10), 4.0, np.float16),)
    as_cpu = {**asked, "cpu_result": lambda: actual}
    assert by_noise(actual, ONES, api="Torch.prod", **as_cpu).reason.startswith("as-cpu")
    assert by_noise(actual, ONES, api="Torch.sum", **as_cpu).verdict == "error"
    assert by_noise(np.roll(actual, 1), ONES, api="Torch.prod", **as_cpu).verdict == "error"
    assert by_noise(actual, ONES, api="Torch.prod", **asked).verdict == "error"
    as_cpu["args"] = (np.ones((100, 10), np.float16),)
    assert by_noise(actual, ONES, api="Torch.prod", **as_cpu).verdict == "error"


def test_without_a_witness_the_error_stands() -> None:
    assert by_noise(off(1000), ONES, on_cpu=False, cpu_result=lambda: None).verdict == "error"


WANTED = 1 + np.arange(200) / 256


def rounding(size: float, seed: int) -> AnyArray:
    """Errors of so many ulps, up and down alike, as rounding between kernels makes them."""
    return np.asarray(WANTED + size * 2.0**-7 * np.random.default_rng(seed).integers(-1, 2, 200))


def on_another(actual: Any, seeds: range = range(2, 7), size: float = 1.0) -> OutputVerdict:
    """A bfloat16 output of another device, where the call rounds between its kernels."""
    made = [rounding(size, seed) for seed in seeds]
    runs = {"composed_steps": made[:1], "composed_steps_moved": made[1:], "neighbours": [WANTED] * 4}
    return by_noise(actual, WANTED, dtype="bfloat16", on_cpu=False, narrow="bfloat16", runs=runs)


def test_a_device_that_rounds_between_its_kernels_passes() -> None:
    found = on_another(rounding(1.0, 1))
    assert (found.verdict, found.reason) == ("pass", "rounds between its kernels")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (rounding(1.0, 1) + 2.0**-7, "shifted on average by"),
        (rounding(4.0, 1), "RMS "),
        (rounding(1.0, 1) + 16 * 2.0**-7 * (np.arange(200) == 5), "an element is off by"),
        (WANTED + (rounding(1.0, 1) - WANTED) * np.where(np.arange(200) < 12, 3.0, 0.01), "is off "),
        (WANTED + 1.5 * 2.0**-7 * (np.arange(200) == 5), "1 of 200 elements are off by more than one rounding"),
        (np.where(np.arange(200) == 5, np.nan, WANTED), "not finite where the reference is"),
        (np.zeros(200), "RMS "),
    ],
    ids=["shifted", "too large", "one element", "one part", "one of a kernel that rounds once", "NaN", "zeros"],
)
def test_what_rounding_between_kernels_does_not_do_is_an_error(wrong: AnyArray, why: str) -> None:
    found = on_another(wrong)
    assert found.verdict == "error"
    assert why in found.reason.partition("no rounding between kernels: ")[2]


def test_a_call_that_rounds_once_is_granted_nothing() -> None:
    assert on_another(rounding(1.0, 1), size=0.0).verdict == "error"


def test_truncation_is_named() -> None:
    wanted = np.exp(normal(2000))
    cut = (wanted.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    found = by_noise(cut, wanted, dtype="bfloat16", on_cpu=False, narrow="bfloat16")
    assert found.verdict == "error"
    assert found.reason.startswith("truncates to bfloat16 where it should round: noise ratio ")
    assert by_noise(wanted, wanted, dtype="bfloat16", on_cpu=False, narrow="bfloat16").verdict == "pass"


def test_an_output_that_nobody_can_judge_is_no_pass() -> None:
    def overflown(count: int) -> OutputVerdict:
        lost = np.where(np.arange(100) < count, np.inf, ONES)
        return by_noise(lost, ONES, runs={"perturbed": [lost] * 4})

    assert overflown(50).verdict == "pass"
    found = overflown(51)
    assert found.verdict == "warning"
    assert found.reason == "undecided: 49 of 100 elements could be judged; perturbed runs overflow in the others"


def test_an_infinity_is_excused_by_one_of_its_sign() -> None:
    place = np.arange(100) == 3
    runs = {"perturbed": [np.where(place, np.inf, ONES)] * 4}
    assert by_noise(np.where(place, np.inf, ONES), ONES, runs=runs).verdict == "pass"
    assert by_noise(np.where(place, -np.inf, ONES), ONES, runs=runs).verdict == "error"


def test_what_no_run_moves_from_zero_stays_zero() -> None:
    wanted = np.where(np.arange(100) < 50, 0.0, 1.0)
    runs = {"perturbed": [wanted * (1 + 2.0**-10)] * 4}
    assert by_noise(wanted, wanted, runs=runs).verdict == "pass"
    assert by_noise(np.where(wanted == 0, 4.5e-5, wanted), wanted, runs=runs).verdict == "error"
    assert by_noise(np.where(wanted == 0, 1e-7, wanted), wanted, runs=runs).verdict == "pass"  # an FFT's rounding


def test_a_run_that_vanished_is_no_scale() -> None:
    """Squares overflow in float32, and the norm of a row is 0: the distance of such a run is all of the reference."""
    asked = {"on_cpu": False, "runs": {"perturbed": [ONES * (1 + ULP)] * 4, "float32": [0 * ONES] * 4}}
    assert by_noise(0 * ONES, ONES, **asked).verdict == "error"
    assert by_noise(ONES, ONES, **asked).verdict == "pass"


def test_a_bias_that_the_steps_explain() -> None:
    """A constant rounded between two steps moves all elements alike: on the CPU, whose steps are known, all is told."""
    wanted = 1 + np.arange(100) / 128
    steps = wanted + 2.0**-7
    asked = {"dtype": "bfloat16", "narrow": True}
    runs = {"float32_steps": [wanted + 2.0**-7 / 12] * 2}
    assert by_noise(steps, wanted, runs=runs, **asked).reason.startswith("shifted on average by ")
    known = runs | {"narrow_steps": [steps]}
    assert by_noise(steps, wanted, runs=known, **asked).verdict == "pass"
    assert by_noise(steps, wanted, runs=known, on_cpu=False, **asked).verdict == "error"
    assert by_noise(steps + 2.0**-7, wanted, runs=known, **asked).verdict == "error"


class Counted(Given, frozen=True):
    """Elements are sums of so many terms, where that is asked."""

    def terms(self) -> int:
        return int(self.made["terms"][0])


@pytest.mark.parametrize(
    ("error", "moved", "terms", "outcome"),
    [(40, 0, 4096, "pass"), (70, 2, 4096, "pass"), (90, 2, 4096, "pass"), (40, 0, 1, "error"), (90, 2, 1, "error")],
)
def test_what_was_measured_serves_where_terms_are_counted_later(
    error: int, moved: int, terms: int, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output that passes since it is assumed to be a sum of 16,384 terms is judged once more, with those that it
    has: by what was measured, and as if nothing had been measured."""
    runs = [ONES + moved * ULP * (np.arange(100) == place) for place in range(4)]
    asked = replace(
        comparison(off(error), ONES, dtype="float32", terms=16_384),
        evidence=Counted({"perturbed": runs, "terms": [terms]}),
    )
    measured: list[Any] = []
    original = noise_ratio.measure_noise

    def counting(*args: Any, **kwargs: Any) -> Any:
        measured.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(noise_ratio, "measure_noise", counting)
    found, first = NoiseStandard().judge(asked), len(measured)
    alone, second = NoiseStandard().judge(replace(asked, terms=terms)), len(measured) - first
    assert (found.verdict, found) == (outcome, alone)
    # Once more, to find out whether the terms matter.
    assert first == second + 1


@pytest.mark.parametrize(
    ("api", "error", "asked"),
    [
        ("Functional.scaled_dot_product_attention", 20, False),
        ("Functional.scaled_dot_product_attention", 40, True),
        ("Torch.made_up", 20, True),
    ],
)
def test_terms_of_attention_are_counted_where_they_matter(api: str, error: int, asked: bool) -> None:
    """Its elements are sums of some terms at least. Any other unknown function may work element by element."""
    counted: list[bool] = []

    class Asked(Given, frozen=True):
        def terms(self) -> int:
            counted.append(True)
            return 4096

    given = comparison(off(error), ONES, api=api, dtype="float32", terms=16_384)
    assert NoiseStandard().judge(replace(given, evidence=Asked())).verdict == "pass"
    assert counted == [True] * asked
