from __future__ import annotations

import json
import py_compile
import subprocess
import sys
import zipapp
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from pytest_probe.cli import main
from tests.support.left_alone import PROGRAMS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LAUNCHED = """
import sys, warnings
import torch
warnings.warn("mine", stacklevel=2)
print(sys.argv, repr(__package__), __spec__ is None, __name__)
torch.nn.functional.softmax(torch.ones(3))
{end}
"""
STARTED = """
import sys
names = {name: getattr(value, "name", type(value).__name__) for name, value in globals().items()}
print(names, sys.argv, repr(__package__), __file__, sys.path[0])
sys.exit(4)
"""
ENDS = {"status": "sys.exit(4)", "exception": "def f(): raise KeyError('x')\nf()"}
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


def ran(folder: Path, *command: str) -> tuple[int, str, list[str]]:
    words = [sys.executable, *command, "--lr", "3"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    said = [line for line in done.stderr.splitlines() if not line.startswith("pytest-probe: ")]
    return done.returncode, done.stdout, said


RECORDING = ("-c", COMMAND, "capture", "-o", "dumps")
Recorded: TypeAlias = "Callable[..., tuple[int, str, list[str]]]"


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Recorded:
    """What the command says in this process of a program that leaves nothing behind in it."""
    monkeypatch.chdir(tmp_path)

    def run(*program: str) -> tuple[int, str, list[str]]:
        try:
            status = main(["capture", "-o", "dumps", *program, "--lr", "3"])
        except SystemExit as ended:
            status = int(ended.code or 0)
        out, err = capfd.readouterr()
        return status, out, [line for line in err.splitlines() if not line.startswith("pytest-probe: ")]

    return run


@pytest.mark.parametrize(("end", "program"), zip(ENDS, [["train.py"], ["-m", "train"]], strict=True))
def test_the_command_starts_and_ends_a_program_as_python_does(end: str, program: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LAUNCHED.format(end=ENDS[end]))
    assert ran(tmp_path, *RECORDING, *program) == ran(tmp_path, *program)


def test_a_program_that_python_cannot_read_is_refused(recorded: Recorded, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LAUNCHED.format(end="1 +"))
    assert recorded("train.py")[:2] == (2, "")


@pytest.mark.parametrize("kind", ["./train.py", "train.pyc", "app.pyz", "app"])
def test_files_and_folders_start_as_python_starts_them(kind: str, recorded: Recorded, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    for path in (tmp_path / "train.py", tmp_path / "app" / "__main__.py"):
        path.write_text(STARTED)
    py_compile.compile(str(tmp_path / "train.py"), str(tmp_path / "train.pyc"))
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    plain = ran(tmp_path, kind)
    assert plain[0] == 4
    assert recorded(kind) == plain


def test_a_folder_without_a_program_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "-o", str(tmp_path / "dumps"), str(tmp_path)]) == 2
    assert "there is no __main__.py in this folder" in capsys.readouterr().err


def test_a_module_that_is_missing_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Python prints what a SystemExit has."""
    with pytest.raises(SystemExit) as ended:
        main(["capture", "-o", str(tmp_path / "dumps"), "-m", "no_such_module"])
    assert ended.value.code == f"{sys.executable}: No module named no_such_module"
    assert capsys.readouterr().err == ""
