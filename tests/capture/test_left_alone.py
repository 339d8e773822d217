"""A recorded program prints, warns, counts and ends as it does without us."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.left_alone import PROGRAMS

ROOT = Path(__file__).parents[2]
LAUNCHED = """
import sys
import torch
print(sys.argv, repr(__package__), __spec__ is None, __name__)
torch.nn.functional.softmax(torch.ones(3))
{end}
"""
ENDS = {"well": "", "status": "sys.exit(4)", "exception": "def f(): raise KeyError('x')\nf()", "syntax": "1 +"}
COMMAND = "from pytest_probe.cli import main; raise SystemExit(main())"


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All programs as they are, and recorded."""
    folder = tmp_path_factory.mktemp("programs")
    found = {}
    for mode in ("plain", "recorded"):
        command = [sys.executable, "-m", "tests.support.left_alone", mode, str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        found[mode] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recorded_program_is_left_alone(name: str, observed: dict[str, dict[str, Any]]) -> None:
    assert observed["recorded"][name] == observed["plain"][name]


def test_the_programs_show_what_they_are_for(observed: dict[str, dict[str, Any]]) -> None:
    plain = observed["plain"]
    assert len(PROGRAMS) > 40
    assert not [name for name, found in plain.items() if found["status"] == "broken"]
    assert not [name for name, found in plain.items() if name.startswith("warning") and "Warning: " not in str(found)]
    assert not [name for name, found in plain.items() if name.startswith("ends with exc") and "line" not in str(found)]
    assert not [name for name, found in plain.items() if "subclass" in name and int(found["out"]) == 0]


@pytest.mark.parametrize("module", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_the_command_starts_and_ends_a_program_as_python_does(end: str, module: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LAUNCHED.format(end=ENDS[end]))
    program = ["-m", "train"] if module else ["train.py"]

    def run(*command: str) -> tuple[int, str, list[str]]:
        words = [sys.executable, *command, *program, "--lr", "3"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        said = [line for line in done.stderr.splitlines() if not line.startswith("pytest-probe: ")]
        return done.returncode, done.stdout, said

    recorded = run("-c", COMMAND, "capture", "-o", "dumps")
    if end == "syntax":
        assert recorded[0] == 2
        assert recorded[1] == ""
        return
    assert recorded == run()


def test_a_module_that_is_missing_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMMAND, "capture", "-m", "no_such_module"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"{sys.executable}: No module named no_such_module"]
