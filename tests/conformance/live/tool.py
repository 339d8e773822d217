"""A real tool, in the Python that has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[3]
RELEASE = "from importlib.metadata import version; print(version('mindstudio-probe'))"
STANDARDS = {"1.0": "msprobe-1.0", "1.2": "msprobe-8", "8.3": "msprobe-8", "26.2": "msprobe-26"}


class ToolFailed(Exception):
    """A command ended badly; its text is what the command printed last."""


class Tool(Struct, frozen=True):
    """A release of mindstudio-probe ("8.3.3"), and a folder to work in."""

    python: str
    release: str
    folder: Path

    @classmethod
    def of(cls, python: str, folder: Path) -> Tool:
        """Raises ToolFailed where this Python does not have it."""
        python = os.path.abspath(python)
        release = run([python, "-c", RELEASE], folder).strip()
        found = cls(python, release, folder / release)
        found.folder.mkdir()
        return found

    @property
    def standard(self) -> str:
        """Our standard that is as this release is."""
        return STANDARDS[self.release.rpartition(".")[0]]

    def run(self, script: str, *arguments: str | Path) -> None:
        """Run a script of tests/conformance under the tool's Python. Raises ToolFailed."""
        run([self.python, str(ROOT / "tests" / "conformance" / script), *map(str, arguments)], self.folder)


def pytest_probe(folder: Path, *arguments: str) -> None:
    """Run pytest with this Python in a folder; items may fail. Raises ToolFailed."""
    run([sys.executable, "-m", "pytest", "-q", *arguments], folder, (0, 1))


def run(command: Sequence[str], folder: Path, passing: Sequence[int] = (0,)) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode not in passing:
        raise ToolFailed(f"{' '.join(command)}: exit status {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout
