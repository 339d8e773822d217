"""The commands of docs/long-runs.md: two processes, one folder a rank, which a run checks without an error.

Stand-ins of DeepSpeed, Slurm, accelerate and Lightning (tests/support/launchers) set the same variables and start
processes in the same way.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT, blocks

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the shell of a page's commands"),
    pytest.mark.slow,
]
PAGE = "docs/long-runs.md"
LAUNCHERS = ROOT / "tests" / "support" / "launchers"
# A rank a process and its variables as torchrun's: what they start is what torchrun starts.
ALIKE = "torch.distributed.run", "accelerate", "deepspeed"
FILE = "tests/acceptance/test_launchers.py runs it"
COMMANDS = [block.text.strip() for block in blocks(PAGE) if block.language == "sh" and block.not_run == FILE]
PROGRAMS = {block.name: block.text for block in blocks(PAGE) if block.language == "python"}
TRAIN = PROGRAMS["train_ddp.py"]
INITIAL = 'dist.init_process_group("gloo")'
# What Lightning's own launcher does: this process is rank 0, and its model is there before the process group is.
LIGHTNING = TRAIN.replace(INITIAL, "").replace(
    "optimizer =",
    f"""
import os, subprocess, sys
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.update(NODE_RANK="0", WORLD_SIZE="2")
rank = int(os.environ.setdefault("LOCAL_RANK", "0"))
if rank == 0:
    command = [sys.executable, os.path.abspath(sys.argv[0])] + sys.argv[1:]
    subprocess.Popen(command, env=os.environ | {{"LOCAL_RANK": "1"}})
{INITIAL[:-1]}, rank=rank, world_size=2)
optimizer =""",
)
SLURM = "import os\n" + TRAIN.replace(
    INITIAL, f'{INITIAL[:-1]}, rank=int(os.environ["SLURM_PROCID"]), world_size=int(os.environ["SLURM_NTASKS"]))'
)


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def ran(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """A command in the shell, with the programs of the page. pytest-probe is that of this Python."""
    programs = {**PROGRAMS, "train_lightning.py": LIGHTNING, "train_slurm.py": SLURM}
    for name, text in programs.items():
        (folder / name).write_text(text)
    python, srun = (shlex.quote(str(path)) for path in (sys.executable, LAUNCHERS / "srun.py"))
    commands = {
        "pytest-probe": f'exec {python} -c "from pytest_probe.cli import main; raise SystemExit(main())" "$@"',
        "srun": f'exec {python} {srun} "$@"',
        "torchrun": f'exec {python} -m torch.distributed.run "$@"',
    }
    (folder / "bin").mkdir()
    for name, text in commands.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    paths = [str(ROOT), os.environ.get("PYTHONPATH", ""), str(LAUNCHERS)]
    port = free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_PROBE_")},
        **{"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PET_MASTER_PORT": port},
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    shell = ["bash", "-c", command]
    return subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


LAUNCHED = [one for one in COMMANDS if not any(name in one for name in ALIKE)]


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, subprocess.CompletedProcess[str]]]:
    folders = [tmp_path_factory.mktemp("launched") for _ in LAUNCHED]
    return {command: (folder, ran(folder, command)) for command, folder in zip(LAUNCHED, folders, strict=True)}


@pytest.mark.parametrize("command", LAUNCHED, ids=lambda command: command.replace("pytest-probe capture", "")[:40])
def test_each_command_of_the_page_records_both_ranks(
    command: str, launched: dict[str, tuple[Path, subprocess.CompletedProcess[str]]]
) -> None:
    """One folder for each rank."""
    folder, done = launched[command]
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.glob("dumps/step0/*")) == ["rank0", "rank1"]
    for rank in ("rank0", "rank1"):
        assert '"Functional.linear.0.backward"' in (folder / "dumps/step0" / rank / "dump.json").read_text()
    # Where the launcher starts the capture, or the program a rank, the command has fewer processes to tell of.
    started = 0 if not command.startswith("pytest-probe") else 1 if "lightning" in command else 2
    told = re.findall(r"recorded (\d) process(?:es)? that the program started: dumps\n", done.stderr)
    assert told == [str(started)] * (started > 0), done.stderr
    assert "Traceback" not in done.stderr


def test_all_that_was_recorded_is_healthy(
    launched: dict[str, tuple[Path, subprocess.CompletedProcess[str]]], pytester: pytest.Pytester
) -> None:
    """The collective, too."""
    dumps = [f"--probe-dump={folder / 'dumps'}" for folder, _ in launched.values()]
    result = pytester.runpytest_inprocess(*dumps, "--probe-device=cpu")
    outcomes = result.parseoutcomes()
    assert (result.ret, outcomes.keys() & {"failed", "errors"}) == (0, set())
    assert outcomes["passed"] >= 10 * len(LAUNCHED)


def test_the_page_names_each_launcher() -> None:
    assert len(COMMANDS) == 6
