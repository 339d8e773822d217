"""Drawn scaled products have what kernels get wrong, and healthy kernels pass them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.features.fuzz.drawn import DrawnCall, DrawnTensor, fitted
from pytest_probe.features.fuzz.scaled import changed
from pytest_probe.model.dump import TensorSpec
from pytest_probe.model.run import map_tree
from pytest_probe.model.scaled_product import operands
from tests.support import scaled

pytestmark = pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4 before 2.8")
CONFTEST = """
from tests.evidence.test_scaled_cases import tail_dropped
from tests.support import scaled
from tests.support.devices import Emulated

def pytest_probe_register(registry):
    registry.devices["other"] = Emulated
    registry.calls["Torch._scaled_mm_v2"] = scaled.kernel({fault})
"""


def signatures() -> Any:
    return frameworks.signatures()


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
    # One in each block of 32.
    assert any(((each.reshape(-1, 32) == 448).sum(1) == 1).all() for each in found)


def test_groups_may_be_empty_and_end_where_they_ended() -> None:
    found = draws("ends", np.array([4, 8, 12]), "int32")
    assert {tuple(each) for each in found} == {(4, 8, 12), (0, 8, 12), (4, 4, 12)}


def drawn(name: str, rows: int, inner: int, columns: int) -> DrawnCall:
    """A call around a record of (160, 512, 96) numbers, whose matrices were drawn so large, and its scales as they
    were."""
    product = scaled.product(name, 0)
    places = {0: (rows, inner), 1: (inner, columns)}

    def around(value: Any, path: str) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        dtype, shape = str(value.dtype).removeprefix("torch."), tuple(value.shape)
        own = places.get(int(path.rpartition(".")[2]), shape) if path.count(".") == 1 else shape
        return DrawnTensor(own, dtype, recorded=TensorSpec(dtype, shape))

    args = map_tree(tuple(product.args[:8]), "input", around)
    return DrawnCall(product.api, tuple(args), {}, 3, signatures())


@pytest.mark.parametrize("name", scaled.FORMATS)
def test_scales_go_with_the_sizes_that_are_drawn(name: str) -> None:
    """One row, and K that no block of 32 or 128 divides, up to what kernels take: 16 bytes."""
    per_byte = 2 if "fp4" in name else 1
    call = fitted(drawn(name, 1, 257, 33))
    assert (call.args[0].shape, call.args[1].shape) == ((1, 272), (272, 48))
    found = call.arguments(call.call())
    a, b = operands(signatures().bind(call.api, found.args, found.kwargs))
    assert (a.shape, b.shape) == ((1, 272 * per_byte), (48, 272 * per_byte))


def test_blocks_of_zeros_may_have_the_largest_scale() -> None:
    call = fitted(drawn("mxfp8", 160, 512, 96))
    edges = 0
    for seed in range(40):
        found = replace(call, seed=seed).arguments(call.call())
        a, _ = operands(signatures().bind(call.api, found.args, found.kwargs))
        largest = np.argwhere(a.grid() == 2.0**127)
        edges += len(largest)
        assert all((a.numbers()[row, 32 * block : 32 * block + 32] == 0).all() for row, block in largest)
    assert edges > 3


@pytest.mark.usefixtures("forked")
def test_healthy_kernels_pass(pytester: pytest.Pytester) -> None:
    assert outcomes(pytester, "", 3, "mxfp8", "1x128", "nvfp4") == {"passed": 3}


@pytest.mark.usefixtures("forked")
def test_a_fault_at_a_byte_that_no_record_has_is_found(pytester: pytest.Pytester) -> None:
    assert outcomes(pytester, "'byte 0 and 255 wrong'", 1, "mxfp8") == {"failed": 1}


@pytest.mark.usefixtures("forked")
def test_a_fault_at_a_K_that_no_record_has_is_found(pytester: pytest.Pytester) -> None:
    """What tiles of 32 leave over of K is dropped, of 256 nothing."""
    assert outcomes(pytester, "multiply=tail_dropped", 1, "1x128") == {"failed": 1}


def outcomes(pytester: pytest.Pytester, fault: str, seed: int, *names: str) -> dict[str, int]:
    pytester.makeconftest(CONFTEST.format(fault=fault))
    for name in names:
        call = scaled.product(name, 0, (32, 256, 48))
        scaled.write(pytester.path / "dumps" / name, call, torch.from_numpy(call.exact).to(call.dtype))
    options = ["--probe-dump=dumps", "--probe-device=other", "--probe-fuzz=60", f"--hypothesis-seed={seed}"]
    return pytester.runpytest_subprocess(*options).parseoutcomes()
