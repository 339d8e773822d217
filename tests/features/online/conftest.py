"""A small program whose calls are sent, and checking processes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.support import forks

PROGRAM = """
import sys
import torch
from pytest_probe import PrecisionDebugger

options = dict(word.split("=", 1) for word in sys.argv[1:])
fault = options.pop("fault", "")
if "online_buffer" in options:
    options["online_buffer"] = int(options["online_buffer"])

def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    ).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    debugger = PrecisionDebugger(task="tensor", **options)
    for step in range(3):
        debugger.start()
        x = torch.randn(5, 8, dtype=torch.bfloat16)
        loss = torch.nn.functional.softmax(model(x), -1).float().pow(2).mean()
        loss.backward()
        debugger.stop()
        debugger.step()
        optimizer.step()
        optimizer.zero_grad()
        print(f"{loss.item():.17g}")

if fault:
    # A kernel of the device's that is wrong: inside the call, where no capture looks.
    library = torch.library.Library("aten", "IMPL")
    library.impl("gelu", lambda x, approximate="none": x * torch.sigmoid(1.8 * x), "CPU")
main()
"""
LIMIT = 120.0
Process: TypeAlias = "subprocess.Popen[str] | forks.Program"


class Ends:
    """Programs and checkers as processes in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Ends that lose a connection have waited for ever as forks: they need interpreters of their own.
        self.forks = forks.POSSIBLE
        self.shared = folder / "shared"
        self.address = self.shared.as_uri()
        self._processes: list[Process] = []
        (folder / "train.py").write_text(PROGRAM)

    def start(self, *words: str, **environment: str) -> Process:
        run: Callable[..., Process] = forks.Program if self.forks else interpreter
        process = run(words, self.folder, {**os.environ, **environment})
        self._processes.append(process)
        return process

    def program(self, *options: str, **environment: str) -> Process:
        return self.start("train.py", *options, **environment)

    def checker(self, out: str, *options: str) -> Process:
        words = ["-m", "pytest", f"--probe-out={out}", "-p", "no:randomly", "-p", "no:cacheprovider", *options]
        return self.start(*words)

    def results(self, out: str) -> list[dict[str, Any]]:
        """The results of a run, without what differs between two of them."""
        path = self.folder / out / "results.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [
            {key: value for key, value in line.items() if key not in ("duration", "parts", "details")} for line in lines
        ]

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    found = Ends(tmp_path)
    yield found
    found.end()


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    from tests.features.online.streams import make_certificates  # it needs gRPC

    return make_certificates(tmp_path_factory.mktemp("tls") / "keys")


@pytest.fixture
def port() -> Iterator[int]:
    """Nobody else gets it while the test runs, also where nobody listens there: it is bound."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def interpreter(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, *words]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


def said(process: Process) -> str:
    """What a process said until it ended."""
    text, _ = process.communicate(timeout=LIMIT)
    return text
