"""PyTorch: which device modes its flags allow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from pytest_probe.frameworks.torch.state import flushes

# model.device_modes splits a mode's name there.
IN_MATMUL, IN_CONVOLUTION = " in matmul", " in convolution"


def allowed(device: str) -> Iterator[str]:
    """The modes that torch's flags allow on this kind of device ("cuda"), each as far as the flag reaches."""
    if device == "cpu":
        yield from _on_cpu()
    elif device == "cuda":
        yield from _on_cuda()
    elif device == "npu":
        yield from _on_npu()


def described() -> dict[str, str]:
    """What changes the numbers that an accelerator gives."""
    names = ("cuda.matmul.allow_tf32", "cudnn.allow_tf32")
    return {name: str(value) for name in names if (value := _flag(torch.backends, name)) is not None}


def plain_convolutions(dtype: str) -> bool:
    """Are the CPU's convolutions of a 16-bit dtype torch's own? Without AVX512 oneDNN takes none; it may be off."""
    name = {"bfloat16": "bf16", "float16": "fp16"}.get(dtype)
    # torch looks for an operator that is not there anew each time.
    takes = None if name is None else _flag(torch.ops, f"mkldnn._is_mkldnn_{name}_supported")
    return name is not None and not (torch.backends.mkldnn.enabled and takes is not None and takes())


def _on_cpu() -> Iterator[str]:
    yield from _of_scopes(*(_fewer_bits(f"mkldnn.{operator}.fp32_precision") for operator in ("matmul", "conv")))
    if flushes():
        yield "ftz"


def _on_cuda() -> Iterator[str]:
    flags = ("cuda.matmul.allow_tf32", "cudnn.allow_tf32")
    yield from _of_scopes(*("tf32" if _flag(torch.backends, flag) else None for flag in flags))
    names = ("fp16_reduced_precision_reduction", "bf16_reduced_precision_reduction", "fp16_accumulation")
    if any(_flag(torch.backends, f"cuda.matmul.allow_{name}") for name in names):
        yield "reduced-reduction"


def _on_npu() -> Iterator[str]:
    npu = getattr(sys.modules.get("torch_npu"), "npu", None)
    yield from _of_scopes(*("hf32" if _flag(npu, f"{name}.allow_hf32") else None for name in ("matmul", "conv")))


def _fewer_bits(path: str) -> str | None:
    """The mode that a flag of the CPU's products names, None where it asks for all bits of float32."""
    precision: str | None = _flag(torch.backends, path)
    return precision if precision in ("tf32", "bf16") else None


def _of_scopes(matmul: str | None, convolution: str | None) -> Iterator[str]:
    """The modes of two flags; one mode without a scope where both name it."""
    if matmul == convolution:
        yield from () if matmul is None else (matmul,)
        return
    if matmul is not None:
        yield matmul + IN_MATMUL
    if convolution is not None:
        yield convolution + IN_CONVOLUTION


def _flag(owner: Any, path: str) -> Any:
    """A flag's value; None where this version has none of that name, or refuses to read it."""
    try:
        for name in path.split("."):
            owner = getattr(owner, name)
    except (AttributeError, RuntimeError):
        return None
    return owner
