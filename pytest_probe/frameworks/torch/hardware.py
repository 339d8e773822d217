"""What a device is made of, as far as torch tells."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

from pytest_probe.system.processor import processor

# How a torch that has no such device, or does not say, answers.
SILENT = (AttributeError, AssertionError, ImportError, NotImplementedError, RuntimeError, TypeError, ValueError)


def hardware(name: str) -> dict[str, str]:
    """The hardware behind a device's name ("cuda:0"), the version of its driver, and of the libraries that torch was
    built with for it; empty for a device of the project's own."""
    kind, _, index = name.partition(":")
    if kind == "cpu":
        return {"hardware": f"{processor()}, {torch.backends.cpu.get_cpu_capability()}"}
    found: dict[str, str] = {}
    with suppress(*SILENT):
        module: Any = torch.get_device_module(kind)
        found["hardware"] = str(module.get_device_name(int(index or 0)))
    if kind == "cuda":
        with suppress(*SILENT):
            # Private, and there is no public one.
            found["driver"] = str(getattr(torch._C, "_cuda_getDriverVersion")())  # noqa: B009
        with suppress(*SILENT):
            found["toolkit"] = str(torch.version.hip or torch.version.cuda)
            cudnn: Any = torch.backends.cudnn
            found["cudnn"] = str(cudnn.version())
    return found
