"""Drawn scaled products have what kernels get wrong, and healthy kernels pass them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pytest_probe.features.fuzz.scaled import changed
from tests.support import scaled

pytestmark = pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4 before 2.8")
CONFTEST = """
from tests.support import scaled
from tests.support.devices import Emulated

def pytest_probe_register(registry):
    registry.devices["other"] = Emulated
    registry.calls["Torch._scaled_mm_v2"] = scaled.kernel({fault!r})
"""


def draws(kind: str, values: np.ndarray, dtype: str) -> list[np.ndarray]:
    return [changed(kind, values, dtype, np.random.default_rng(seed)) for seed in range(40)]


def test_scales_have_no_sign_and_edges() -> None:
    found = draws("scales", np.array([-2.0, np.inf, 0.5, np.nan]), "float8_e8m0fnu")
    assert all((each[:2] >= 0).all() or np.isnan(each).any() for each in found)
    assert not any(np.isinf(each).any() for each in found)
    assert any((each == 2.0**-127).any() for each in found)
    assert any(np.isnan(each[:3]).any() for each in found)


def test_numbers_have_blocks_of_zeros_and_with_one_huge_number() -> None:
    found = draws("numbers", np.ones((4, 64)), "float8_e4m3fn")
    assert any((each == 0).sum() >= 8 for each in found)
    assert any((each == 448).sum() == 1 for each in found)


def test_groups_may_be_empty_and_end_where_they_ended() -> None:
    found = draws("ends", np.array([4, 8, 12]), "int32")
    assert {tuple(each) for each in found} == {(4, 8, 12), (0, 8, 12), (4, 4, 12)}


@pytest.mark.parametrize("name", ["mxfp8", "1x128"])
def test_healthy_kernels_pass(pytester: pytest.Pytester, name: str) -> None:
    assert outcomes(pytester, name, "", 3) == {"passed": 1}


def test_a_fault_at_a_byte_that_no_record_has_is_found(pytester: pytest.Pytester) -> None:
    assert outcomes(pytester, "mxfp8", "byte 0 and 255 wrong", 1) == {"failed": 1}


def outcomes(pytester: pytest.Pytester, name: str, fault: str, seed: int) -> dict[str, int]:
    pytester.makeconftest(CONFTEST.format(fault=fault))
    call = scaled.product(name, 0, (32, 256, 48))
    scaled.write(pytester.path / "dumps", call, torch.from_numpy(call.exact).to(call.dtype))
    options = ["--probe-dump=dumps", "--probe-device=other", "--probe-fuzz=60", f"--hypothesis-seed={seed}"]
    return pytester.runpytest_subprocess(*options).parseoutcomes()
