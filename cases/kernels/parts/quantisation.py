"""Quantisation: int8, per channel, fake, float8-like: tasks and healthy kernels."""

from __future__ import annotations

from typing import Any

import torch

from cases.kernels.entry import F32, Task
from cases.kernels.making import integers, normal, state, uniform
from cases.kernels.rounding import once, up

Tensor = torch.Tensor


def quantised(x: Tensor, scale: Tensor) -> Tensor:
    """int8 of each row by its own scale."""
    return torch.round(x / scale[:, None]).clamp(-128, 127).to(torch.int8)


def quantise(rounding: Any, low: int = -128, high: int = 127) -> Any:
    """Another rounding, or other ends."""
    return lambda x, scale: rounding(up(x) / up(scale)[:, None]).clamp(low, high).to(torch.int8)


def ties_away(x: Tensor) -> Tensor:
    return torch.sign(x) * torch.floor(x.abs() + 0.5)


def int8_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [normal(g, dtype, 24, 128, scale=2.0), uniform(g, state(dtype), 24, low=0.01, high=0.05)]


INT8 = Task("int8 by row", "quantisation", quantise(torch.round), quantised, int8_inputs)


def dynamic(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1) / 127
    return torch.round(x / scale[:, None]).clamp(-127, 127) * scale[:, None], scale


DYNAMIC = Task(
    "dynamic int8 there and back", "quantisation", once(dynamic), dynamic, lambda dtype, g: [normal(g, dtype, 24, 128)]
)


def dequantise(q: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    return (q.to(scale.dtype) - zero[:, None]) * scale[:, None]


DEQUANTISE = Task(
    "dequantisation",
    "quantisation",
    lambda q, s, z: ((q.to(torch.int32) - z[:, None]).to(up(s).dtype) * up(s)[:, None]).to(s.dtype),
    dequantise,
    lambda dtype, g: [
        integers(g, 256, 24, 128).to(torch.uint8),
        uniform(g, dtype, 24, low=0.01, high=0.05),
        integers(g, 200, 24, low=50),
    ],
)

FAKE = Task(
    "fake quantisation",
    "quantisation",
    lambda x, s, z, low, high: (torch.round(x * (1 / s) + z).clamp(low, high) - z) * s,
    torch.fake_quantize_per_tensor_affine,
    lambda dtype, g: [normal(g, dtype, 2000), 0.03125, 10, 0, 127],
    "Torch.fake_quantize_per_tensor_affine",
    dtypes=(F32,),
)


def float8(x: Tensor, scale: float) -> Tensor:
    """There and back through float8_e4m3."""
    return (x.float() * scale).clamp(-448, 448).to(torch.float8_e4m3fn).to(x.dtype) / scale


FLOAT8 = Task("float8 there and back", "quantisation", float8, float8, lambda dtype, g: [normal(g, dtype, 2000), 64.0])
