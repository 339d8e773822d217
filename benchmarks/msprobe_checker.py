"""Run the API checker of msprobe 26 on a dump with the CPU as its device; under a Python that has msprobe.

    python benchmarks/msprobe_checker.py DUMP FOLDER     # its CSV files go to the folder
    python benchmarks/msprobe_checker.py                 # only import it

The checker wants an NPU or CUDA: its module attribute `current_device` becomes "cpu", and what it asks of torch.cuda
does nothing. Nothing else is changed.
"""

from __future__ import annotations

import sys
from typing import Any

import torch


def nothing(*args: Any) -> None:
    """What is asked of CUDA."""


cuda: Any = torch.cuda
cuda.set_device = cuda.empty_cache = nothing

from msprobe.pytorch.api_accuracy_checker.acc_check import acc_check, acc_check_utils  # noqa: E402

acc_check.current_device = acc_check_utils.current_device = "cpu"
if sys.argv[1:]:
    dump, folder = sys.argv[1:]
    sys.argv[1:] = ["-api_info", dump, "-o", folder]
    acc_check._acc_check()
