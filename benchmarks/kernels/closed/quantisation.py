"""Quantisation: int8, per channel, fake, float8-like: closed entries."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import F16, Entry
from benchmarks.kernels.making import integers, normal
from benchmarks.kernels.parts.quantisation import (
    DEQUANTISE,
    DYNAMIC,
    FAKE,
    FLOAT8,
    INT8,
    Tensor,
    float8,
    quantise,
    ties_away,
)
from benchmarks.kernels.rounding import once, stepwise


def by_reciprocal(x: Tensor) -> tuple[Tensor, Tensor]:
    """127 / max, and multiplied."""
    largest = x.abs().amax(-1)
    return torch.round(x * (127 / largest)[:, None]).clamp(-127, 127) * (largest / 127)[:, None], largest / 127


ENTRIES: tuple[Entry, ...] = (
    INT8.healthy("ties to even"),
    INT8.fault("floor", "rounds down", quantise(torch.floor)),
    INT8.fault("ends at 127", "clamps at -127", quantise(torch.round, -127)),
    INT8.fault(
        "ties down",
        "rounds (x + 0.5) down after a float16 step",
        quantise(lambda x: torch.floor(stepwise(F16)(x + 0.5))),
    ),
    DYNAMIC.healthy("division"),
    DYNAMIC.healthy("by the reciprocal", once(by_reciprocal)),
    DEQUANTISE.fault("no zero point", "leaves the zero point out", lambda q, s, z: q.to(s.dtype) * s[:, None]),
    FAKE.fault(
        "ties away",
        "breaks ties away from zero",
        lambda x, s, z, low, high: (ties_away(x * (1 / s) + z).clamp(low, high) - z) * s,
        inputs=lambda dtype, g: [(integers(g, 240, 2000, low=-60).to(dtype) / 64), 0.03125, 10, 0, 127],
    ),
    FLOAT8.fault("e5m2", "has two bits", lambda x, s: (x.float() * s).to(torch.float8_e5m2).to(x.dtype) / s),
    FLOAT8.fault(
        "flushed",
        "subnormals are zero",
        lambda x, s: torch.where((x.float() * s).abs() < 2.0**-6, torch.zeros_like(x), float8(x, s)),
        inputs=lambda dtype, g: [normal(g, dtype, 2000, scale=1e-3), 64.0],
    ),
    FLOAT8.fault(
        "NaN beyond 448",
        "does not saturate",
        lambda x, s: torch.where((x.float() * s).abs() > 464, torch.nan, float8(x, s).float()).to(x.dtype),
        inputs=lambda dtype, g: [normal(g, dtype, 2000, scale=4.0), 64.0],
    ),
)
