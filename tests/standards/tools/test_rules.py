"""Every rule at its limits, from both sides."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools import COMPARES, TOOLS
from pytest_probe.standards.tools.release import (
    RuleVerdict,
    absolute_threshold,
    accumulative,
    accuracy_reached,
    binary,
    packaged_release,
    thousandth,
    ulp,
)
from pytest_probe.standards.tools.table import RuleLimits, packaged
from pytest_probe.standards.tools.tool import Compare, ComparedMetric, Ratios, compared, status, worst_ratio

FLOAT32_ULP, ULP_16_BIT = (packaged().limits["ulp"][dtype] for dtype in ("float32", "float16"))
LIMITS = COMPARES["benchmark"].how.limits
NEAR, FAR = Measures(100, cosine_distance=0.0), Measures(100, cosine_distance=0.02)
NAN, INF = math.nan, math.inf
LESS = 1 - 1e-9
CLEAN = Measures(100, inf_nan_error_ratio=0.0, rel_error_ratio=0.0, abs_error_ratio=0.0, error_balance=0.0)


def preliminary(measures: Measures, dtype: str) -> RuleVerdict:
    return status(packaged_release("msprobe").status, dtype, measures)


def changed(measures: Measures, **values: float | None) -> Measures:
    """With other values, by names that are made as the tests run."""
    others: dict[str, Any] = values
    return replace(measures, **others)


BALANCE, SHARE = {"error_balance": 0.01}, {"ratio": 0.999}
# A rule, its limits, what was measured, and the verdict: at the limit, next to it, and of NaN.
AT_LIMITS: list[tuple[Any, RuleLimits | None, dict[str, Any], str]] = [
    *((binary, None, {"binary_mismatch_ratio": share}, verdict)
      for share, verdict in ((0.0, "pass"), (None, "pass"), (1e-9, "error"), (NAN, "error"))),
    (absolute_threshold, None, {}, "pass"),
    *((absolute_threshold, None, {name: share}, "error")
      for name in ("inf_nan_error_ratio", "rel_error_ratio", "abs_error_ratio") for share in (1e-9, NAN)),
    *((accumulative, BALANCE, {"error_balance": balance}, verdict)
      for balance, verdict in ((0.01, "pass"), (0.01 / LESS, "error"), (NAN, "error"))),
    (accumulative, BALANCE, {"error_balance": 0.0, "rel_error_ratio": 0.1}, "error"),
    *((thousandth, SHARE, {"thousandth_ratio": share}, verdict)
      for share, verdict in ((0.999, "pass"), (0.999 * LESS, "error"), (NAN, "error"))),
    *((ulp, limits, {"ulp_mean": mean, "ulp_over_ratio": share}, verdict) for limits, mean, share, verdict in (
        (FLOAT32_ULP, 64 * LESS, 1.0, "pass"), (FLOAT32_ULP, 64.0, 0.05 * LESS, "pass"),
        (FLOAT32_ULP, 64.0, 0.05, "error"), (FLOAT32_ULP, NAN, 0.05, "error"),
        (ULP_16_BIT, 1e9, 0.001 * LESS, "pass"), (ULP_16_BIT, 0.0, 0.001, "error"), (ULP_16_BIT, INF, NAN, "error"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "limits", "values", "verdict"), AT_LIMITS)
def test_a_rule_at_its_limits(rule: Any, limits: RuleLimits | None, values: dict[str, Any], verdict: str) -> None:
    measures = changed(CLEAN, **values)
    assert (rule(measures) if limits is None else rule(measures, limits)).verdict == verdict


def test_shares_are_said_in_per_cent() -> None:
    assert "1e-07 % of the" in absolute_threshold(changed(CLEAN, rel_error_ratio=1e-9)).reason


@pytest.mark.parametrize(
    ("mean", "share", "other_mean", "other", "verdict"),
    [
        (100.0, 0.5, 100.0, 0.5, "error"),
        (100.0, 0.5, 100.0, 0.5 / LESS, "pass"),
        (100.0, 0.5, 0.0, 0.0, "error"),
        (NAN, 0.5, NAN, 0.1, "error"),
        (NAN, 0.5, NAN, 0.6, "pass"),
        (INF, 0.5, INF, 0.1, "error"),
        (INF, 0.5, INF, 0.6, "pass"),
        (0.5, 0.0, NAN, 0.0, "error"),
        (INF, 0.5, NAN, 0.1, "error"),
        (NAN, 0.5, 100.0, 0.9, "error"),
    ],
)
def test_ulp_beside_a_benchmark(mean: float, share: float, other_mean: float, other: float, verdict: str) -> None:
    device, beside = (Measures(100, ulp_mean=m, ulp_over_ratio=s) for m, s in ((mean, share), (other_mean, other)))
    assert ulp(device, FLOAT32_ULP, beside).verdict == verdict


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_cosine_and_the_largest_error_come_first(dtype: str) -> None:
    poor = replace(NEAR, hundredth_ratio=0.0, thousandth_ratio=0.0, ten_thousandth_ratio=0.0)
    assert preliminary(replace(poor, max_abs_error=0.001 * LESS), dtype).verdict == "pass"
    assert preliminary(replace(poor, max_abs_error=0.001), dtype).verdict == "error"
    assert preliminary(replace(poor, max_abs_error=NAN), dtype).verdict == "error"
    assert preliminary(replace(FAR, max_abs_error=0.0), dtype).verdict == "error"
    assert preliminary(replace(NEAR, cosine_distance=0.01 * LESS, max_abs_error=0.0), dtype).verdict == "pass"
    assert preliminary(replace(NEAR, cosine_distance=0.01 / LESS, max_abs_error=0.0), dtype).verdict == "error"


@pytest.mark.parametrize(
    ("dtype", "coarse", "fine", "limits"),
    [
        ("float16", "hundredth_ratio", "thousandth_ratio", (0.99, 0.999)),
        ("bfloat16", "hundredth_ratio", "thousandth_ratio", (0.99, 0.999)),
        ("float32", "thousandth_ratio", "ten_thousandth_ratio", (0.999, 0.9999)),
        ("float64", "thousandth_ratio", "ten_thousandth_ratio", (0.999, 0.9999)),
    ],
)
def test_shares_decide_by_dtype(dtype: str, coarse: str, fine: str, limits: tuple[float, float]) -> None:
    def verdict(first: float, second: float) -> str:
        return preliminary(changed(replace(NEAR, max_abs_error=1.0), **{coarse: first, fine: second}), dtype).verdict

    above = [limit / LESS for limit in limits]
    assert verdict(above[0], above[1]) == "pass"
    assert verdict(above[0], limits[1]) == "warning"
    assert verdict(limits[0], above[1]) == "error"


def test_one_side_of_zeros_is_an_error_and_both_are_none() -> None:
    def verdict(actual: float, expected: float, count: int = 2) -> str:
        measures = Measures(count, actual_magnitude=actual, expected_magnitude=expected, max_abs_error=1e-9)
        return preliminary(measures, "float32").verdict

    assert [verdict(0.0, 0.0), verdict(1e-9, 0.0), verdict(0.0, 1e-9)] == ["pass", "error", "error"]
    assert verdict(2.0**-52, 0.0) == "pass"
    assert verdict(0.0, 1e-9, count=1) == "pass"


@pytest.mark.parametrize(("device", "other"), [(2.0, 1.0), (0.0, 0.0), (None, None)])
@pytest.mark.parametrize("name", ["rmse", "mean_rel_error", "small_value_error_ratio"])
def test_ratios_up_to_two_are_a_warning(name: str, device: float | None, other: float | None) -> None:
    found = worst_ratio(_ratios(name, device, other))
    assert found.verdict == ("warning" if device else "pass")
    if device:
        assert worst_ratio(_ratios(name, device / LESS, other)).verdict == "error"
        assert worst_ratio(_ratios(name, 1.0, other)).verdict == "pass"
        assert worst_ratio(_ratios(name, 1.0 / LESS, other)).verdict == "warning"


def _ratios(
    name: str, device: float | None, other: float | None, ratios: Ratios | None = None
) -> tuple[ComparedMetric, ...]:
    own, others = (changed(Measures(9), **{name: value}) for value in (device, other))
    return compared(own, others, ratios or Ratios(), LIMITS)


def test_the_largest_error_may_be_ten_times_the_benchmarks() -> None:
    assert worst_ratio(_ratios("max_rel_error", 10.0, 1.0)).verdict == "warning"
    assert worst_ratio(_ratios("max_rel_error", 10.0 / LESS, 1.0)).verdict == "error"


def test_the_balance_never_counts() -> None:
    found = _ratios("error_balance", 1.0, 0.1)
    assert [item.ruling.verdict for item in found if item.metric == "error_balance"] == ["error"]
    assert worst_ratio(found).verdict == "pass"


@pytest.mark.parametrize(
    ("device", "other", "alike", "unbounded"),
    [
        (NAN, NAN, "pass", "error"),
        (INF, INF, "pass", "error"),
        (INF, NAN, "error", "error"),
        (1.0, INF, "error", "error"),
    ],
)
def test_nan_and_inf(device: float, other: float, alike: str, unbounded: str) -> None:
    assert worst_ratio(_ratios("rmse", device, other)).verdict == alike
    assert worst_ratio(_ratios("rmse", device, other, Ratios(nonfinite="unbounded"))).verdict == unbounded


def test_the_least_that_a_benchmark_counts_as() -> None:
    assert worst_ratio(_ratios("rmse", 1e-30, 0.0)).verdict == "error"
    assert worst_ratio(_ratios("rmse", 2.0**-13, 0.0, Ratios(floor=2.0**-14))).verdict == "warning"
    assert worst_ratio(_ratios("rmse", 2.0**-13 / LESS, 0.0, Ratios(floor=2.0**-14))).verdict == "error"


@pytest.mark.parametrize(("dtype", "floor"), [("float16", 2.0**-11), ("bfloat16", 2.0**-8), ("float32", 2.0**-14)])
@pytest.mark.parametrize("compare", [COMPARES["msprobe-8"], COMPARES["msprobe-26"]])
def test_the_least_by_dtype(compare: Compare, dtype: str, floor: float) -> None:
    def verdict(rmse: float) -> str:
        return compare("Functional.softmax", dtype, Measures(9, rmse=rmse), Measures(9, rmse=0.0)).ruling.verdict

    assert [verdict(2 * floor), verdict(2 * floor / LESS)] == ["pass", "error"]


@pytest.mark.parametrize(
    ("dtype", "share", "verdict"),
    [
        ("bfloat16", 2.0**-8 * LESS, "pass"),
        ("bfloat16", 2.0**-8, "error"),
        ("float16", 0.001, "error"),
        ("float32", 0.05, "error"),
        ("float32", 0.05 * LESS, "pass"),
    ],
)
def test_msprobe_8_counts_a_benchmarks_share_of_ulps_as_the_least(dtype: str, share: float, verdict: str) -> None:
    device, other = Measures(9, ulp_mean=64.0, ulp_over_ratio=share), Measures(9, ulp_mean=0.0, ulp_over_ratio=0.0)
    assert COMPARES["msprobe-8"]("Functional.linear", dtype, device, other).ruling.verdict == verdict


@pytest.mark.parametrize(
    ("api", "limit"), [("Functional.gelu", 2.0), ("Functional.embedding", 1.5), ("Functional.layer_norm", 1.2)]
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_levels_of_msprobe_26(api: str, limit: float, dtype: str) -> None:
    def verdict(ratio: float) -> str:
        device, other = Measures(9, rmse=ratio), Measures(9, rmse=1.0)
        return COMPARES["msprobe-26"](api, dtype, device, other).ruling.verdict

    assert [verdict(limit), verdict(limit / LESS)] == ["pass", "error"]


def test_the_list_of_the_api_chooses_the_rule() -> None:
    def rules(compare: Compare, dtype: str = "float32") -> list[str]:
        names = ("conv2d", "relu", "mul_", "linear", "softmax", "__truediv__")
        return [compare(f"Torch.{name}", dtype, CLEAN, CLEAN).rule for name in names]

    of_lists = ["thousandth", "binary", "absolute_threshold", "ulp", "benchmark", "benchmark"]
    assert rules(COMPARES["msprobe"]) == rules(COMPARES["msprobe-1.0"]) == rules(COMPARES["msprobe-8"]) == of_lists
    assert COMPARES["msprobe-8"]("Torch.histc", "float32", CLEAN, CLEAN).rule == "binary"
    assert COMPARES["msprobe-1.0"]("Torch.histc", "float32", CLEAN, CLEAN).rule == "benchmark"
    assert (
        rules(COMPARES["benchmark"])
        == rules(COMPARES["msprobe-26"])
        == rules(COMPARES["paddleapex"])
        == ["benchmark"] * 6
    )
    assert rules(COMPARES["msprobe"], "int64") == rules(COMPARES["msprobe-26"], "int64") == ["binary"] * 6


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_what_no_benchmark_rule_supports_is_skipped(dtype: str) -> None:
    for compare in COMPARES.values():
        assert compare("Functional.softmax", dtype, CLEAN, CLEAN).ruling.verdict == "skip"


def test_the_float32_rule_that_1_0_4_never_finds() -> None:
    measures = Measures(100, ulp_mean=1.0, ulp_over_ratio=0.001)
    assert COMPARES["msprobe"]("Functional.linear", "float32", measures, measures).ruling.verdict == "pass"
    assert COMPARES["msprobe-1.0"]("Functional.linear", "float32", measures, measures).ruling.verdict == "error"


@pytest.mark.parametrize("dtype", ["int16", "int8", "uint16", "complex64"])
def test_what_the_tool_cannot_compare(dtype: str) -> None:
    measures = Measures(9, binary_mismatch_ratio=0.0)
    assert TOOLS["msprobe-1.0"].status(dtype, measures).verdict == "error"
    assert TOOLS["msprobe-26"].status(dtype, measures).verdict == ("pass" if dtype == "int8" else "error")


def test_only_msprobe_26_passes_a_cosine_of_nan() -> None:
    measures = replace(NEAR, cosine_distance=NAN, max_abs_error=0.0)
    assert [TOOLS[name].status("float32", measures).verdict for name in ("msprobe-1.0", "msprobe-26")] == [
        "error",
        "pass",
    ]


def test_paddleapex_fails_empty_tensors() -> None:
    assert TOOLS["paddleapex"].status("float32", Measures(0)).verdict == "error"
    assert TOOLS["paddleapex"].status("int64", Measures(4, binary_mismatch_ratio=0.25)).verdict == "error"


@pytest.mark.parametrize(
    ("distance", "largest", "verdict"),
    [(0.01 * LESS, 0.001 * LESS, "pass"), (0.01 / LESS, 0.0, "error"), (0.0, 0.001, "error"), (NAN, NAN, "error")],
)
def test_mindspore(distance: float, largest: float, verdict: str) -> None:
    assert (
        TOOLS["mindspore"].status("float32", Measures(4, cosine_distance=distance, max_abs_error=largest)).verdict
        == verdict
    )


@pytest.mark.parametrize(
    ("cosine", "largest", "older", "newer"),
    [
        (0.98, 0.001, "pass", "pass"),
        (0.98, 0.001 / LESS, "error", "error"),
        (0.99, 1.0, "pass", "pass"),
        (0.99, 1.0 / LESS, "pass", "error"),
        (0.89, 0.0, "pass", "error"),
        (NAN, 0.0, "warning", "warning"),
    ],
)
def test_ptdbg(cosine: float, largest: float, older: str, newer: str) -> None:
    limits = packaged_release("ptdbg").status.limits
    measures = Measures(4, cosine_distance=1 - cosine, max_abs_error=largest, nonfinite_mismatch=0)
    assert accuracy_reached(measures, {**limits, "worst_cosine": -INF, "worst_max_abs_error": INF}).verdict == older
    assert accuracy_reached(measures, limits).verdict == newer
    assert accuracy_reached(replace(measures, nonfinite_mismatch=1), limits).verdict == "error"
