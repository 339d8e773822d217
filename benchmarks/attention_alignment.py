"""Is attention on an NVIDIA GPU right where its tensors begin one element behind an aligned address? torch alone.

    python benchmarks/attention_alignment.py

Prints the largest error for each dtype, backend and offset, beside float64 on the CPU. Each is a process of its own,
since a misaligned address ends it.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

DTYPES = ("float32", "bfloat16", "float16")
CHOSEN = "torch's choice"
BACKENDS = (CHOSEN, "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "FLASH_ATTENTION", "MATH")
OFFSETS = (0, 1)  # elements


def at(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """The same values, so many elements behind the start of memory."""
    memory = torch.empty(tensor.numel() + offset, dtype=tensor.dtype, device=tensor.device)
    return memory[offset:].view(tensor.shape).copy_(tensor)


def error(dtype: str, backend: str, offset: int) -> float:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 4, 16, 32, device="cuda", dtype=getattr(torch, dtype)) for _ in range(3))
    right = attention(query.double().cpu(), key.double().cpu(), value.double().cpu(), is_causal=True)
    chosen = nullcontext() if backend == CHOSEN else sdpa_kernel(getattr(SDPBackend, backend))
    with chosen:
        found = attention(at(query, offset), at(key, offset), at(value, offset), is_causal=True)
    return float((found.double().cpu() - right).abs().max())


def main() -> None:
    if len(sys.argv) > 1:
        print(f"{error(sys.argv[1], sys.argv[2], int(sys.argv[3])):.2g}")
        return
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    for dtype in DTYPES:
        for backend in BACKENDS:
            for offset in OFFSETS:
                command = [sys.executable, __file__, dtype, backend, str(offset)]
                made = subprocess.run(command, capture_output=True, text=True, check=False)
                lines = made.stderr.strip().splitlines()
                said = next((line for line in lines if "Error" in line and "File" not in line), "died")
                print(f"{dtype:9} {backend:20} offset {offset}: {made.stdout.strip() or said[:90]}")


if __name__ == "__main__":
    main()
