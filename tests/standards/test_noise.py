from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics.dtypes import AnyArray, round_to, widen
from pytest_probe.standards.noise import NoiseStandard
from pytest_probe.standards.verdict import OutputVerdict
from tests.standards.asking import normal, question

ULP = 2.0**-23  # of float32 at 1
ONES = np.ones(100)


def judge(actual: Any, expected: Any, **more: Any) -> OutputVerdict:
    return NoiseStandard().judge(question(actual, expected, **{"dtype": "float32", **more}))


def off(by: float) -> AnyArray:
    """A hundred ones in float32, the first off by that many ulp."""
    return ONES + by * ULP * (np.arange(100) == 0)


def test_half_an_ulp_passes_without_a_run() -> None:
    made: list[int] = []
    asked = replace(question(ONES, ONES + ULP / 4, dtype="float32"), runs=lambda kind, count: made.append(count) or [])
    found = NoiseStandard().judge(asked)
    assert (found.verdict, found.metrics["k"], found.metrics["noise_ratio"]) == ("pass", 0, 0.0)
    assert made == [0]


def test_what_no_run_explains_is_an_error() -> None:
    found = judge(off(1000), ONES, runs={kind: [ONES + ULP] * 4 for kind in ("float64", "float32", "fine")})
    assert found.verdict == "error"
    assert found.reason == "noise ratio 999.5 (limit 64), RMS noise ratio 99.95 (limit 13.6)"
    assert found.metrics["noise_ratio"] == 999.5
    assert found.metrics["noise_ratio_limit"] == 64.0
    assert (found.worst[0].index, found.worst[0].ratio) == ((0,), 999.5)


@pytest.mark.parametrize(("runs", "k"), [([0, 100], 2), ([100, 0], 1), ([0, 0, 0, 100], 4), ([0, 0, 100], 3)])
def test_runs_are_made_until_one_explains_the_error(runs: list[int], k: int) -> None:
    found = judge(off(1000), ONES, runs={"float64": [off(by) for by in runs]})
    assert (found.verdict, found.metrics["k"], found.metrics["scale_from"]) == ("pass", k, "float64")


def test_rounding_of_steps_explains_an_error_on_the_cpu() -> None:
    found = judge(off(1000), ONES, runs={"float64": [ONES] * 4, "fine": [off(100)]})
    assert (found.verdict, found.metrics["scale_from"]) == ("pass", "steps")


def test_rounding_of_steps_explains_an_error_of_another_device() -> None:
    runs = {"float64": [ONES] * 4, "float32": [ONES] * 4, "fine": [off(100)]}
    found = judge(off(1000), ONES, runs=runs, on_cpu=False)
    assert (found.verdict, found.metrics["scale_from"]) == ("pass", "steps")


def test_a_fault_of_the_cpus_float32_kernel_does_not_hide_itself() -> None:
    runs = {"float64": [ONES] * 4, "fine": [ONES] * 4, "float32": [off(1000)] * 4}
    assert judge(off(1000), ONES, runs=runs).verdict == "error"
    assert judge(off(1000), ONES, runs=runs, on_cpu=False).verdict == "pass"


def test_what_float32_runs_differ_by_among_themselves_explains_16_times_as_much() -> None:
    runs = {"float64": [ONES] * 4, "fine": [ONES] * 4, "float32": [off(0), off(100)]}
    assert judge(off(1000), ONES, runs=runs).metrics["scale_from"] == "float32 among themselves"
    assert judge(off(1700), ONES, runs=runs).verdict == "error"


def test_elementwise_apis_have_tighter_limits() -> None:
    assert judge(off(20), ONES, api="Torch.matmul").verdict == "pass"
    assert judge(off(20), ONES, api="Torch.exp").verdict == "error"


def test_scatter_of_other_elements_is_a_floor_but_for_elementwise_apis() -> None:
    runs = {"float64": [ONES + 8 * ULP * (np.arange(100) > 50)] * 4}
    assert judge(off(60), ONES, api="Torch.matmul", runs=runs).verdict == "pass"
    assert judge(off(60), ONES, api="Torch.exp", runs=runs).verdict == "error"


def test_limits_grow_with_the_fan_in() -> None:
    found = judge(off(60), ONES, fan_in=4096, fan_in_assumed=True)
    assert (found.verdict, found.metrics["noise_ratio_limit"]) == ("pass", 128.0)
    assert (found.metrics["fan_in"], found.metrics["fan_in_assumed"]) == (4096, True)
    assert judge(off(60), ONES, fan_in=1024).verdict == "error"


def test_winograd_is_allowed_eight_times_as_much() -> None:
    assert judge(off(200), ONES).verdict == "error"
    assert judge(off(200), ONES, winograd=True).verdict == "pass"
    assert judge(off(300), ONES, winograd=True).verdict == "error"


