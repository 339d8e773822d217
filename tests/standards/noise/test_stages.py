from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pytest_probe.numerics.allowed_scale import Spread
from pytest_probe.standards.noise import stages
from tests.support.asking import ONES, ULP, by_noise, comparison, off


@pytest.mark.parametrize(("runs", "k"), [([0, 100], 2), ([100, 0], 1), ([0, 0, 0, 100], 4), ([0, 0, 100], 3)])
def test_runs_are_made_until_one_explains_the_error(runs: list[int], k: int) -> None:
    found = by_noise(off(1000), ONES, runs={"perturbed": [off(by) for by in runs]})
    assert (found.verdict, found.metrics["k"], found.metrics["scale_from"]) == ("pass", k, "float64")


def test_rounding_of_steps_explains_an_error_on_the_cpu() -> None:
    found = by_noise(off(1000), ONES, runs={"perturbed": [ONES] * 4, "float32_steps": [off(100)]})
    assert (found.verdict, found.metrics["scale_from"]) == ("pass", "steps")


def test_rounding_of_steps_explains_an_error_of_another_device() -> None:
    runs = {"perturbed": [ONES] * 4, "float32": [ONES] * 4, "float32_steps": [off(100)]}
    found = by_noise(off(1000), ONES, runs=runs, on_cpu=False)
    assert (found.verdict, found.metrics["scale_from"]) == ("pass", "steps")


def test_a_fault_of_the_cpus_float32_kernel_does_not_hide_itself() -> None:
    runs = {"perturbed": [ONES] * 4, "float32_steps": [ONES] * 4, "float32": [off(1000)] * 4}
    assert by_noise(off(1000), ONES, runs=runs).verdict == "error"
    assert by_noise(off(1000), ONES, runs=runs, on_cpu=False).verdict == "pass"


def test_what_float32_runs_differ_by_among_themselves_explains_16_times_as_much() -> None:
    runs = {"perturbed": [ONES] * 4, "float32_steps": [ONES] * 4, "float32": [off(0), off(100)]}
    assert by_noise(off(1000), ONES, runs=runs).metrics["scale_from"] == "float32 among themselves"
    assert by_noise(off(1700), ONES, runs=runs).verdict == "error"


def test_elementwise_apis_have_tighter_limits() -> None:
    assert by_noise(off(20), ONES, api="Torch.matmul").verdict == "pass"
    assert by_noise(off(20), ONES, api="Torch.exp").verdict == "error"


def test_scatter_of_other_elements_is_a_floor_but_for_elementwise_apis() -> None:
    runs = {"perturbed": [ONES + 8 * ULP * (np.arange(100) > 50)] * 4}
    assert by_noise(off(60), ONES, api="Torch.matmul", runs=runs).verdict == "pass"
    assert by_noise(off(60), ONES, api="Torch.exp", runs=runs).verdict == "error"


def test_a_smooth_function_grants_small_elements_no_share_of_large_ones() -> None:
    wanted = np.where(np.arange(100) < 90, 2.0**-20, 1.0)
    runs = {"perturbed": [wanted * (1 + 8 * ULP)] * 4, "float32_steps": [wanted] * 4}
    for share, verdict in ((500 * ULP, "pass"), (600 * ULP, "error")):
        wrong = wanted * (1 + share * (np.arange(100) == 60))
        assert by_noise(wrong, wanted, api="Functional.softmax", runs=runs).verdict == verdict
        assert by_noise(wrong, wanted, api="Torch.std", runs=runs).verdict == "pass"


def test_a_smooth_function_grants_each_element_8_medians() -> None:
    wanted = np.where(np.arange(100) == 60, 2.0**-40, 1.0)
    runs = {"perturbed": [wanted * (1 + 8 * ULP)] * 4, "float32_steps": [wanted] * 4}
    for medians, verdict in ((7.9, "pass"), (8.1, "error")):
        wrong = wanted + medians * 8 * ULP * (np.arange(100) == 60)
        assert by_noise(wrong, wanted, api="Functional.softmax", runs=runs).verdict == verdict


def test_elements_of_a_sample_count_as_often_as_they_stand_for_in_what_all_are_granted() -> None:
    size = np.where(np.arange(100) < 40, 1.0, 100.0)
    few, many = np.where(np.arange(100) < 40, 9.0, 1.0), np.where(np.arange(100) < 40, 1.0, 9.0)
    by_rms = [((360 + 60e4) / 420) ** 0.5 / 2, ((40 + 540e4) / 580) ** 0.5 / 2]
    for api, expected in (("Functional.softmax", [0.125, 12.5]), ("Torch.std", by_rms)):
        found = [
            stages.share_of(replace(comparison(ONES, ONES, api=api), weights=weights), Spread.of(size))
            for weights in (few, many)
        ]
        assert found == pytest.approx(expected)


