"""Interpolation to the nearest element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.support.comparing import outcomes

X = torch.randn(2, 3, 8, 9, generator=torch.Generator().manual_seed(0))


def verdict(function: Callable[..., Any], how: Mapping[str, Any], x: torch.Tensor = X) -> str:
    return outcomes(function, F.interpolate, (x,), how, api="Functional.interpolate")[0]


def shifted(x: torch.Tensor, **how: Any) -> torch.Tensor:
    """Every element one column late."""
    made = F.interpolate(x, **how)
    return torch.cat([made[..., :1], made[..., :-1]], -1)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("scale", [2, 1.5, 0.5])
def test_a_column_late(scale: float, mode: str) -> None:
    how = {"scale_factor": scale, "mode": mode}
    assert verdict(F.interpolate, how) == "pass"
    assert verdict(shifted, how) == "error"


def test_a_factor_that_is_reckoned_anew() -> None:
    """0.6 of 9 are 5: places 1.8 apart, not 1.67."""
    how = {"scale_factor": 0.6, "mode": "nearest", "recompute_scale_factor": True}
    assert verdict(lambda x, **how: F.interpolate(x, **{**how, "recompute_scale_factor": None}), how) == "error"


def test_places_in_float32() -> None:
    """Of 2 elements the 41st of 82 is the second, and in float32 the first: 41 * fl(2 / 82) is below 1."""
    x, places = torch.tensor([[[1.0, 2.0]]]), torch.arange(82)
    narrow = (places * torch.tensor(2 / 82)).long()
    assert narrow.tolist() == [0] * 42 + [1] * 40
    assert verdict(lambda x, **how: x[..., narrow], {"size": 82}, x) == "pass"
    assert verdict(lambda x, **how: x[..., places * 2 // 82], {"size": 82}, x) == "pass"
    assert verdict(lambda x, **how: x[..., (places - 2).clamp(min=0) * 2 // 82], {"size": 82}, x) == "error"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_same_by_its_older_names() -> None:
    for right in (F.upsample_nearest, F.upsample):
        api, how = f"Functional.{right.__name__}", {"scale_factor": 2}

        def late(x: torch.Tensor, right: Callable[..., Any] = right, **how: Any) -> torch.Tensor:
            return right(x, **how).roll(1, -1)

        found = [outcomes(function, right, (X,), how, api=api)[0] for function in (right, late)]
        assert found == ["pass", "error"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("mode", "size"), [("bilinear", (13, 17)), ("bicubic", (13, 17)), ("area", (5, 4))])
def test_a_function_that_sets_another_mode_by_itself_is_no_nearest_one(
    mode: str, size: tuple[int, int], dtype: torch.dtype
) -> None:
    def resized(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=size, mode=mode)

    def fused(x: torch.Tensor) -> torch.Tensor:
        return resized(x.float() * 3).div(3).to(x.dtype)

    def late(x: torch.Tensor) -> torch.Tensor:
        return fused(x).roll(1, -1)

    args = [X.to(dtype)]
    assert [outcomes(each, resized, args, api="Functional.interpolate")[0] for each in (fused, late)] == [
        "pass",
        "error",
    ]
