"""Builds of the compiled kernels."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BUILD = Path(__file__).parents[2] / "kernel" / "build.py"
COMPILER = os.environ.get("CC", "cc").split()[0]


def build(folder: Path, room: str = "capture", **environment: str) -> subprocess.CompletedProcess[str]:
    """What the build of a room's kernel says; the environment is added to this process' own."""
    told = [sys.executable, str(BUILD), str(folder), room]
    return subprocess.run(told, capture_output=True, text=True, timeout=300, env={**os.environ, **environment})


def built(folder: Path, room: str = "capture", **environment: str) -> Path:
    """The kernel's file. Where there is no compiler the test is skipped."""
    if shutil.which(COMPILER) is None:
        pytest.skip(f"needs a C compiler, and {COMPILER} is none")
    found = build(folder, room, **environment)
    assert found.returncode == 0, found.stderr
    return Path(found.stdout.strip())


def loaded(path: Path) -> ModuleType:
    """The module in this file, as if it were installed beside the package."""
    spec = importlib.util.spec_from_file_location("_kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(script: str, *args: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A new process that can import the kernel in the folder as `_kernel`."""
    told = [sys.executable, "-c", script, *args]
    paths = os.pathsep.join([str(folder), str(BUILD.parents[1])])
    given = {**os.environ, "PYTHONPATH": paths, **environment}
    return subprocess.run(told, capture_output=True, text=True, timeout=300, env=given)


def sanitizer() -> str:
    """The library of ASan's, which has to be loaded before Python. Where there is none the test is skipped."""
    if shutil.which(COMPILER) is None or sys.platform != "linux":
        pytest.skip("needs a C compiler with ASan, on Linux")
    told = [COMPILER, "-print-file-name=libasan.so"]
    found = subprocess.run(told, capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.isabs(found):
        pytest.skip(f"{COMPILER} has no ASan")
    return os.path.realpath(found)
