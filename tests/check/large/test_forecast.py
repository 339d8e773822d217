from __future__ import annotations

import math
from pathlib import Path

import pytest

from pytest_probe.check.large.forecast import sampled_cases
from pytest_probe.model.dump import Dump
from pytest_probe.records import read_dump
from pytest_probe.selection import Selection
from tests.acceptance.conftest import backward, forward, tensor
from tests.support.writing import write_dump

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