def test_a_smooth_function_may_flush_subnormal_numbers_of_float32_inside() -> None:
    for small, verdict in ((2.0**-126, "pass"), (2.0**-80, "error")):
        wanted = np.where(np.arange(100) < 90, small, 1.0)
        wrong = np.where(np.arange(100) == 60, 0.0, wanted)
        runs = {"perturbed": [wanted] * 4, "float32_steps": [wanted] * 4}
        assert by_noise(wrong, wanted, api="Functional.softmax", runs=runs).verdict == verdict
        assert by_noise(wrong, wanted, api="Torch.exp", runs=runs).verdict == "error"


def test_limits_grow_with_the_terms_of_an_element() -> None:
    found = by_noise(off(60), ONES, terms=4096)
    assert (found.verdict, found.metrics["noise_ratio_limit"]) == ("pass", 128.0)
    assert (found.metrics["fan_in"], found.metrics["fan_in_assumed"]) == (4096, True)
    assert by_noise(off(60), ONES, terms=1024).verdict == "error"
    known = by_noise(off(60), ONES, api="Torch.mv", args=(np.ones((100, 4096)),))
    assert (known.verdict, known.metrics["fan_in"], "fan_in_assumed" in known.metrics) == ("pass", 4096, False)


def test_winograd_is_allowed_eight_times_as_much() -> None:
    direct, winograd = (
        {"api": "Functional.conv2d", "args": (None, np.ones((1, 1, extent, extent)))} for extent in (1, 3)
    )
    assert by_noise(off(200), ONES, **direct).verdict == "error"
    assert by_noise(off(200), ONES, **winograd).verdict == "pass"
    assert by_noise(off(300), ONES, **winograd).verdict == "error"


def test_float64_is_allowed_twice_as_much() -> None:
    wide = ONES + 60 * 2.0**-52 * (np.arange(100) == 0)
    found = by_noise(wide, ONES, dtype="float64")
    assert (found.verdict, found.metrics["noise_ratio_limit"]) == ("pass", 128.0)
    assert by_noise(2 * wide - ONES, ONES, dtype="float64").verdict == "error"


def test_a_factory_has_a_floor_of_a_roundoff_of_its_root_mean_square() -> None:
    wanted = np.linspace(-1.0, 1.0, 101)
    wrong = wanted + 2.0**-22 * (np.arange(101) == 50)
    assert by_noise(wrong, wanted, api="Torch.linspace").verdict == "pass"
    assert by_noise(wrong, wanted, api="Torch.exp").verdict == "error"


def test_16_bit_steps_explain_what_kernels_that_round_inside_do() -> None:
    wanted = 1 + np.arange(100) / 128
    wrong = wanted + 2.0**-7 * (np.arange(100) == 5)
    coarse = wanted + 2.0**-9
    runs = {"perturbed": [wanted] * 4, "float32_steps": [wanted] * 4, "narrow_steps": [coarse] * 4}
    found = by_noise(wrong, wanted, dtype="bfloat16", runs=runs)
    assert (found.verdict, found.metrics["scale_from"]) == ("pass", "16-bit steps")
    assert by_noise(wrong, wanted, dtype="bfloat16", runs={**runs, "narrow_steps": []}).verdict == "error"


def test_nan_where_the_reference_is_nan_passes_though_16_bit_steps_lead_to_a_number() -> None:
    wanted = np.where(np.arange(100) == 3, np.nan, 1 + np.arange(100) / 128)
    wrong = wanted + 2.0**-7 * (np.arange(100) == 5)
    steps = np.where(np.arange(100) == 3, 10.0, wrong)
    runs = {"perturbed": [wanted] * 4, "float32_steps": [wanted] * 4, "narrow_steps": [steps] * 4}
    assert by_noise(wrong, wanted, dtype="bfloat16", runs=runs).verdict == "pass"
    assert by_noise(steps, wanted, dtype="bfloat16", runs=runs).verdict == "pass"
    finite = np.nan_to_num(wanted, nan=2.0)
    assert by_noise(wrong, finite, dtype="bfloat16", runs={**runs, "perturbed": [finite] * 4}).verdict == "error"