def test_float64_is_allowed_twice_as_much() -> None:
    wide = ONES + 60 * 2.0**-52 * (np.arange(100) == 0)
    found = judge(wide, ONES, dtype="float64")
    assert (found.verdict, found.metrics["noise_ratio_limit"]) == ("pass", 128.0)
    assert judge(2 * wide - ONES, ONES, dtype="float64").verdict == "error"


def test_nan_is_an_error() -> None:
    found = judge(np.where(ONES * np.arange(100) == 3, np.nan, ONES), ONES)
    assert found.verdict == "error"
    assert found.reason.startswith("noise ratio inf (limit 64)")
    assert found.worst[0].index == (3,)


def test_inf_where_runs_overflow_too_is_undecided_and_said_so() -> None:
    torn = np.where(np.arange(100) == 3, np.inf, ONES)
    found = judge(torn, ONES, runs={"float64": [torn] * 4})
    assert (found.verdict, found.metrics["undecided"]) == ("pass", 1)


def test_nan_is_an_error_even_where_runs_give_nan_too() -> None:
    torn = np.where(np.arange(100) == 3, np.nan, ONES)
    assert judge(torn, ONES, runs={"float64": [torn] * 4}).verdict == "error"


def test_a_wrong_number_where_runs_give_nan_is_an_error() -> None:
    torn = np.where(np.arange(100) == 0, np.nan, ONES)
    assert judge(off(1e6), ONES, runs={"float64": [torn] * 4}).verdict == "error"


def test_a_number_for_nan_is_an_error() -> None:
    wanted = np.where(np.arange(100) == 3, np.nan, ONES)
    assert judge(ONES, wanted, runs={"float64": [wanted] * 4}).verdict == "error"


def test_integers_are_exact_and_nothing_passes() -> None:
    assert judge(np.array([1, 2]), np.array([1, 2]), dtype="int64").verdict == "pass"
    assert judge(np.array([1, 3]), np.array([1, 2]), dtype="int64").verdict == "error"
    assert judge([], []).verdict == "pass"


def test_complex_parts_are_judged_together() -> None:
    wanted = ONES + 1j * ONES
    assert judge(wanted + 2j * ULP * (np.arange(100) == 0), wanted, dtype="complex64").verdict == "pass"
    assert judge(wanted + 1e3j * ULP * (np.arange(100) == 0), wanted, dtype="complex64").verdict == "error"


def test_a_factory_has_a_floor_of_a_roundoff_of_its_root_mean_square() -> None:
    wanted = np.linspace(-1.0, 1.0, 101)
    wrong = wanted + 2.0**-22 * (np.arange(101) == 50)
    assert judge(wrong, wanted, api="Torch.linspace").verdict == "pass"
    assert judge(wrong, wanted, api="Torch.exp").verdict == "error"


# Narrow dtypes


def test_a_shift_that_no_element_shows_is_an_error_in_16_bit() -> None:
    wanted = np.exp(normal(20_000))
    runs = {"float64": [wanted * (1 + 2.0**-17)]}
    assert judge(wanted * (1 + 2.0**-18), wanted, dtype="bfloat16", runs=runs).verdict == "pass"
    found = judge(wanted * (1 + 2.0**-13), wanted, dtype="bfloat16", runs=runs)
    assert found.metrics["noise_ratio"] < 64
    assert found.verdict == "error"
    assert re.fullmatch(r"shifted on average by 9\.\d+ noise scales \(limit 8\), t = 17\.\d+", found.reason)


def test_a_scale_error_of_zero_mean_data_is_an_error_in_16_bit() -> None:
    wanted = normal(20_000)
    runs = {"float64": [wanted * (1 + 2.0**-17)]}
    found = judge(wanted * (1 + 2.0**-13), wanted, dtype="bfloat16", runs=runs)
    assert found.verdict == "error"
    assert found.reason.startswith("scaled on average by ")


def test_ties_that_a_kernel_rounds_twice_are_no_bias() -> None:
    """Quotients by 0.3 lie on ties of float16 by the hundred: float32 rounds to the tie, float64 does not."""
    x = np.arange(1, 4000) / 64
    wanted = x / float(np.float32(0.3))
    twice = widen(round_to(wanted, "float32"))
    assert np.count_nonzero(round_to(twice, "float16") != round_to(wanted, "float16")) > 50
    assert judge(twice, wanted, api="Torch.div", dtype="float16").verdict == "pass"


def test_16_bit_steps_explain_what_kernels_that_round_inside_do() -> None:
    wanted = 1 + np.arange(100) / 128
    wrong = wanted + 2.0**-7 * (np.arange(100) == 5)
    coarse = wanted + 2.0**-9
    runs = {"float64": [wanted] * 4, "fine": [wanted] * 4, "coarse": [coarse] * 4}
    found = judge(wrong, wanted, dtype="bfloat16", runs=runs)
    assert (found.verdict, found.metrics["scale_from"]) == ("pass", "16-bit steps")
    assert judge(wrong, wanted, dtype="bfloat16", runs={**runs, "coarse": []}).verdict == "error"


