"""PyTorch: where kernels of a release are known to be wrong on the CPU.

benchmarks/fuzz_findings.py proves each of them, docs/findings.md describes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from msgspec import Struct

from pytest_probe.model.comparison import Comparison, KnownFinding
from pytest_probe.numerics.dtypes import AnyArray, widen

# From here on exp overflows in float32, and in the dtypes that compute in it.
EXP_OVERFLOWS = 88.72
# Below it the vectorised erf of bfloat16 is off.
SMALL_ERF = 2.0**-12


class Finding(Struct, frozen=True):
    """Wrong elements of an API's output: releases are those in which it was proved, as "2.13"; dtypes those of the
    output; elements says which ones, given the input in float64 and the output."""

    api: str
    releases: tuple[str, ...]
    dtypes: tuple[str, ...]
    words: str
    elements: Callable[[AnyArray, AnyArray], AnyArray]


def _early(x: AnyArray, found: AnyArray) -> AnyArray:
    return np.asarray((np.abs(x) >= EXP_OVERFLOWS) & np.isinf(found))


FINDINGS = (
    Finding(
        "gelu",
        ("2.13",),
        ("float32", "bfloat16"),
        "gelu of an infinity is NaN",
        lambda x, found: np.asarray(np.isinf(x) & np.isnan(found)),
    ),
    Finding(
        "erf",
        ("2.13",),
        ("bfloat16",),
        "erf of small bfloat16 numbers is off by up to twice the result",
        lambda x, found: np.asarray((np.abs(x) < SMALL_ERF) & (np.abs(found) < 4 * np.abs(x))),
    ),
    Finding("sinh", ("2.13",), ("float32",), "sinh overflows where exp does", _early),
    Finding("cosh", ("2.13",), ("float32",), "cosh overflows where exp does", _early),
)


def known(comparison: Comparison) -> Iterator[KnownFinding]:
    """The findings of this release that a forward output of the CPU shows, with the elements that each concerns."""
    release = ".".join(torch.__version__.split(".")[:2])
    if comparison.direction != "forward" or comparison.name != "output.0":
        return
    for finding in FINDINGS:
        if finding.api != comparison.call.name or release not in finding.releases:
            continue
        x = comparison.call.argument("input")
        if comparison.actual.dtype.name not in finding.dtypes or np.shape(x) != comparison.actual.shape:
            continue
        elements = finding.elements(widen(np.asarray(x)), widen(comparison.actual))
        if elements.any():
            yield KnownFinding(f"torch {release} on a CPU: {finding.words}", elements)
