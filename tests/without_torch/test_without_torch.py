"""A machine without torch: what needs none works, what needs it says what to install."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec
import pytest

import pytest_probe
from pytest_probe.cli import main
from pytest_probe.errors import Unsupported
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import OutputVerdict, Verdict
from pytest_probe.reports.selected import SelectedItem, selected_in, write_items
from tests.support.made_results import write_run

DUMP = Path(__file__).parents[2] / "cases/gpt/dump.json"
INSTALL = "torch, which is not installed: pip install 'pytest-probe[torch]'"
MISSING = "torch is not installed: pip install 'pytest-probe[torch]'"


def test_public_names() -> None:
    assert all(getattr(pytest_probe, name) for name in pytest_probe.__all__)


def test_a_dump_is_read() -> None:
    dump = pytest_probe.read_dump(DUMP)
    assert dump.framework == "pytorch"
    assert dump.decode(dump.records[0]).args


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(DUMP)]) == 0
    text = capsys.readouterr().out
    assert "0 cases would run, 322 would be skipped" in text
    assert f"skip: framework not installed: {MISSING}" in text


def results(folder: Path, rmse: float) -> str:
    measures = {"count": 4, "rmse": rmse, "max_rel_error": 0.0, "mean_rel_error": 0.0, "small_value_error_ratio": 0.0}
    output = OutputVerdict("output.0", (4,), "float32", "pass", "noise", measures=measures)
    identity = PortableId("dump.json", "Functional.softmax.0.forward")
    judged = Verdict("pass", "auto", dtype="float32", outputs=(output,))
    made = Result.of(
        judged, identity, api=identity.api, direction="forward", dtype="float32", device="npu", duration=0.5
    )
    folder.mkdir()
    write_items(folder, [SelectedItem(made.id, 0, made.id)])
    return str(write_run(folder, iter([made]), selected=msgspec.to_builtins(selected_in(folder))))


def test_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device, benchmark = results(tmp_path / "device", 3.0), results(tmp_path / "benchmark", 1.0)
    assert main(["compare", benchmark, benchmark, "-o", str(tmp_path / "same")]) == 0
    assert main(["compare", device, benchmark, "-o", str(tmp_path / "other")]) == 1
    assert "benchmark: rmse is 3 times the benchmark's, limit 2" in capsys.readouterr().out
    assert len(list((tmp_path / "other").glob("api_precision_compare_*.csv"))) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no FIFO")
def test_compare_waits_for_no_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main(["compare", str(tmp_path / "pipe"), str(tmp_path / "pipe"), "-o", str(tmp_path / "out")]) == 2
    assert "it is a FIFO" in capsys.readouterr().err


def test_a_check_says_what_to_install(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest(f"--probe-dump={DUMP}", "--probe-out=out")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"{DUMP}: its calls need {INSTALL.replace('[', '[[]')}", "1 case, 1 error"])
    result.stdout.no_fnmatch_line("*Traceback*")
    (found,) = map(json.loads, Path("out/results.jsonl").read_text().splitlines())
    assert (found["id"], found["verdict"]) == ("dump.json::(framework)", "error")


def test_a_test_of_a_kernel_says_what_to_install(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(probe): probe.tensor((2,))")
    result = pytester.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([MISSING.replace("[", "[[]")])


def test_an_unused_plugin_is_not_noticed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): pass")
    pytester.runpytest().assert_outcomes(passed=1)


def test_recording_says_what_to_install(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Unsupported, match="torch is not installed: pip install"):
        pytest_probe.PrecisionDebugger(dump_path=tmp_path)
    with pytest.raises(Unsupported, match="torch is not installed"), pytest_probe.capture(tmp_path):
        pass
    with pytest.raises(Unsupported, match="torch is not installed"):
        pytest_probe.seed_all()
    program = tmp_path / "train.py"
    program.write_text("")
    assert main(["capture", "-o", str(tmp_path / "dumps"), str(program)]) == 1
    assert "nothing was recorded: the program imported none of torch, paddle" in capsys.readouterr().err


def test_a_captured_run_says_what_to_install(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--probe-capture=dumps")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --probe-capture: {MISSING}".replace("[", "[[]")])
