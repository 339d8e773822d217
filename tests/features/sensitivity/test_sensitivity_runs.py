"""--probe-sensitivity in a run: the summary, the files, the gate, workers; and what `show` expects without a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pytest_probe import capture
from pytest_probe.cli import main
from tests.support import csv_cells
from tests.support.models import GPT, trained
from tests.support.running import rows

RUN = ("-p", "no:cacheprovider", "--probe-device=cpu", "--probe-api=Functional.*")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two dumps of one model: of a step after another one, and of a step whose loss is zero."""
    found = []
    for factor in (1.0, 0.0):
        torch.manual_seed(0)
        model, tokens = GPT(), torch.randint(0, 32, (2, 8))
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)

        def loss(model: nn.Module = model, tokens: torch.Tensor = tokens, factor: float = factor) -> torch.Tensor:
            return factor * F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

        step, folder = trained(model, optimizer, loss), tmp_path_factory.mktemp("dump")
        step()
        with capture(folder, overwrite=True) as recorder:
            step()
            recorder.step()
        found.append(next(folder.glob("**/dump.json")))
    return found[0], found[1]


def test_a_run_says_what_would_have_been_found(pytester: pytest.Pytester, dumps: tuple[Path, Path]) -> None:
    run = pytester.runpytest(*RUN, f"--probe-dump={dumps[0]}", "--probe-sensitivity=90", "--probe-out=out", "-n1")
    run.stdout.fnmatch_lines([
        "sensitivity, * cases: * strong; *",
        "* found * of",
        "  scale error of 0.4 %, by case *",
        "  times 1.01 *",
        "  one NaN *",
    ])  # fmt: skip
    run.stdout.no_fnmatch_line("* weak*")
    assert run.ret == 0
    for result in rows():
        (answer,) = result["answers"]
        assert (answer["question"], answer["outcome"]) == ("sensitivity", "strong")
        assert "message" not in answer
        assert answer["shares"]["scale error of 0.4 %, by case"] == [1, 1]
        assert answer["shares"]["one NaN"][0] == answer["shares"]["one NaN"][1]
        assert all(output["detects"]["scale"] < 0.01 for output in result["outputs"])


def test_a_step_without_a_loss_proves_too_little(pytester: pytest.Pytester, dumps: tuple[Path, Path]) -> None:
    bad = pytester.runpytest(*RUN, f"--probe-dump={dumps[1]}", "--probe-sensitivity=90", "--probe-out=out")
    assert bad.ret == 1
    bad.stdout.fnmatch_lines(["sensitivity, * cases: * weak*", "  Functional.* float32 backward: *weak*"])
    assert re.search(r"incoming gradient \S+ is all\s+zeros", bad.stdout.str())
    bad.stdout.fnmatch_lines(
        ["probe: sensitivity: 5* % of the cases prove something, --probe-sensitivity asks for 90 %;*linear backward*"]
    )
    found = csv_cells.rows(pytester.path / "out", "detects")
    assert {row["weak"] != "" for row in found if ".backward" in row["id"]} == {True}
    assert {row["weak"] for row in found if ".forward" in row["id"]} == {""}


def test_show_expects_it(dumps: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(dumps[0]), "--api=Functional.*"]) == 0
    assert "sensitivity" not in capsys.readouterr().out
    assert main(["show", str(dumps[1]), "--api=Functional.*"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"sensitivity as statistics say, \d+ cases: \d+ strong, \d+ weak; ", text)
    assert "is all zeros" in text


def test_without_the_option_passes_state_what_they_detect(pytester: pytest.Pytester, dumps: tuple[Path, Path]) -> None:
    run = pytester.runpytest(*RUN, f"--probe-dump={dumps[0]}", "--probe-out=out")
    run.stdout.no_fnmatch_line("*sensitivity*")
    run.stdout.no_fnmatch_line("* of 7.2 digits *")
    found = rows()
    # Where no digits are shown no further run is made for them.
    assert all("answers" not in result and "digits" not in result.get("details", {}) for result in found)
    stated = [output["detects"] for result in found for output in result["outputs"]]
    assert stated
    assert all(each["scale"] > 0 and each["element"] >= 1 for each in stated)
    assert len(csv_cells.rows(pytester.path / "out", "detects")) == len(stated)


def test_verbose_runs_and_the_page_show_right_digits(pytester: pytest.Pytester, dumps: tuple[Path, Path]) -> None:
    asked = ("--probe-api=Functional.gelu", "--probe-sensitivity", "--probe-html=page.html", "-v")
    run = pytester.runpytest(*RUN[:-1], f"--probe-dump={dumps[0]}", *asked)
    run.stdout.fnmatch_lines(
        ["*Functional.gelu.0.forward PASSED * of 7.2 digits (float32 run: ?.?), noise ratio * of 16 *"]
    )
    page = (pytester.path / "page.html").read_text()
    assert "of 7.2 decimal digits are right (float32): the RMS of the errors is" in page
    assert "in the reference's own float32 run" in page.replace("\\u0027", "'")
    assert '"detects":"a scale error of ' in page
    assert '"answers":[["sensitivity","strong; ' in page
