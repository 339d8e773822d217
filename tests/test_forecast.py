from __future__ import annotations

import math
from pathlib import Path

import pytest

from pytest_probe import forecast as module
from pytest_probe.forecast import Forecast, forecast
from pytest_probe.records import read_dump
from pytest_probe.records.model import Dump
from pytest_probe.selection import Selection
from tests.plugin.conftest import backward, forward, tensor
from tests.writing import write_dump

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


def test_runs_and_elements(dump: Dump, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_rate", lambda: 1e6)
    elements = 128 * 64 + 256 * 64 + 128 * 256
    seconds = 5 * 4 * 1e6 / 1e6 + 2 * elements * module.SECONDS_AN_ELEMENT
    assert forecast([dump], Selection(), 1e6) == Forecast(2, pytest.approx(seconds))
    twice = forecast([dump], Selection(dtypes=(None, "bfloat16")), 1e6)
    assert twice == Forecast(4, pytest.approx(2 * seconds))


def test_only_what_is_above_the_budget(dump: Dump) -> None:
    assert forecast([dump], Selection(), FLOPS).cases == 0
    assert forecast([dump], Selection(), FLOPS - 1).cases == 2
    assert forecast([dump], Selection(directions=("backward",)), 1.0).cases == 1
    assert forecast([dump], Selection(), math.inf) == Forecast(0, 0.0)


def test_the_rate_is_that_of_a_product() -> None:
    assert 1e8 < module._rate(64) < 1e13
