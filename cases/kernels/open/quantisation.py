"""Quantisation: int8, per channel, fake, float8-like: open entries."""

from __future__ import annotations

import torch

from cases.kernels.entry import BF16, F16, F32, Entry, Task
from cases.kernels.making import integers, normal
from cases.kernels.parts.quantisation import (
    DEQUANTISE,
    DYNAMIC,
    FAKE,
    FLOAT8,
    INT8,
    Tensor,
    dynamic,
    float8,
    quantise,
    ties_away,
)
from cases.kernels.rounding import cut, once, stepwise, up

ROUND = Task(
    "round",
    "quantisation",
    torch.round,
    torch.round,
    lambda dtype, g: [torch.cat([normal(g, dtype, 500, scale=10.0), (torch.arange(-40, 40) / 2).to(dtype)])],
    "Torch.round",
)


def by_reciprocal(x: Tensor) -> tuple[Tensor, Tensor]:
    """127 / max, and multiplied."""
    largest = x.abs().amax(-1)
    return torch.round(x * (127 / largest)[:, None]).clamp(-127, 127) * (largest / 127)[:, None], largest / 127


ENTRIES: tuple[Entry, ...] = (
    INT8.healthy("ties away from zero", quantise(ties_away)),
    INT8.fault("truncated", "cuts in place of rounding", quantise(torch.trunc)),
    INT8.fault(
        "wraps", "does not clamp", lambda x, s: ((torch.round(up(x) / s[:, None]) + 128) % 256 - 128).to(torch.int8)
    ),
    INT8.fault("one scale", "takes the first row's scale", lambda x, s: quantise(torch.round)(x, s[:1].expand(24))),
    INT8.fault(
        "scale of the column",
        "takes a column's scale",
        lambda x, s: torch.round(up(x) / s.repeat(6)[:128]).clamp(-128, 127).to(torch.int8),
    ),
    INT8.fault(
        "scale in 16 bit", "rounds the scale to bfloat16", lambda x, s: quantise(torch.round)(x, stepwise(BF16)(s))
    ),
    INT8.fault(
        "one added",
        "is one too high everywhere below 127",
        lambda x, s: (torch.round(up(x) / s[:, None]) + 1).clamp(-128, 127).to(torch.int8),
    ),
    DYNAMIC.fault(
        "by 128",
        "divides the maximum by 128",
        once(
            lambda x: (
                torch.round(x / (x.abs().amax(-1, True) / 128)).clamp(-127, 127) * x.abs().amax(-1, True) / 128,
                dynamic(x)[1],
            )
        ),
    ),
    DYNAMIC.fault(
        "maximum without sign",
        "takes the maximum, not that of the magnitudes",
        once(
            lambda x: (
                torch.round(x / x.amax(-1, True) * 127).clamp(-127, 127) * x.amax(-1, True) / 127,
                x.amax(-1) / 127,
            )
        ),
    ),
    DYNAMIC.fault(
        "tensor's scale",
        "takes one scale for the tensor",
        once(lambda x: (torch.round(x / x.abs().amax() * 127) * x.abs().amax() / 127, dynamic(x)[1])),
    ),
    DYNAMIC.fault(
        "7 bits",
        "has 63 steps",
        once(lambda x: (torch.round(x / dynamic(x)[1][:, None] / 2) * 2 * dynamic(x)[1][:, None], dynamic(x)[1])),
    ),
    DEQUANTISE.healthy("integer difference"),
    DEQUANTISE.fault(
        "difference wraps",
        "takes the zero point away in 8 bits",
        lambda q, s, z: (q - z[:, None].to(torch.uint8)).to(s.dtype) * s[:, None],
    ),
    DEQUANTISE.fault(
        "zero point after the scale",
        "takes the zero point away after scaling",
        lambda q, s, z: q.to(s.dtype) * s[:, None] - z[:, None].to(s.dtype),
    ),
    FAKE.healthy("there and back"),
    FAKE.fault(
        "zero point before rounding lost",
        "does not take the zero point away",
        lambda x, s, z, low, high: torch.round(x * (1 / s) + z).clamp(low, high) * s,
    ),
    ROUND.healthy("by the 1.5 * 2^23 trick", once(lambda x: (x + 12582912.0) - 12582912.0), dtypes=(F32,), loose=True),
    ROUND.fault("ties away", "breaks ties away from zero", ties_away),
    ROUND.fault("floor of x + 0.5", "breaks ties upwards", lambda x: torch.floor(x + 0.5)),
    FLOAT8.healthy("with saturation"),
    FLOAT8.fault(
        "truncated",
        "cuts in place of rounding",
        lambda x, s: cut((x.float() * s).clamp(-448, 448), 4).to(torch.float8_e4m3fn).to(x.dtype) / s,
    ),
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
