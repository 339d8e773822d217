"""An accelerator that any machine has: a backend in C++ of its own, compiled where a test needs it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import torch
from torch.utils.backend_registration import (
    generate_methods_for_privateuse1_backend,
    rename_privateuse1_backend,
)

NAME = "pretend"
SOURCE = Path(__file__).with_suffix(".cpp")
COMPILER = shutil.which("c++")


class Module:
    """What torch asks of `torch.pretend`."""

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """It draws on the CPU."""


def compiled(folder: Path) -> Path:
    """The backend as a library. Raises CalledProcessError."""
    assert COMPILER is not None
    library, home = folder / f"{NAME}{os.getpid()}.so", Path(torch.__file__).parent
    links = [f"-L{home / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{home / 'lib'}"]
    options = ["-O0", "-shared", "-fPIC", "-std=c++20", f"-I{home / 'include'}"]
    subprocess.run([COMPILER, *options, str(SOURCE), "-o", str(library), *links], check=True)
    return library


def load(library: str) -> None:
    """Make it this process's accelerator, for good."""
    rename_privateuse1_backend(NAME)
    torch.ops.load_library(library)
    torch._register_device_module(NAME, Module)
    generate_methods_for_privateuse1_backend()


def waits() -> int:
    """How often the program waited for the device: copies to the CPU, single numbers, synchronisations."""
    found: int = torch.ops.pretend.waits()
    return found


def copies() -> int:
    """How often it copied to the CPU without waiting."""
    found: int = torch.ops.pretend.copies()
    return found


def sent() -> int:
    """Bytes that were copied to the device."""
    found: int = torch.ops.pretend.sent()
    return found


def received() -> int:
    """Bytes that were copied from the device."""
    found: int = torch.ops.pretend.received()
    return found


def launches() -> int:
    """How many kernels it started, convolutions not counted."""
    found: int = torch.ops.pretend.launches()
    return found


def open_memory() -> None:
    """From now on the host can read the memory that is taken, as Triton's interpreter does."""
    torch.ops.pretend.open()
