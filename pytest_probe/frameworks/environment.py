"""Variables of the environment that decide how frameworks, and the libraries below them, compute."""

from __future__ import annotations

import os

# What variables of the environment begin with that decide which kernels run, and how they split sums.
NUMERIC = (
    *(
        "ATEN_",
        "TORCH",
        "PYTORCH_",
        "FLAGS_",
        "PADDLE_",
        "MKL",
        "DNNL_",
        "ONEDNN_",
        "OMP_",
        "KMP_",
        "GOMP_",
        "OPENBLAS_",
    ),
    *("BLIS_", "CUBLAS", "CUDA_", "CUDNN_", "NVIDIA_", "ASCEND", "HCCL_", "LD_PRELOAD", "LD_LIBRARY_PATH"),
)


def environment() -> tuple[tuple[str, str], ...]:
    """The variables of the environment that decide how frameworks compute, with their values."""
    return tuple(sorted(each for each in os.environ.items() if each[0].startswith(NUMERIC)))
