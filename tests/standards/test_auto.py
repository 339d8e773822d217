from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.standards.auto import Auto
from tests.standards.asking import question

ONES = np.ones(40)
NEARLY = ONES + 2.0**-22  # 2 ulp off in float32: noise, and not exact


def verdict(actual: Any, expected: Any = ONES, **more: Any) -> tuple[str, str]:
    found = Auto().judge(question(actual, expected, **{"dtype": "float32", **more}))
    return found.verdict, found.standard


@pytest.mark.parametrize(
    ("api", "direction", "judged"),
    [
        ("Torch.matmul", "forward", ("pass", "noise")),
        ("Tensor.view", "forward", ("error", "exact")),
        ("Tensor.view", "backward", ("error", "exact")),
        ("Functional.relu", "forward", ("error", "exact")),
        ("Tensor.masked_fill", "backward", ("pass", "noise")),
        ("Torch.floor", "forward", ("error", "discrete")),
        ("Torch.floor", "backward", ("pass", "noise")),
        ("Torch.sort", "forward", ("error", "exact")),
        ("Torch.amax", "backward", ("pass", "noise")),
        ("Torch.empty", "forward", ("pass", "uninitialised")),
        ("NPU.npu_rms_norm", "forward", ("pass", "noise")),
    ],
)
def test_the_class_of_the_api_and_the_direction_decide(api: str, direction: str, judged: tuple[str, str]) -> None:
    assert verdict(NEARLY, api=api, direction=direction) == judged


def test_indices_of_max_are_a_selection() -> None:
    values = np.array([[2.0, 2.0]], np.float32)
    more: Any = {"api": "Torch.max", "dtype": "int64", "args": (values, 1)}
    assert verdict(np.array([1]), np.array([0]), name="output.1", **more) == ("pass", "selection")


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


def test_division_by_steps_is_discrete() -> None:
    assert verdict(NEARLY, api="Torch.div") == ("pass", "noise")
    assert verdict(NEARLY, api="Torch.div", kwargs={"rounding_mode": "floor"}) == ("error", "discrete")


def test_nextafter_is_judged_in_its_own_dtype() -> None:
    one, two = np.float32([1.0]), np.float32([2.0])
    right = np.nextafter(one, two)
    args = (np.asarray(one), np.asarray(two))
    assert verdict(right, [1.0 + 2.0**-52], api="Torch.nextafter", args=args) == ("pass", "own_dtype")
    assert verdict(one, [1.0 + 2.0**-52], api="Torch.nextafter", args=args) == ("error", "own_dtype")


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
    assert verdict(NEARLY, api=api) == ("error", "discrete")


def test_bin_edges_are_as_near_as_their_range_allows() -> None:
    edges = np.linspace(-1.0, 1.0, 5)
    more: Any = {"api": "Torch.histogram", "name": "output.1"}
    assert verdict(edges + 1e-7, edges, **more) == ("pass", "noise")
    assert verdict(edges + 1e-3, edges, **more) == ("error", "noise")
