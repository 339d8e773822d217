from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_probe.check.cost import BACKWARD, CASE, ELEMENT, FLOP, SUMMED, TENSOR, Costs, dealt, sampled_cases
from pytest_probe.model.case import Case
from pytest_probe.model.dump import Direction, Dump
from pytest_probe.records import read_dump
from pytest_probe.selection import Selection
from tests.acceptance.conftest import backward, forward, tensor
from tests.support.writing import write_dump

X, WEIGHT, Y = tensor(128, 64), tensor(256, 64), tensor(128, 256)
LINEAR = CASE + SUMMED * (3 * TENSOR + (128 * 64 + 256 * 64 + 128 * 256) * ELEMENT) + 2 * 128 * 64 * 256 * FLOP


def costs(tmp_path: Path, data: dict[str, Any], direction: Direction = "forward") -> list[float]:
    dump, found = read_dump(write_dump(tmp_path, data)), Costs()
    return [found.of(Case(dump, record, direction)) for record in dump.records]


def test_elements_and_operations_count(tmp_path: Path) -> None:
    data = {
        "Functional.relu.0.forward": forward(X, output=X),
        "Functional.linear.0.forward": forward(X, WEIGHT, output=Y),
        "Functional.linear.0.backward": backward(Y, X, WEIGHT),
    }
    assert costs(tmp_path, data) == pytest.approx([CASE + 2 * TENSOR + 2 * 128 * 64 * ELEMENT, LINEAR])
    assert costs(tmp_path, data, "backward")[1] == pytest.approx(BACKWARD * LINEAR)


def test_an_attention_costs_its_two_products(tmp_path: Path) -> None:
    query, key = tensor(2, 4, 100, 8), tensor(2, 4, 50, 8)
    call = {"Functional.scaled_dot_product_attention.0.forward": forward(query, key, key, output=query)}
    elements = 2 * 2 * 4 * 100 * 8 + 2 * 2 * 4 * 50 * 8
    moved = SUMMED * (4 * TENSOR + elements * ELEMENT)
    assert costs(tmp_path, call) == pytest.approx([CASE + moved + 4 * (2 * 4 * 100 * 8) * 50 * FLOP])


def test_what_cannot_be_decoded_costs_what_any_case_does(tmp_path: Path) -> None:
    assert costs(tmp_path, {"Functional.relu.0.forward": {"input_args": 3}}) == [CASE]


FLOPS = 2 * 128 * 64 * 256


@pytest.fixture
def dump(tmp_path: Path) -> Dump:
    x, weight, y = tensor(128, 64), tensor(256, 64), tensor(128, 256)
    data = {
        "Functional.linear.0.forward": forward(x, weight, output=y),
        "Functional.linear.0.backward": backward(y, x, weight),
        "Functional.linear.1.forward": {"input_args": 3},
        "Functional.relu.0.forward": forward(x, output=x),
    }
    return read_dump(write_dump(tmp_path, data))


def test_each_direction_of_what_is_above_the_budget(dump: Dump) -> None:
    assert sampled_cases([dump], Selection().admits, FLOPS) == 0
    assert sampled_cases([dump], Selection().admits, FLOPS - 1) == 2
    assert sampled_cases([dump], Selection(directions=("backward",)).admits, 1.0) == 1
    assert sampled_cases([dump], Selection().admits, math.inf) == 0


@given(st.lists(st.floats(0.5, 100.0), min_size=1, max_size=50), st.integers(1, 8))
def test_no_part_is_costlier_than_the_mean_by_more_than_one_thing(costs: list[float], parts: int) -> None:
    found = dealt(costs, parts)
    totals = [sum(cost for cost, place in zip(costs, found, strict=True) if place == part) for part in range(parts)]
    assert max(totals) <= sum(costs) / parts + max(costs) + 1e-6
    assert set(found) <= set(range(parts))
