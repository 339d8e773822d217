"""An installed torch that is older than what works gets one sentence, where something needs it and nowhere else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pytest_probe.cli.show import USAGE_ERROR
from pytest_probe.frameworks import OLDEST
from tests.support.running import refusal

ROOT = Path(__file__).parents[2]
DUMP = ROOT / "cases/gpt/dump.json"
SENTENCE = (
    "torch 2.5.1+cu124 is installed, and pytest-probe needs torch 2.6 or newer: "
    "pip install --upgrade 'pytest-probe[torch]'"
)
KERNEL = """
import sys
def test_other(): assert "torch" not in sys.modules
def test_mine(probe): probe.tensor((2,))
"""
COMMANDS = f"""
import pytest_probe
from pytest_probe.cli import main
print(main(["show", {str(DUMP)!r}]), main(["capture", "train.py"]))
for record in (lambda: pytest_probe.PrecisionDebugger(dump_path="dumps"), pytest_probe.seed_all):
    try:
        record()
    except pytest_probe.ProbeError as error:
        print(error)
"""


@pytest.fixture
def old(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project in which `import torch` finds an older release, that has nothing of what a newer one has."""
    package = pytester.mkpydir("older") / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '2.5.1+cu124'\nprint('torch was imported')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package.parent), str(ROOT)]))
    return pytester


@pytest.mark.parametrize("option", [f"--probe-dump={DUMP}", "--probe-capture=new"])
def test_a_run_that_needs_a_framework_refuses_an_old_one(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr("torch.__version__", "2.5.1+cu124")
    (said,) = refusal(pytester, option).lines
    assert said.endswith(SENTENCE)


@pytest.mark.compat
def test_a_run_with_workers_refuses_an_old_framework(old: pytest.Pytester) -> None:
    result = old.runpytest_subprocess(f"--probe-dump={DUMP}", "-n1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (said,) = [line for line in result.errlines if line]
    assert said.startswith("ERROR: ")
    assert said.endswith(SENTENCE)


@pytest.mark.compat
def test_a_test_of_a_kernel_is_an_error_with_an_old_framework_and_others_import_none(old: pytest.Pytester) -> None:
    old.makepyfile(KERNEL)
    result = old.runpytest_subprocess("-rE")
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines([SENTENCE.replace("[", "[[]")])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_commands_and_recording_refuse_an_old_framework(old: pytest.Pytester) -> None:
    old.makefile(".py", train="import torch")
    result = old.run(sys.executable, "-c", COMMANDS)
    assert result.errlines == [f"pytest-probe: error: {SENTENCE}"] * 2
    assert result.outlines[-3:] == [f"{USAGE_ERROR} {USAGE_ERROR}", SENTENCE, SENTENCE]


def test_the_oldest_release_is_what_the_package_asks_for() -> None:
    assert f'torch = ["torch>={".".join(map(str, OLDEST["torch"]))}"]' in (ROOT / "pyproject.toml").read_text()
