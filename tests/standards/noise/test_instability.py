"""Elements that jump as inputs move by a roundoff."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.noise_ratio import Spread
from pytest_probe.standards.noise.instability import unstable
from pytest_probe.standards.noise.standard import NoiseStandard
from tests.support import asking

comparison = partial(asking.comparison, api="Functional.softmax")
ONES = np.ones(100)
STEP = 2.0**-20
FIRST = (np.arange(100) == 0) * 1.0


def runs(jump: float) -> dict[str, list[AnyArray]]:
    """All elements move by a step, and by a 16th of it with inputs that move a 16th as far; the first jumps."""
    return {"float64": [ONES + STEP + jump * FIRST] * 4, "shrunk": [ONES + STEP / 16 + jump * FIRST] * 4}


def judge(actual: Any, jump: float) -> OutputVerdict:
    return NoiseStandard().judge(comparison(actual, ONES, dtype="float32", runs=runs(jump)))


@pytest.mark.parametrize(
    ("moved", "less", "jumping"),
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
def test_what_does_not_shrink_with_the_inputs_is_unstable(moved: float, less: float, jumping: bool) -> None:
    made = {"float64": [ONES + moved * FIRST] * 4, "shrunk": [ONES + less * FIRST] * 4}
    asked = comparison(ONES, ONES, dtype="float32", runs=made)
    found = unstable(asked, Spread.of(moved * FIRST))
    assert found is not None
    assert found.tolist() == [jumping] + [False] * 99


def test_other_runs_may_jump_where_these_do_not() -> None:
    asked = comparison(ONES, ONES, dtype="float32", runs=runs(0.0))
    place = np.arange(100) == 7
    for size, jumping in ((0.011, [7]), (0.009, [])):
        found = unstable(asked, Spread.of(np.where(place, size, STEP)))
        assert found is not None
        assert np.flatnonzero(found).tolist() == jumping
    everywhere = unstable(asked, Spread.of(np.full(100, 0.011)))
    assert everywhere is not None
    assert not everywhere.any()


def test_runs_that_cannot_be_made_do_not_tell() -> None:
    asked = comparison(ONES, ONES, dtype="float32", runs={"float64": [ONES]})
    assert unstable(asked, Spread.of(FIRST)) is None


def test_sums_of_products_choose_nothing() -> None:
    """Their elements move in proportion to each factor, so no run is made to see whether they jump."""
    made = runs(1.0)
    told = {
        api: asking.comparison(ONES, ONES, api=api, dtype="float32", runs=made)
        for api in ("Torch.matmul", "Torch.sort")
    }
    assert unstable(told["Torch.matmul"], Spread.of(FIRST)) is None
    assert unstable(told["Torch.sort"], Spread.of(FIRST)) is not None


def test_one_element_that_jumps_grants_the_others_nothing() -> None:
    assert judge(ONES * 1.01, jump=0.0).verdict == "error"
    found = judge(ONES * 1.01, jump=1.0)
    assert found.verdict == "error"
    assert found.reason == (
        "1 of 100 elements are unstable: they change abruptly when inputs change by a roundoff; of all elements 99 are "
        "above the limit: noise ratio 1.049e+04 (limit 64), RMS noise ratio 1.043e+04 (limit 13.6)"
    )


def test_no_more_that_err_than_jump_are_undecided() -> None:
    off = ONES + 0.5 * (np.arange(100) == 3)
    found = judge(off, jump=1.0)
    assert found.verdict == "warning"
    assert found.reason.startswith("undecided: 1 of 100 elements are unstable: they change abruptly when ")
    assert "; noise ratio " in found.reason
    assert judge(ONES + 0.5 * FIRST, jump=1.0).verdict == "pass"


def test_another_device_may_round_between_16_bit_steps() -> None:
    off = ONES + 2.0**-7
    for dtype, on_cpu, verdict in (
        ("bfloat16", True, "error"),
        ("bfloat16", False, "error"),
        ("float32", False, "error"),
    ):
        asked = comparison(off, ONES, dtype=dtype, runs=runs(1.0), on_cpu=on_cpu)
        assert NoiseStandard().judge(asked).verdict == verdict
