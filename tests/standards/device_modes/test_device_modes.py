from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pytest_probe.model.device_modes import MODES
from pytest_probe.numerics.dtypes import AnyArray, widen
from pytest_probe.numerics.ulp import truncated
from pytest_probe.standards.device_modes import emulations
from pytest_probe.standards.noise.standard import NoiseStandard
from tests.support.asking import comparison, normal

VALUES = np.exp(normal(2000)) * np.sign(normal(2000, seed=1))


def judged(actual: AnyArray, dtype: str) -> list[str]:
    """The verdicts without a mode, and on each emulation of a device that cuts."""
    asked = comparison(actual, VALUES, dtype=dtype, runs={"float64": [VALUES * (1 + 2.0**-24)] * 4})
    cut = emulations(asked, MODES["truncate"])
    return [NoiseStandard().judge(item).verdict for item in (asked, *cut)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_results_that_are_cut_pass_where_that_is_allowed(dtype: str) -> None:
    cut = truncated(VALUES, np.dtype(comparison(VALUES, VALUES, dtype=dtype).actual.dtype))
    assert judged(cut, dtype) == ["error", "pass"]
    assert judged(VALUES, dtype) == ["pass", "pass"]
    assert judged(cut * np.where(np.arange(2000) == 7, 1.05, 1.0), dtype) == ["error", "error"]


def test_cutting_explains_16_bit_alone() -> None:
    assert judged(VALUES * 1.01, "float32") == ["error"]


def test_a_number_at_the_end_of_a_binade_is_cut_to_the_one_below() -> None:
    dtype = comparison([1.0], [1.0], dtype="bfloat16").actual.dtype
    assert truncated(np.array([1.9999, -1.9999, 2.0, 1.0039]), dtype).tolist() == [1.9921875, -1.9921875, 2.0, 1.0]
    asked = comparison([1.9921875], [1.9999], dtype="bfloat16")
    (cut,) = emulations(asked, MODES["truncate"])
    assert widen(cut.actual).tolist() == [2.0]
    assert list(emulations(replace(asked, precision=np.dtype(np.float32)), MODES["truncate"])) == []
