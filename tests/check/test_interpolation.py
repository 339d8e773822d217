"""Interpolation by factors that float32 cannot hold: healthy kernels pass in both directions, wrong ones do not."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.standards.noise.explanation import OWN_KERNEL
from tests.check.conftest import Make, Plant, failed, normal

NAME = "Functional.interpolate"
RANKS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3, "nearest": 1, "nearest-exact": 2, "area": 2}
TOPS = {1: 400, 2: 70, 3: 14}


def drawn(mode: str, seed: int, dtype: torch.dtype) -> tuple[torch.Tensor, dict[str, Any]]:
    """A tensor and how to interpolate it."""
    choose = random.Random(f"{mode} {seed}")
    rank = RANKS[mode]
    sizes = [choose.randint(2, TOPS[rank]) for _ in range(rank)]
    how: dict[str, Any] = {"mode": mode}
    if "linear" in mode or mode == "bicubic":
        how["align_corners"] = choose.random() < 0.3
    if rank == 2 and "bi" in mode and dtype is torch.float32:  # torch's CPU antialiases nothing narrower
        how["antialias"] = choose.random() < 0.4
    if choose.random() < 0.7:
        how["scale_factor"] = round(choose.uniform(0.5, 2.5), choose.choice([1, 2]))
    else:
        how["size"] = [max(1, int(size * choose.uniform(0.4, 2.5))) for size in sizes]
    return normal(2, choose.randint(1, 3), *sizes, seed=seed, dtype=dtype), how


@pytest.mark.evidence
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", RANKS)
def test_healthy_kernels_pass_in_both_directions(bench: Make, mode: str, dtype: torch.dtype) -> None:
    for seed in range(6):
        x, how = drawn(mode, seed, dtype)
        made = bench(NAME, F.interpolate, x, backward=True, **how)
        for direction in ("forward", "backward"):
            verdict = made.check(direction)
            # torch's own 16-bit kernels round inside, in steps that are not written down.
            own = dtype is torch.bfloat16 and OWN_KERNEL in verdict.reason
            assert verdict.verdict == ("warning" if own else "pass"), (how, x.shape, direction, verdict.reason)


def test_a_scale_off_by_one_percent_is_found(bench: Make, plant: Plant) -> None:
    made = bench(NAME, F.interpolate, normal(2, 3, 40, 40), backward=True, scale_factor=1.7, mode="bilinear")

    def wrong(right: Any, x: torch.Tensor, **how: Any) -> torch.Tensor:
        return torch.ops.aten.upsample_bilinear2d(x, [68, 68], False, 1.717, 1.717)

    plant(F, "interpolate", wrong)
    assert failed(made.check()) == {"output.0": "noise"}
    assert failed(made.check("backward")) == {"grad.input.0": "noise"}


@pytest.mark.parametrize("antialias", [False, True], ids=["sharp", "antialias"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_a_wrong_row_of_a_gradient_is_found(bench: Make, plant: Plant, mode: str, antialias: bool) -> None:
    x = normal(2, 3, 40, 40)
    made = bench(NAME, F.interpolate, x, backward=True, scale_factor=1.7, mode=mode, antialias=antialias)

    def lost(gradient: torch.Tensor) -> torch.Tensor:
        return torch.cat([gradient[..., :-1, :], gradient[..., -2:-1, :]], dim=-2)

    def wrong(right: Any, x: torch.Tensor, **how: Any) -> torch.Tensor:
        seen = x.view_as(x)
        seen.register_hook(lost)
        result: torch.Tensor = right(seen, **how)
        return result

    plant(F, "interpolate", wrong)
    assert made.check().verdict == "pass"
    assert failed(made.check("backward")) == {"grad.input.0": "noise"}
