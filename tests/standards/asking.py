"""Builds questions for judges, without a framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype, round_to
from pytest_probe.standards.facts import facts
from pytest_probe.standards.noise import NoiseStandard
from pytest_probe.standards.question import Question
from pytest_probe.standards.verdict import OutputVerdict

SINGLE, DOUBLE = 2.0**-24, 2.0**-53
ULP = 2.0**-23  # of float32 at 1
ONES = np.ones(100)


def question(
    actual: Any,
    expected: Any,
    *,
    api: str = "Torch.matmul",
    dtype: str = "",
    runs: Mapping[str, Sequence[Any]] | None = None,
    **more: Any,
) -> Question:
    """A question on output.0 of a forward, the CPU being the device; dtype rounds actual, runs are by kind."""
    found = np.asarray(actual) if not dtype else _cast(actual, dtype)
    wanted = np.asarray(expected)
    wide = wanted.astype(np.float64) if wanted.dtype.kind == "f" else wanted
    return Question(
        **{
            "name": "output.0",
            "api": api,
            "facts": facts(api),
            "direction": "forward",
            "actual": found,
            "expected": wide,
            "precision": found.dtype,
            "roundoff": DOUBLE if found.dtype.name in ("float64", "complex128") else SINGLE,
            "runs": lambda kind, count: [np.asarray(run) for run in (runs or {}).get(kind, ())][:count],
            "narrow": found.dtype.itemsize < 4,
            "on_cpu": True,
            "fan_in": 1,
            "fan_in_assumed": False,
            **more,
        }
    )


def by_noise(actual: Any, expected: Any, **more: Any) -> OutputVerdict:
    """The noise standard's verdict, in float32 unless a dtype is given."""
    return NoiseStandard().judge(question(actual, expected, **{"dtype": "float32", **more}))


def off(by: float) -> AnyArray:
    """A hundred ones in float32, the first off by that many ulp."""
    return ONES + by * ULP * (np.arange(100) == 0)


def _cast(values: Any, dtype: str) -> AnyArray:
    target = numpy_dtype(dtype)
    return np.asarray(values, target) if target.kind in "iub" else round_to(np.asarray(values), target)


def normal(*shape: int, seed: int = 0) -> AnyArray:
    """Standard normal values in float64."""
    return np.random.default_rng(seed).standard_normal(shape)
