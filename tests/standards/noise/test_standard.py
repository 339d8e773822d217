from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from pytest_probe.core.comparison import Evidence, RunKind
from pytest_probe.numerics.dtypes import AnyArray, round_to, widen
from pytest_probe.standards.noise.standard import NoiseStandard
from tests.support.asking import ONES, ULP, by_noise, comparison, normal, off


def test_half_an_ulp_passes_without_a_run() -> None:
    made: list[int] = []

    class Counting(Evidence):
        def runs(self, kind: RunKind, count: int) -> list[AnyArray]:
            made.append(count)
            return []

    asked = replace(comparison(ONES, ONES + ULP / 4, dtype="float32"), evidence=Counting())
    found = NoiseStandard().judge(asked)
    assert (found.verdict, found.metrics["k"], found.metrics["noise_ratio"]) == ("pass", 0, 0.0)
    assert made == [0]


def test_what_no_run_explains_is_an_error() -> None:
    found = by_noise(off(1000), ONES, runs={kind: [ONES + ULP] * 4 for kind in ("float64", "float32", "fine")})
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
    found = by_noise(torn, ONES, runs={"float64": [torn] * 4})
    assert (found.verdict, found.metrics["undecided"]) == ("pass", 1)


def test_nan_is_an_error_even_where_runs_give_nan_too() -> None:
    torn = np.where(np.arange(100) == 3, np.nan, ONES)
    assert by_noise(torn, ONES, runs={"float64": [torn] * 4}).verdict == "error"


def test_a_wrong_number_where_runs_give_nan_is_an_error() -> None:
    torn = np.where(np.arange(100) == 0, np.nan, ONES)
    assert by_noise(off(1e6), ONES, runs={"float64": [torn] * 4}).verdict == "error"


def test_a_number_for_nan_is_an_error() -> None:
    wanted = np.where(np.arange(100) == 3, np.nan, ONES)
    assert by_noise(ONES, wanted, runs={"float64": [wanted] * 4}).verdict == "error"


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
    runs = {"float64": [wanted * (1 + 2.0**-17)]}
    assert by_noise(wanted * (1 + 2.0**-18), wanted, dtype="bfloat16", runs=runs).verdict == "pass"
    found = by_noise(wanted * (1 + 2.0**-13), wanted, dtype="bfloat16", runs=runs)
    assert float(found.metrics["noise_ratio"]) < 64
    assert found.verdict == "error"
    assert re.fullmatch(r"shifted on average by 9\.\d+ noise scales \(limit 8\), t = 17\.\d+", found.reason)


def test_a_scale_error_of_zero_mean_data_is_an_error_in_16_bit() -> None:
    wanted = normal(20_000)
    runs = {"float64": [wanted * (1 + 2.0**-17)]}
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
    assert (found.verdict, found.reason) == ("pass", "as-cpu: the CPU's own kernel errs as much (179)")
    assert by_noise(off(181), ONES, **asked).verdict == "error"
    assert by_noise(off(100), ONES, on_cpu=True, cpu_result=asked["cpu_result"]).verdict == "error"


def test_no_digits_left_is_a_warning() -> None:
    found = by_noise(off(5000), ONES, on_cpu=False, cpu_result=lambda: off(600).astype(np.float32))
    assert found.verdict == "warning"
    assert found.reason == "undecided: the CPU's own kernel has noise ratio 1,199, no digits are left"


def test_a_witness_that_overflows_excuses_an_overflow_and_nothing_else() -> None:
    place = np.arange(100) == 3
    asked = {"on_cpu": False, "cpu_result": lambda: np.where(place, np.inf, off(90)).astype(np.float32)}
    found = by_noise(np.where(place, np.inf, ONES), ONES, **asked)
    assert (found.verdict, found.reason) == ("pass", "as-cpu: the CPU's own kernel overflows as well")
    assert by_noise(np.where(place, np.inf, off(100)), ONES, **asked).verdict == "pass"
    assert by_noise(np.where(place, np.inf, off(400)), ONES, **asked).verdict == "error"
    assert by_noise(np.where(place, 1.01, ONES), ONES, **asked).verdict == "error"
    assert by_noise(np.where(place, np.nan, ONES), ONES, **asked).verdict == "error"


def test_without_a_witness_the_error_stands() -> None:
    assert by_noise(off(1000), ONES, on_cpu=False, cpu_result=lambda: None).verdict == "error"


def test_a_16_bit_device_that_rounds_between_its_steps_gets_a_warning() -> None:
    wanted = 1 + np.arange(100) / 128
    wrong = wanted + 2.0**-7 * (np.arange(100) == 5)
    asked = {"dtype": "bfloat16", "on_cpu": False, "narrow": True}
    found = by_noise(wrong, wanted, runs={"narrow": [wanted + 2.0**-9] * 2}, **asked)
    assert found.verdict == "warning"
    assert found.reason.startswith("rounds between its steps: noise ratio ")
    assert by_noise(wrong, wanted, runs={"narrow": [wanted] * 2}, **asked).verdict == "error"


def test_a_bias_that_the_steps_explain() -> None:
    """A constant rounded between two steps moves all elements alike: on the CPU, whose steps are known, all is told."""
    wanted = 1 + np.arange(100) / 128
    steps = wanted + 2.0**-7
    asked = {"dtype": "bfloat16", "narrow": True}
    runs = {"fine": [wanted + 2.0**-7 / 12] * 2}
    assert by_noise(steps, wanted, runs=runs, **asked).reason.startswith("shifted on average by ")
    known = runs | {"coarse": [steps]}
    assert by_noise(steps, wanted, runs=known, **asked).verdict == "pass"
    assert by_noise(steps, wanted, runs=known, on_cpu=False, **asked).verdict == "warning"
    assert by_noise(steps + 2.0**-7, wanted, runs=known, **asked).verdict == "error"


def test_a_16_bit_device_whose_steps_are_the_cpus_gets_a_warning() -> None:
    """Each element is one that the steps give, or the reference's; what is near both is neither."""
    wanted = 1 + np.arange(100) / 128
    steps = wanted + 2.0**-6
    asked = {"dtype": "bfloat16", "on_cpu": False, "narrow": True, "runs": {"coarse": [steps]}}
    found = by_noise(np.where(np.arange(100) % 2, steps, wanted), wanted, **asked)
    assert (found.verdict, found.reason.partition(":")[0]) == ("warning", "rounds between its steps")
    assert by_noise(wanted + 2.0**-7, wanted, **asked).verdict == "error"
