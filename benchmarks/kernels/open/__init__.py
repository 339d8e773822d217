"""Entries that whoever works on the rule may read."""

from __future__ import annotations

from benchmarks.kernels.entry import Entry
from benchmarks.kernels.open import (
    activations,
    attention,
    convolution,
    counting,
    cross_entropy,
    gemm,
    losses,
    moe,
    more_attention,
    more_norms,
    norms,
    optimisers,
    quantisation,
    random,
    reductions,
    rope,
    scans,
    scatter,
    softmax,
)

MODULES = (
    activations,
    attention,
    convolution,
    counting,
    cross_entropy,
    gemm,
    losses,
    moe,
    more_attention,
    more_norms,
    norms,
    optimisers,
    quantisation,
    random,
    reductions,
    rope,
    scans,
    scatter,
    softmax,
)


def entries() -> list[Entry]:
    """All of them, family by family."""
    return [entry for module in MODULES for entry in module.ENTRIES]
