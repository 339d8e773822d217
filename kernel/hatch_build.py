"""Builds the kernels beside the wheel: where that fails the wheel is built without one, and a line says why."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The folders of the package that have one.
KERNELS = ("capture", "numerics")


class KernelHook(BuildHookInterface):  # type: ignore[misc]
    """For `pip install -e` the kernels lie in the source tree, else in the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="pytest-probe-")
        # What one cannot be built for, the other cannot either.
        for name in KERNELS:
            if not self._is_built(name, version, build_data):
                return

    def _is_built(self, name: str, version: str, build_data: dict[str, Any]) -> bool:
        root, place = Path(self.root), f"pytest_probe/{name}"
        folder = root / place if version == "editable" else Path(self._temporary.name, name)
        told = [sys.executable, str(root / "kernel" / "build.py"), str(folder), name]
        # In a process of its own, from which a compiler's driver may exit as it likes.
        found = subprocess.run(told, capture_output=True, text=True)
        lines = (found.stdout if not found.returncode else found.stderr).strip().splitlines()
        if found.returncode:
            # The compiler's own words, where there are some, without the path before them, which may be long.
            said = [line[line.index("error:") :] for line in lines if "error:" in line] or lines[-1:]
            why = textwrap.shorten("".join(said[:1]), 160)
            self.app.display_warning(f"pytest-probe is installed without its compiled kernel ({why})")
        elif version != "editable":
            kernel = Path(lines[-1])
            build_data["force_include"][str(kernel)] = f"{place}/{kernel.name}"
            build_data["pure_python"] = False
            build_data["tag"] = f"cp310-abi3-{_platform()}"
        return not found.returncode

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._temporary.cleanup()


def _platform() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
