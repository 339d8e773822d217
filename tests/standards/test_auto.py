from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pytest_probe.check.judging import judge_with_modes
from pytest_probe.model.comparison import Allowance, Assumption, Comparison, Evidence
from pytest_probe.model.device_modes import behaviour
from pytest_probe.standards.auto import Auto
from tests.support.asking import comparison, normal

ONES = np.ones(40)
NEARLY = ONES + 2.0**-22  # 2 ulp off in float32: noise, and not exact


def verdict(actual: Any, expected: Any = ONES, **more: Any) -> tuple[str, str]:
    found = Auto().judge(comparison(actual, expected, **{"dtype": "float32", **more}))
    return found.verdict, found.standard


BACKWARD = {"direction": "backward"}
PERTURBED = {"runs": {"perturbed_more": [np.array([3, 1])]}, "dtype": "int32", "name": "output.1"}
ATTENTION = {"api": "NPU.npu_fusion_attention", "dtype": "int64"}
ONE, TWO = np.array([1.0], np.float32), np.array([2.0], np.float32)
BEYOND = {"expected": [1.0 + 2.0**-52], "api": "Torch.nextafter", "args": (ONE, TWO)}
EDGES, OF_EDGES = np.linspace(-1.0, 1.0, 5), {"api": "Torch.histogram", "name": "output.1"}


@pytest.mark.parametrize(
    ("actual", "asked", "judged"),
    [
        (NEARLY, {"api": "Torch.matmul"}, ("pass", "noise")),
        (NEARLY, {"api": "Tensor.view"}, ("error", "exact")),
        (NEARLY, {"api": "Tensor.view", **BACKWARD}, ("error", "exact")),
        (NEARLY, {"api": "Functional.relu"}, ("error", "exact")),
        (NEARLY, {"api": "Tensor.masked_fill", **BACKWARD}, ("warning", "auto")),
        (NEARLY, {"api": "Torch.floor"}, ("error", "exact")),
        (NEARLY, {"api": "Torch.fmod"}, ("error", "discrete")),
        (NEARLY, {"api": "Torch.floor", **BACKWARD}, ("warning", "auto")),
        (NEARLY, {"api": "Torch.sort"}, ("error", "exact")),
        (NEARLY, {"api": "Torch.amax", **BACKWARD}, ("pass", "noise")),
        (NEARLY, {"api": "Torch.empty"}, ("pass", "uninitialised")),
        (NEARLY, {"api": "NPU.npu_rms_norm"}, ("pass", "noise")),
        # A choice inside a call may fall on a neighbour where rounding leads there.
        *(([found, 1], {"api": "NPU.npu_moe_gating_top_k_softmax", "expected": np.array([2, 1]), **PERTURBED}, judged)
          for found, judged in ((3, ("pass", "discrete")), (5, ("error", "discrete")))),
        # Where a generator stands is no number.
        (np.array(7), {**ATTENTION, "expected": np.array(0), "name": "output.4"}, ("pass", "uninitialised")),
        (np.array(7), {**ATTENTION, "expected": np.array(0), "name": "output.3"}, ("error", "exact")),
        (np.array([1]), {"api": "Torch.max", "expected": np.array([0]), "dtype": "int64", "name": "output.1",
                         "args": (np.array([[2.0, 2.0]], np.float32), 1)}, ("pass", "selection")),
        # The modulus of a complex number is no choice.
        (NEARLY, {"api": "Torch.abs", "args": (ONES,)}, ("error", "exact")),
        (NEARLY, {"api": "Torch.abs", "args": (ONES + 0j,)}, ("warning", "auto")),
        (ONES * 1.0001, {"api": "Tensor.absolute", "args": (ONES + 0j,)}, ("error", "noise")),
        (NEARLY, {"api": "Torch.div"}, ("pass", "noise")),
        (NEARLY, {"api": "Torch.div", "kwargs": {"rounding_mode": "floor"}}, ("error", "discrete")),
        (NEARLY, {"api": "Torch.round"}, ("error", "exact")),
        (NEARLY, {"api": "Torch.round", "kwargs": {"decimals": 2}}, ("error", "discrete")),
        (np.nextafter(ONE, TWO), BEYOND, ("pass", "own_dtype")),
        (ONE, BEYOND, ("error", "own_dtype")),
        # Bin edges are as near as their range allows.
        (EDGES + 1e-7, {**OF_EDGES, "expected": EDGES}, ("pass", "noise")),
        (EDGES + 1e-3, {**OF_EDGES, "expected": EDGES}, ("error", "noise")),
    ],
)  # fmt: skip
def test_the_class_of_the_api_its_arguments_and_the_direction_decide(
    actual: Any, asked: dict[str, Any], judged: tuple[str, str]
) -> None:
    assert verdict(actual, **asked) == judged


