from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pytest_probe.errors import BrokenCall, NoReference
from pytest_probe.frameworks.torch.arrays import to_array, to_wide_tensor
from pytest_probe.frameworks.torch.framework import TorchFramework
from pytest_probe.frameworks.torch.scaled_products import formula
from pytest_probe.frameworks.torch.signatures import bind
from pytest_probe.model.run import Leaf, map_tree
from tests.support import scaled

pytestmark = pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4 before 2.8")


def leaf(value: Any, _: str = "") -> Any:
    return Leaf(to_array(value), False) if isinstance(value, torch.Tensor) else value


def wide(value: Any, _: str = "") -> Any:
    return to_wide_tensor(to_array(value), "float64") if isinstance(value, torch.Tensor) else value


def computed(api: str, *args: Any, **kwargs: Any) -> np.ndarray:
    found = formula(api, bind(api, map_tree(args, "", leaf), map_tree(kwargs, "", leaf)))
    result: np.ndarray = found(*map_tree(args, "", wide), **map_tree(kwargs, "", wide)).numpy()
    return result


@pytest.mark.parametrize("name", scaled.FORMATS)
def test_the_formula_is_the_exact_product(name: str) -> None:
    call = scaled.product(name, 1)
    found = computed(call.api, *call.args)
    scale = np.abs(call.exact).max()
    assert np.abs(found - call.exact).max() <= 1e-14 * scale


def narrow(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(torch.float8_e4m3fn)


def test_recipes_of_the_first_version_are_those_of_its_scales() -> None:
    a, b = narrow(160, 512), narrow(96, 512, seed=1).t()
    exact = a.double() @ b.double()
    one, rows, columns = torch.tensor(2.0), torch.full((160, 1), 2.0), torch.full((1, 96), 2.0)
    assert np.array_equal(computed("Torch._scaled_mm", a, b, one, one), 4 * exact)
    assert np.array_equal(computed("Torch._scaled_mm", a, b, rows, columns), 4 * exact)
    blocks, square, turned = torch.full((160, 4), 2.0), torch.full((4, 1), 2.0), torch.full((4, 96), 2.0)
    assert np.array_equal(computed("Torch._scaled_mm", a, b, blocks, square), 4 * exact)
    assert np.array_equal(computed("Torch._scaled_mm", a, b, blocks, turned), 4 * exact)
    powers = [
        torch.full((256 * 16,), 2.0).to(torch.float8_e8m0fnu),
        torch.full((128 * 16,), 2.0).to(torch.float8_e8m0fnu),
    ]
    assert np.array_equal(computed("Torch._scaled_mm", a, b, *powers), 4 * exact)


@pytest.mark.parametrize("rowwise", [False, True])
def test_the_formula_is_what_the_cpu_computes(rowwise: bool) -> None:
    a, b = narrow(32, 64), narrow(16, 64, seed=1).t()
    scales = (torch.rand(32, 1), torch.rand(1, 16)) if rowwise else (torch.rand(()), torch.rand(()))
    bias = torch.randn(16, dtype=torch.bfloat16)
    ours = torch._scaled_mm(a, b, *scales, bias=bias, out_dtype=torch.float32)
    assert computed("Torch._scaled_mm", a, b, *scales, bias=bias) == pytest.approx(ours.numpy(), rel=1e-5, abs=1e-5)


ENDS = torch.tensor([8, 8, 32], dtype=torch.int32)  # the second group is empty


@pytest.mark.parametrize("shapes", ["2d, 3d", "3d, 2d", "2d, 2d", "3d, 3d"])
def test_groups(shapes: str) -> None:
    first, second = shapes.split(", ")
    offs = None if shapes == "3d, 3d" else ENDS
    a = torch.randn(*((32, 64) if first == "2d" else (3, 32, 64)), dtype=torch.bfloat16)
    b = torch.randn(*((64, 32) if second == "2d" else (3, 64, 32)), dtype=torch.bfloat16)
    if shapes == "2d, 2d":
        a, b = torch.randn(24, 32, dtype=torch.bfloat16), torch.randn(32, 16, dtype=torch.bfloat16)
    ours = F.grouped_mm(a, b, offs=offs).double().numpy()
    found = computed("Functional.grouped_mm", a, b, offs=offs)
    assert found.shape == ours.shape
    assert found == pytest.approx(ours, rel=2**-7, abs=0.1)


def test_scales_of_groups_are_stored_one_group_after_another() -> None:
    """Rows 0:40 and 40:96 of MXFP8, each in tiles of its own."""
    rng = np.random.default_rng(0)
    parts = [scaled.operand(rng.standard_normal((rows, 128)), "float8_e4m3fn", (scaled.B32,)) for rows in (40, 56)]
    weights = [scaled.operand(rng.standard_normal((32, 128)), "float8_e4m3fn", (scaled.B32,)) for _ in parts]
    a = torch.cat([part.matrix.view(torch.uint8) for part in parts]).view(torch.float8_e4m3fn)
    b = torch.stack([weight.matrix.view(torch.uint8) for weight in weights]).view(torch.float8_e4m3fn).transpose(1, 2)
    stored = [torch.cat([each.scales[0].view(torch.uint8) for each in side]) for side in (parts, weights)]
    scales = [stored[0].reshape(-1, 4), stored[1].reshape(2, -1)]
    offs = torch.tensor([40, 96], dtype=torch.int32)
    found = computed("Torch._scaled_grouped_mm", a, b, *(each.view(torch.float8_e8m0fnu) for each in scales), offs)
    exact = np.concatenate([part.exact @ weight.exact.T for part, weight in zip(parts, weights, strict=True)])
    assert np.abs(found - exact).max() <= 1e-14 * np.abs(exact).max()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda args: [args[0].double(), *args[1:]], "an operand of float64, expected one of float8_e4m3fn"),
        (lambda args: [*args[:2], [args[2][0][:-4]], *args[3:]], "4,092 in all, expected 4,096 for a matrix of 160"),
        (lambda args: [*args[:3], [7], *args[4:]], "the recipe is 7, expected one of TensorWise"),
        (lambda args: [*args[:4], [3], *args[5:]], "the swizzle is 3, expected one of NO_SWIZZLE, SWIZZLE_32_4_4"),
        (lambda args: [*args[:3], [3, 0], *args[4:]], "1 scales for 2 recipes of a"),
        (lambda args: [*args[:2], [args[2][0].float()], *args[3:]], "scales of float32, expected float8_e8m0fnu"),
    ],
)
def test_what_is_wrong_with_a_call_is_said_in_a_sentence(change: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(BrokenCall, match=message):
        computed("Torch._scaled_mm_v2", *change(scaled.product("mxfp8", 0).args))


def test_what_devices_do_otherwise_has_no_reference() -> None:
    a, b, one = narrow(32, 64), narrow(16, 64).t(), torch.ones(())
    with pytest.raises(NoReference, match="scale_result"):
        computed("Torch._scaled_mm", a, b, one, one, scale_result=one)
    x, weight = torch.randn(32, 64), torch.randn(3, 64, 16)
    with pytest.raises(NoReference, match="offs end at 24 of 32: nothing writes the rest"):
        computed("Functional.grouped_mm", x, weight, offs=torch.tensor([8, 8, 24]))
    with pytest.raises(BrokenCall, match="ends of groups that rise"):
        computed("Functional.grouped_mm", x, weight, offs=torch.tensor([8, 4, 32]))


def test_other_apis_have_no_such_formula() -> None:
    assert TorchFramework().reference("Functional.linear", bind("Functional.linear", (), {})) is None
