"""References for tests of your own kernels: what fused operators compute, as formulas of plain torch calls.

    from pytest_probe.references import rms_norm, swiglu

    def test_my_swiglu(probe):
        probe.check(my_swiglu, reference=swiglu, inputs=probe.tensor((64, 2048), "bfloat16"), backward=True)

Each is differentiable, and computes in float32 at least: in float64 for arguments of float64. An output has the dtype
of its first argument, unless its description says another one. What a formula does not cover raises `NoReference`;
shapes that contradict it raise `BrokenCall`.
"""

from __future__ import annotations

from pytest_probe.references.attention import attention, band_mask, rotary, scaled_masked_softmax
from pytest_probe.references.boxes import complete_iou, distance_iou, generalized_iou
from pytest_probe.references.layers import (
    add_rms_norm,
    fast_gelu,
    group_norm_silu,
    grouped_matmul,
    rms_norm,
    swiglu,
    top_k_gating,
)
from pytest_probe.references.optimizers import adam, adamw
from pytest_probe.references.scaled import scaled_matmul

__all__ = [
    "adam",
    "adamw",
    "add_rms_norm",
    "attention",
    "band_mask",
    "complete_iou",
    "distance_iou",
    "fast_gelu",
    "generalized_iou",
    "group_norm_silu",
    "grouped_matmul",
    "rms_norm",
    "rotary",
    "scaled_masked_softmax",
    "scaled_matmul",
    "swiglu",
    "top_k_gating",
]
