"""PyTorch: which device modes its flags allow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from pytest_probe.frameworks.torch.state import flushes

# core.device_modes splits a mode's name there.
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
    precision = _flag(torch.backends, "mkldnn.matmul.fp32_precision")
    if precision in ("tf32", "bf16"):
        yield precision + IN_MATMUL
    if flushes():
        yield "ftz"


def _on_cuda() -> Iterator[str]:
    matmul = _flag(torch.backends, "cuda.matmul.allow_tf32")
    convolution = _flag(torch.backends, "cudnn.allow_tf32")
    if matmul or convolution:
        yield "tf32" if matmul and convolution else "tf32" + (IN_MATMUL if matmul else IN_CONVOLUTION)
    names = ("fp16_reduced_precision_reduction", "bf16_reduced_precision_reduction", "fp16_accumulation")
    if any(_flag(torch.backends, f"cuda.matmul.allow_{name}") for name in names):
        yield "reduced-reduction"


def _on_npu() -> Iterator[str]:
    npu = getattr(sys.modules.get("torch_npu"), "npu", None)
    matmul, convolution = _flag(npu, "matmul.allow_hf32"), _flag(npu, "conv.allow_hf32")
    if matmul or convolution:
        yield "hf32" if matmul and convolution else "hf32" + (IN_MATMUL if matmul else IN_CONVOLUTION)


def _flag(owner: Any, path: str) -> Any:
    """A flag's value; None where this version has none of that name, or refuses to read it."""
    try:
        for name in path.split("."):
            owner = getattr(owner, name)
    except (AttributeError, RuntimeError):
        return None
    return owner
