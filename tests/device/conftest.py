"""Programs of their own: a process that has had an accelerator has it for good."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, field

from tests.device import pretend

ROOT = Path(__file__).parent.parent.parent


class Trained(Struct, frozen=True):
    """What tests.device.train prints of one training, and where its dumps are."""

    losses: list[float]
    waits: list[list[int]]
    folder: Path
    # Of each step, copies to the CPU that nothing waited for.
    copies: list[int] = field(default_factory=list)
    # How often each API was called, where the training was timed.
    calls: dict[str, int] = field(default_factory=dict)

    def entries(self, step: int = 0) -> dict[str, Any]:
        (path,) = self.folder.glob(f"step{step}/*/dump.json")
        found: dict[str, Any] = json.loads(path.read_text())["data"]
        return found


Train = Callable[..., Trained]
# torch's one accelerator of a process is an NVIDIA GPU where there is one.
HIDDEN = "CUDA_VISIBLE_DEVICES"


@pytest.fixture(autouse=True)
def _one_accelerator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("cuda") is None:
        monkeypatch.setenv(HIDDEN, "")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if pretend.COMPILER is None:
        pytest.skip("no C++ compiler (c++) for the device's backend")
    return pretend.compiled(tmp_path_factory.mktemp("device"))


@pytest.fixture(scope="session")
def train(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """A model's training under a task, on the device or on the CPU."""
    folder = tmp_path_factory.mktemp("trainings")
    command = [sys.executable, "-m", "tests.device.train", str(library), str(folder)]
    environment = {**os.environ, HIDDEN: ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    def one(model: str, task: str, device: str = pretend.NAME) -> Trained:
        return Trained(**found[f"{device}/{model}/{task}"], folder=folder / device / model / task)

    return one