def test_nan_where_the_reference_is_nan_passes_though_16_bit_steps_lead_to_a_number() -> None:
    wanted = np.where(np.arange(100) == 3, np.nan, 1 + np.arange(100) / 128)
    wrong = wanted + 2.0**-7 * (np.arange(100) == 5)
    steps = np.where(np.arange(100) == 3, 10.0, wrong)
    runs = {"float64": [wanted] * 4, "fine": [wanted] * 4, "coarse": [steps] * 4}
    assert judge(wrong, wanted, dtype="bfloat16", runs=runs).verdict == "pass"
    assert judge(steps, wanted, dtype="bfloat16", runs=runs).verdict == "pass"
    finite = np.nan_to_num(wanted, nan=2.0)
    assert judge(wrong, finite, dtype="bfloat16", runs={**runs, "float64": [finite] * 4}).verdict == "error"


# Another device than the CPU


def test_the_cpus_own_kernel_is_a_witness() -> None:
    asked = {"on_cpu": False, "witness": lambda: off(90).astype(np.float32)}
    found = judge(off(100), ONES, **asked)
    assert (found.verdict, found.reason) == ("pass", "as-cpu: the CPU's own kernel errs as much (179)")
    assert judge(off(181), ONES, **asked).verdict == "error"
    assert judge(off(100), ONES, on_cpu=True, witness=asked["witness"]).verdict == "error"


def test_no_digits_left_is_a_warning() -> None:
    found = judge(off(5000), ONES, on_cpu=False, witness=lambda: off(600).astype(np.float32))
    assert found.verdict == "warning"
    assert found.reason == "undecided: the CPU's own kernel has noise ratio 1,199, no digits are left"


def test_a_witness_that_overflows_excuses_an_overflow_and_nothing_else() -> None:
    place = np.arange(100) == 3
    asked = {"on_cpu": False, "witness": lambda: np.where(place, np.inf, off(90)).astype(np.float32)}
    found = judge(np.where(place, np.inf, ONES), ONES, **asked)
    assert (found.verdict, found.reason) == ("pass", "as-cpu: the CPU's own kernel overflows as well")
    assert judge(np.where(place, np.inf, off(100)), ONES, **asked).verdict == "pass"
    assert judge(np.where(place, np.inf, off(400)), ONES, **asked).verdict == "error"
    assert judge(np.where(place, 1.01, ONES), ONES, **asked).verdict == "error"
    assert judge(np.where(place, np.nan, ONES), ONES, **asked).verdict == "error"


def test_without_a_witness_the_error_stands() -> None:
    assert judge(off(1000), ONES, on_cpu=False, witness=lambda: None).verdict == "error"


def test_a_16_bit_device_that_rounds_between_its_steps_gets_a_warning() -> None:
    wanted = 1 + np.arange(100) / 128
    wrong = wanted + 2.0**-7 * (np.arange(100) == 5)
    asked = {"dtype": "bfloat16", "on_cpu": False, "narrow": True}
    found = judge(wrong, wanted, runs={"narrow": [wanted + 2.0**-9] * 2}, **asked)
    assert found.verdict == "warning"
    assert found.reason.startswith("rounds between its steps: noise ratio ")
    assert judge(wrong, wanted, runs={"narrow": [wanted] * 2}, **asked).verdict == "error"


def test_a_bias_that_the_steps_explain() -> None:
    """A constant rounded between two steps moves all elements alike: on the CPU, whose steps are known, all is told."""
    wanted = 1 + np.arange(100) / 128
    steps = wanted + 2.0**-7
    asked = {"dtype": "bfloat16", "narrow": True}
    runs = {"fine": [wanted + 2.0**-7 / 12] * 2}
    assert judge(steps, wanted, runs=runs, **asked).reason.startswith("shifted on average by ")
    known = runs | {"coarse": [steps]}
    assert judge(steps, wanted, runs=known, **asked).verdict == "pass"
    assert judge(steps, wanted, runs=known, on_cpu=False, **asked).verdict == "warning"
    assert judge(steps + 2.0**-7, wanted, runs=known, **asked).verdict == "error"


def test_a_16_bit_device_whose_steps_are_the_cpus_gets_a_warning() -> None:
    """Each element is one that the steps give, or the reference's; what is near both is neither."""
    wanted = 1 + np.arange(100) / 128
    steps = wanted + 2.0**-6
    asked = {"dtype": "bfloat16", "on_cpu": False, "narrow": True, "runs": {"coarse": [steps]}}
    found = judge(np.where(np.arange(100) % 2, steps, wanted), wanted, **asked)
    assert (found.verdict, found.reason.partition(":")[0]) == ("warning", "rounds between its steps")
    assert judge(wanted + 2.0**-7, wanted, **asked).verdict == "error"
