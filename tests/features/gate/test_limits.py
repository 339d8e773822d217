"""How far a metric may move."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from pytest_probe.features.gate.baseline import spread_of
from pytest_probe.features.gate.gate import rows
from pytest_probe.model.baseline import KeptOutput, Spread

OUTPUT = KeptOutput("output.0", 1e-7, 2.0, 0.5, 2.0, 4, None, 1000, 500)


def with_(**changes: Any) -> KeptOutput:
    return msgspec.structs.replace(OUTPUT, **changes)


def worse(before: KeptOutput, now: KeptOutput, spread: Spread | None = None) -> bool:
    return any(row.worse for row in rows(before, now, spread))


@pytest.mark.parametrize(("carriers", "limit"), [(0, 6.5), (9, 6.5), (10, 3.4), (29, 3.4), (30, 1.8), (10**9, 1.8)])
def test_the_limit_of_rmse_falls_with_the_elements_that_make_it(carriers: int, limit: float) -> None:
    before, beyond = with_(carriers=carriers), with_(carriers=carriers, rmse=1.01e-7 * limit)
    assert not worse(before, with_(carriers=carriers, rmse=0.99e-7 * limit))
    assert worse(before, beyond)
    assert not worse(beyond, before)  # the other way round it is better


def test_few_carriers_and_all_elements_together_decide_as_many() -> None:
    before = with_(carriers=2)
    assert not worse(before, with_(carriers=2, rmse=2e-7))
    assert not worse(before, with_(carriers=2, mean_ulp=1.0))
    assert worse(before, with_(carriers=2, rmse=2e-7, mean_ulp=1.0))


def test_an_error_within_the_noise_scale_is_luck_where_elements_are_few() -> None:
    few = with_(elements=4, carriers=4, rmse=1e-10, mean_ulp=0.001)
    assert not worse(few, with_(elements=4, carriers=4, noise_ratio=0.9))
    assert worse(few, with_(elements=4, carriers=4, noise_ratio=1.1))
    assert worse(with_(rmse=1e-10), with_(noise_ratio=0.9))
    assert not worse(with_(rmse=0.0), with_(noise_ratio=0.9))
    assert worse(with_(rmse=0.0), with_(noise_ratio=1.1))


@pytest.mark.parametrize(
    ("before", "now", "k", "expected"),
    [(2.0, 119.0, 4, False), (2.0, 121.0, 4, True), (2.0, 1e6, 1, False), (0.0, 59.0, 4, False), (0.0, 61.0, 4, True)],
)
def test_noise_ratios_of_the_same_k_are_compared(before: float, now: float, k: int, expected: bool) -> None:
    assert worse(with_(noise_ratio=before), with_(noise_ratio=now, k=k)) is expected


def test_ulp_alone_never_decides() -> None:
    assert not worse(OUTPUT, with_(max_ulp=1e9, mean_ulp=1e6))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [(0.0, 0.0, False), ("inf", "inf", False), (1e-7, "inf", True), ("inf", 1e-7, False), (None, 1.0, False)],
)
def test_zero_inf_and_nothing(before: Any, now: Any, expected: bool) -> None:
    assert worse(with_(rmse=before), with_(rmse=now)) is expected


def test_a_measured_spread_takes_the_place_of_the_calibrated_one() -> None:
    stable, wild = Spread(1.05, 1.05), Spread(5.0, 9.0)
    assert worse(OUTPUT, with_(rmse=1.5e-7), stable)
    assert not worse(OUTPUT, with_(rmse=1.3e-7), stable)
    assert not worse(OUTPUT, with_(rmse=6e-7), wild)
    assert worse(OUTPUT, with_(rmse=7e-7), wild)


@pytest.mark.parametrize(
    ("own", "others", "factor"),
    [
        (1e-7, [2e-7, 1.5e-7], 2.0),
        (1e-7, [0.5e-7], 1.0),
        (0.0, [0.0], 1.0),
        (0.0, [1e-9], 1000.0),
        (3e-7, [4e-7], 1.34),
        (1e-7, ["inf"], 1000.0),
    ],
)
def test_what_repeats_measure(own: Any, others: list[Any], factor: float) -> None:
    found = spread_of(with_(rmse=own), [with_(rmse=other, crc="00000001") for other in others])
    assert found == Spread(factor, 1.0)


def test_repeats_on_the_same_inputs_measure_nothing() -> None:
    assert spread_of(OUTPUT, [OUTPUT, OUTPUT]) is None
    assert spread_of(with_(rmse=None), [with_(rmse=None, crc="00000001")]) is None
    assert spread_of(OUTPUT, []) is None


def test_a_row_tells_its_factor() -> None:
    row = rows(OUTPUT, with_(rmse=2e-7), None)[0]
    assert (row.metric, row.limit) == ("relative RMSE", 1.8)
    assert row.factor == pytest.approx(2.0)
    assert math.isinf(rows(with_(rmse=0.0), OUTPUT, None)[0].factor)


def test_equal_bits_have_no_rows() -> None:
    assert rows(with_(crc="00000001"), with_(crc="00000001"), None) == ()
    assert rows(with_(crc="00000001"), with_(crc="00000002"), None)
