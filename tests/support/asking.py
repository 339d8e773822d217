"""Builds comparisons for judges, without a framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field

from pytest_probe.frameworks.torch.signatures import bind
from pytest_probe.model.comparison import Allowance, Assumption, ComparedCase, Comparison, Evidence, OwnResult, RunKind
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype, round_to
from pytest_probe.standards.noise.standard import NoiseStandard
from pytest_probe.standards.tables import classes_of

SINGLE, DOUBLE = 2.0**-24, 2.0**-53
ULP = 2.0**-23  # of float32 at 1
ONES = np.ones(100)


class Given(Evidence, Struct, frozen=True):
    """Evidence that a test gives: runs by kind, what the CPU's own kernel gives, other references, and what the
    framework's own function gives where the CPU is the device."""

    made: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    cpu: Callable[[], AnyArray | None] = lambda: None
    other: Callable[[Comparison, Assumption], Comparison | None] = lambda comparison, assumption: None

    own: AnyArray | None = None

    def runs(self, kind: RunKind, count: int) -> list[AnyArray]:
        return [np.asarray(run) for run in self.made.get(kind, ())][:count]

    def cpu_result(self) -> AnyArray | None:
        return self.cpu()

    def own_result(self) -> OwnResult | None:
        return None if self.own is None else OwnResult("torch", self.own)

    def alternative(self, comparison: Comparison, assumption: Assumption) -> Comparison | None:
        return self.other(comparison, assumption)


def comparison(
    actual: Any,
    expected: Any,
    *,
    api: str = "Torch.matmul",
    dtype: str = "",
    name: str = "output.0",
    runs: Mapping[str, Sequence[Any]] | None = None,
    cpu_result: Callable[[], AnyArray | None] = lambda: None,
    alternative: Callable[[Comparison, Assumption], Comparison | None] = lambda comparison, assumption: None,
    own_result: AnyArray | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    terms: int = 1,
    allowance: Allowance | None = None,
    precision: np.dtype[Any] | None = None,
    roundoff: float | None = None,
    **case: Any,
) -> Comparison:
    """One output of a forward, the CPU being the device; dtype rounds actual, runs are by kind, terms meet in each
    element where the API and its arguments say nothing else. case holds fields of ComparedCase."""
    found = np.asarray(actual) if not dtype else _cast(actual, dtype)
    wanted = np.asarray(expected)
    wide = wanted.astype(np.float64) if wanted.dtype.kind == "f" else wanted
    call = bind(api, args, kwargs or {})
    shared = {
        "call": call,
        "classes": classes_of(call.name),
        "direction": "forward",
        "narrow": found.dtype.itemsize < 4,
        "on_cpu": True,
        "reference": {"output.0": np.empty(terms)},
        **case,
    }
    double = found.dtype.name in ("float64", "complex128")
    return Comparison(
        name,
        ComparedCase(**shared),
        found,
        wide,
        found.dtype if precision is None else precision,
        (DOUBLE if double else SINGLE) if roundoff is None else roundoff,
        Given(runs or {}, cpu_result, alternative, own_result),
        allowance or Allowance(),
    )


def by_noise(actual: Any, expected: Any, **more: Any) -> OutputVerdict:
    """The noise standard's verdict, in float32 unless a dtype is given."""
    return NoiseStandard().judge(comparison(actual, expected, **{"dtype": "float32", **more}))


def off(by: float) -> AnyArray:
    """A hundred ones in float32, the first off by that many ulp."""
    return ONES + by * ULP * (np.arange(100) == 0)


def _cast(values: Any, dtype: str) -> AnyArray:
    target = numpy_dtype(dtype)
    return np.asarray(values, target) if target.kind in "iub" else round_to(np.asarray(values), target)


def normal(*shape: int, seed: int = 0) -> AnyArray:
    """Standard normal values in float64."""
    return np.random.default_rng(seed).standard_normal(shape)
