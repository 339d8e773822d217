"""Elements that leap as inputs move by a roundoff."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.noise import Spread
from pytest_probe.standards.leaps import leaps
from pytest_probe.standards.noise import NoiseStandard
from pytest_probe.standards.verdict import OutputVerdict
from tests.standards.asking import question

ONES = np.ones(100)
STEP = 2.0**-20
FIRST = (np.arange(100) == 0) * 1.0


def runs(leap: float) -> dict[str, list[AnyArray]]:
    """All elements move by a step, and by a 16th of it with inputs that move a 16th as far; the first leaps."""
    return {"float64": [ONES + STEP + leap * FIRST] * 4, "shrunk": [ONES + STEP / 16 + leap * FIRST] * 4}


def judge(actual: Any, leap: float) -> OutputVerdict:
    return NoiseStandard().judge(question(actual, ONES, dtype="float32", runs=runs(leap)))


@pytest.mark.parametrize(
    ("moved", "less", "leaping"),
    [
        (STEP, STEP / 16, False),
        (STEP, STEP / 256, False),
        (STEP, STEP / 4, False),
        (STEP, STEP / 3, True),
        (STEP, 0.0, True),
        (0.0, STEP, True),
        (0.0, 0.0, False),
    ],
)
def test_what_does_not_shrink_with_the_inputs_leaps(moved: float, less: float, leaping: bool) -> None:
    made = {"float64": [ONES + moved * FIRST] * 4, "shrunk": [ONES + less * FIRST] * 4}
    asked = question(ONES, ONES, dtype="float32", runs=made)
    found = leaps(asked, Spread(moved * FIRST, FIRST > 1))
    assert found is not None
    assert found.tolist() == [leaping] + [False] * 99


def test_other_runs_may_leap_where_these_do_not() -> None:
    asked = question(ONES, ONES, dtype="float32", runs=runs(0.0))
    place = np.arange(100) == 7
    for size, leaping in ((0.011, [7]), (0.009, [])):
        found = leaps(asked, Spread(np.where(place, size, STEP), FIRST > 1))
        assert found is not None
        assert np.flatnonzero(found).tolist() == leaping
    everywhere = leaps(asked, Spread(np.full(100, 0.011), FIRST > 1))
    assert everywhere is not None
    assert not everywhere.any()


def test_runs_that_cannot_be_made_do_not_tell() -> None:
    asked = question(ONES, ONES, dtype="float32", runs={"float64": [ONES]})
    assert leaps(asked, Spread(FIRST, FIRST > 1)) is None


def test_one_element_that_leaps_grants_the_others_nothing() -> None:
    assert judge(ONES * 1.01, leap=0.0).verdict == "error"
    found = judge(ONES * 1.01, leap=1.0)
    assert found.verdict == "error"
    assert found.reason == (
        "1 of 100 elements leap as inputs move by a roundoff; beside them noise ratio 1.049e+04 (limit 64), "
        "RMS noise ratio 1.043e+04 (limit 13.6), 99 above it"
    )


def test_no_more_that_err_than_leap_are_undecided() -> None:
    off = ONES + 0.5 * (np.arange(100) == 3)
    found = judge(off, leap=1.0)
    assert found.verdict == "warning"
    assert found.reason.startswith("undecided: 1 of 100 elements leap as inputs move by a roundoff; beside them noise")
    assert judge(ONES + 0.5 * FIRST, leap=1.0).verdict == "pass"


def test_another_device_may_round_between_16_bit_steps() -> None:
    off = ONES + 2.0**-7
    for dtype, on_cpu, verdict in (
        ("bfloat16", True, "error"),
        ("bfloat16", False, "warning"),
        ("float32", False, "error"),
    ):
        asked = question(off, ONES, dtype=dtype, runs=runs(1.0), on_cpu=on_cpu)
        assert NoiseStandard().judge(asked).verdict == verdict
