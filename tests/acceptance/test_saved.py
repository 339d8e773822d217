"""What --probe-save=failing leaves: tensors of both sides, and a script that needs them and torch alone."""

from __future__ import annotations

import os
import re

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.model.result import Result
from pytest_probe.reports.results_file import read_results
from tests.support import forks
from tests.support.other_plugins import Ran
from tests.support.running import ran
from tests.support.writing import entries, write_dump

FAULTY = """
import torch

right = torch.layer_norm  # what torch.nn.functional.layer_norm calls

def wrong(x, *args, **kwargs):
    found = right(x, *args, **kwargs)
    return found if x.dtype is torch.float64 else found * 1.5

torch.layer_norm = wrong
"""
REGISTERED = """
def stale_rows(x, approximate="none"):
    found = torch.nn.functional.gelu(x, approximate=approximate)
    return torch.cat([found[:-1], found[-2:-1]])

def pytest_probe_register(registry):
    registry.calls["Functional.gelu"] = stale_rows
    registry.calls["Tensor.item"] = lambda x: x.detach().item() + 3
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("saved")
    torch.manual_seed(0)
    norm = entries("Functional.layer_norm.0", F.layer_norm, torch.randn(8, 16), [16], torch.randn(16), backward=True)
    gelu = entries("Functional.gelu.0", F.gelu, torch.randn(8, 16))
    write_dump(folder, norm | gelu | entries("Tensor.item.0", torch.Tensor.item, torch.tensor(4)))
    (folder / "conftest.py").write_text(FAULTY + REGISTERED)
    found = ran(folder, "--probe-dump=dump.json", "--probe-device=cpu", "--probe-out=out", "--probe-save=failing")
    found.result.assert_outcomes(failed=4)
    return found


SCRIPTS = ("Functional.layer_norm.0.forward", "Functional.layer_norm.0.backward", "Functional.gelu.0.forward")


@pytest.fixture(scope="module")
def printed(told: Ran) -> dict[str, str]:
    """What each saved script prints, in a process that knows nothing of this project."""
    files = [told.folder / "out/saved/dump.json" / f"{name}.py" for name in SCRIPTS]
    for file in files:
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 24
        assert "pytest" not in file.read_text(encoding="utf-8")
    program = "import runpy, sys\nfiles = sys.argv[1:]\ndel sys.argv[1:]\nfor file in files:\n"
    program += "    runpy.run_path(file, run_name='__main__')\n    print('=' * 9)\n"
    made = forks.run(["-c", program, *files], told.folder, os.environ)
    assert made.returncode == 0, made.stderr
    return dict(zip(SCRIPTS, made.stdout.split("=" * 9), strict=False))


def errors(text: str) -> dict[str, float]:
    return {name: float(error) for name, error in re.findall(r"^(\S+): actual .* error (\S+);", text, re.MULTILINE)}


def test_the_script_makes_the_call_again(printed: dict[str, str]) -> None:
    """Without the fault the call is right."""
    forward = errors(printed["Functional.layer_norm.0.forward"])
    backward = errors(printed["Functional.layer_norm.0.backward"])
    assert forward.keys() == {"output.0"}
    assert backward.keys() == {"grad.input.0", "grad.input.2"}
    assert all(error < 1e-5 for error in (forward | backward).values())


def of(told: Ran, api: str) -> Result:
    return next(found for found in read_results(told.folder / "out/results.jsonl") if found.api == api)


def test_a_registered_function_is_shown_as_what_it_is(told: Ran, printed: dict[str, str]) -> None:
    told.result.stdout.fnmatch_lines(
        [
            "Functional.gelu.0.forward in float32 by conftest.stale_rows: error",
            "  wrong: 16 of 128 elements (12 %): last row 7 of dim 0",
            "  looks like: stale: index 7 of dim 0 equals index 6",
            "saved in */Functional.gelu.0.forward.pt; the .py next to it prints what was saved",
        ]
    )
    told.result.stdout.no_fnmatch_line("*Functional.gelu.0.forward in float32 on cpu*")
    failed = of(told, "Functional.gelu")
    assert failed.notes[-1] == "called: conftest.stale_rows"
    assert failed.reason.endswith("; wrong: last row 7 of dim 0; stale: index 7 of dim 0 equals index 6")
    found = failed.outputs[0].diagnosis
    assert found is not None
    assert (found.wrong, found.size, found.family) == (16, 128, "moved")
    # Nobody but the project has that function: both sides are shown as they were saved.
    assert errors(printed["Functional.gelu.0.forward"])["output.0"] > 0.1


def test_numbers_are_saved_and_shown(told: Ran) -> None:
    saved = torch.load(told.folder / "out/saved/dump.json/Tensor.item.0.forward.pt", weights_only=True)
    assert saved["actual.output.0"] == saved["expected.output.0"] + 3
    worst = of(told, "Tensor.item").outputs[0].worst[0]
    assert (worst.actual, worst.expected) == (7, 4)