@pytest.mark.parametrize(
    ("api", "more"),
    [
        ("Tensor.index_put_", {"args": (ONES, (ONES,), ONES, True)}),
        ("Torch.index_put", {"args": (ONES, (ONES,), ONES), "kwargs": {"accumulate": True}}),
        ("Tensor.scatter_", {"args": (ONES, 0, ONES, ONES), "kwargs": {"reduce": "add"}}),
        ("Functional.embedding", {"args": (ONES, ONES, None, 1.0)}),
    ],
)
def test_what_adds_up_is_no_copy(api: str, more: dict[str, Any]) -> None:
    assert verdict(NEARLY, api=api, **more) == ("pass", "noise")
    plain = {key: value[:3] if key == "args" else {} for key, value in more.items()}
    assert verdict(NEARLY, api=api, **plain) == ("error", "exact")


@pytest.mark.parametrize(
    ("api", "more"),
    [
        ("Torch.histogram", {"kwargs": {"weight": ONES}}),
        ("Torch.histogram", {"args": (ONES, 4, None, ONES)}),
        ("Torch.histogram", {"kwargs": {"density": True}}),
        ("Torch.bincount", {"args": (ONES, ONES)}),
    ],
)
def test_sums_of_weights_are_no_counts(api: str, more: dict[str, Any]) -> None:
    assert verdict(NEARLY, api=api, **more) == ("pass", "noise")
    assert verdict(NEARLY, api=api) == ("error", "exact" if api == "Torch.bincount" else "discrete")


# Warnings of the APIs' own tables

UNSURE = {"perturbed": [np.full(40, 1.5), np.full(40, 0.5)]}  # noise is content with anything near 1


@pytest.mark.parametrize(
    ("api", "dtype", "error", "table"),
    [
        ("Torch.mul", "float32", 1.1e-6, "absolute_threshold"),
        ("Torch.mul", "bfloat16", 2.0**-7, "absolute_threshold"),
        ("Functional.linear", "float32", 70 * 2.0**-23, "ulp"),
        ("Functional.linear", "float16", 2 * 2.0**-10, "ulp"),
        ("Functional.gelu", "float32", 0.1, ""),
        ("Functional.conv2d", "float32", 0.1, ""),
        ("Functional.conv2d", "bfloat16", 0.1, ""),
        ("Torch.mul", "float64", 0.1, ""),
    ],
)
def test_a_table_may_warn_where_noise_is_content(api: str, dtype: str, error: float, table: str) -> None:
    asked = comparison(ONES + error, ONES, api=api, dtype=dtype, runs=UNSURE)
    found = Auto().judge(asked)
    assert (found.verdict, found.standard) == (("warning", "auto") if table else ("pass", "noise"))
    assert found.metrics.get("table", "") == table
    assert "noise_ratio" in found.metrics
    assert bool(found.worst) == bool(table)
    assert Auto().judge(replace(asked, actual=ONES.astype(asked.actual.dtype))).verdict == "pass"


