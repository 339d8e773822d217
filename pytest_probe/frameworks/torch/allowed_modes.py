"""The device modes that torch's own flags allow: what `--probe-allow=auto` asks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pytest_probe.frameworks.torch import state

# model.device_modes splits a mode's name there.
_IN_MATMUL, _IN_CONVOLUTION = " in matmul", " in convolution"


def allowed(device: str) -> Iterator[str]:
    """The modes that torch's flags allow on this kind of device ("cuda"), each as far as the flag reaches."""
    if device == "cpu":
        yield from _of_scopes(*(_fewer_bits(f"mkldnn.{operator}.fp32_precision") for operator in ("matmul", "conv")))
        if state.flushes():
            yield "ftz"
    elif device == "cuda":
        flags = ("cuda.matmul.allow_tf32", "cudnn.allow_tf32")
        yield from _of_scopes(*("tf32" if state.flag_of(torch.backends, flag) else None for flag in flags))
        names = ("fp16_reduced_precision_reduction", "bf16_reduced_precision_reduction", "fp16_accumulation")
        if any(state.flag_of(torch.backends, f"cuda.matmul.allow_{name}") for name in names):
            yield "reduced-reduction"
    elif device == "npu":
        found = (state.flag_of(_npu(), f"{name}.allow_hf32") for name in ("matmul", "conv"))
        yield from _of_scopes(*("hf32" if flag else None for flag in found))


@contextmanager
def all_bits() -> Iterator[None]:
    """See base.Kernels.all_bits."""
    owners = ((torch.backends.cuda, "matmul"), (torch.backends, "cudnn"), (_npu(), "matmul"), (_npu(), "conv"))
    found = [getattr(owner, name, None) for owner, name in owners]
    flags = [(owner, flag) for owner in found for flag in ("allow_tf32", "allow_hf32") if state.flag_of(owner, flag)]
    for owner, flag in flags:
        setattr(owner, flag, False)
    try:
        yield
    finally:
        for owner, flag in flags:
            setattr(owner, flag, True)


def _npu() -> Any:
    return getattr(sys.modules.get("torch_npu"), "npu", None)


def _fewer_bits(path: str) -> str | None:
    """The mode that a flag of the CPU's products names, None where it asks for all bits of float32."""
    precision: str | None = state.flag_of(torch.backends, path)
    return precision if precision in ("tf32", "bf16") else None


def _of_scopes(matmul: str | None, convolution: str | None) -> Iterator[str]:
    """The modes of two flags; one mode without a scope where both name it."""
    if matmul == convolution:
        yield from () if matmul is None else (matmul,)
        return
    if matmul is not None:
        yield matmul + _IN_MATMUL
    if convolution is not None:
        yield convolution + _IN_CONVOLUTION