def test_what_the_right_result_fails_as_well_tells_nothing() -> None:
    asked = comparison(ONES, ONES + 2.0**-30, api="Torch.gather", dtype="float32", direction="backward", runs=UNSURE)
    assert Auto().judge(asked).verdict == "pass"
    assert (
        Auto().judge(replace(asked, expected=ONES, actual=asked.actual + asked.actual.dtype.type(0.1))).verdict
        == "warning"
    )


def test_a_wider_tensor_that_carries_16_bit_is_as_right_as_they_are() -> None:
    third = np.full(40, 1 / 3)
    narrow = comparison(third, third, dtype="bfloat16").actual.astype(np.float32)
    runs = {"perturbed": [third * 1.5, third * 0.5]}
    asked = comparison(narrow, third, api="Functional.linear", runs=runs, precision=np.dtype("bfloat16"))
    assert Auto().judge(asked).verdict == "pass"
    assert Auto().judge(replace(asked, precision=np.dtype(np.float32))).verdict == "warning"


def test_tables_know_no_modes() -> None:
    asked = comparison(ONES + 1e-4, ONES, api="Torch.mul", dtype="float32", runs=UNSURE)
    assert Auto().judge(asked).verdict == "warning"
    assert Auto().judge(replace(asked, allowance=Allowance(emulated=True))).verdict == "pass"


def test_what_noise_does_not_pass_stays_as_it_is() -> None:
    asked = comparison(ONES + 1e-4, ONES, api="Torch.mul", dtype="float32")
    found = Auto().judge(asked)
    assert (found.verdict, found.standard) == ("error", "noise")


def test_only_a_mode_that_rounds_operands_explains_a_table() -> None:
    def never(*_: Any) -> None:
        pytest.fail("noise is content without a mode")

    asked = comparison(ONES + 1e-4, ONES, api="Functional.linear", dtype="float32", runs=UNSURE, alternative=never)
    others = [behaviour("ftz"), behaviour("fast-math")]
    assert judge_with_modes(Auto(), asked, lambda: others).metrics["table"] == "ulp"

    def rounded(asked: Comparison, assumption: Assumption) -> Comparison:
        off = normal(40, seed=1 + (assumption.sample or 0)) * (assumption.sample is not None)
        return replace(asked, expected=ONES + 1e-4 * off, evidence=Evidence())

    actual = ONES + 1e-4 * normal(40, seed=100)
    asked = comparison(actual, ONES, api="Functional.linear", dtype="float32", runs=UNSURE, alternative=rounded)
    assert Auto().judge(asked).metrics["table"] == "ulp"
    assert judge_with_modes(Auto(), asked, lambda: [behaviour("tf32")]).metrics["mode"] == "tf32"


@pytest.mark.parametrize(("terms", "verdict"), [(1024, "warning"), (65536, "pass")])
def test_long_sums_may_be_further_off(terms: int, verdict: str) -> None:
    near = ONES + 16 * 2.0**-23  # inside the table's 32 ULP; 8 times as far, outside
    runs = {**UNSURE, "perturbed_more": [near]}
    asked = comparison(ONES + 1e-4, ONES, api="Functional.linear", dtype="float32", runs=runs, terms=terms)
    assert Auto().judge(asked).verdict == verdict


def test_what_no_kernel_can_be_sure_of_tells_nothing() -> None:
    runs = {**UNSURE, "perturbed_more": [ONES + 1e-4]}
    asked = comparison(ONES + 1e-4, ONES, api="Torch.mul", dtype="float32", runs=runs)
    assert Auto().judge(asked).verdict == "pass"


@pytest.mark.parametrize(("step", "verdict"), [(2.0**-7, "pass"), (0.9 * 2.0**-8, "warning")])
def test_what_steps_of_16_bit_fail_as_well_tells_nothing(step: float, verdict: str) -> None:
    """The second step is rounded away before the table sees it."""
    asked = comparison(ONES + 2.0**-7, ONES, api="Torch.mul", dtype="bfloat16", runs={"narrow_steps": [ONES + step]})
    assert Auto().judge(asked).verdict == verdict
