"""`pytest-probe compare --time` and `--memory`: PaddleAPEX's logs, and files in its columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_probe.cli import main
from tests.acceptance.conftest import DumpMaker, forward, tensor
from tests.support.csv_cells import lines
from tests.support.paddle_dumps import unpack_times


def compare(device: Path, benchmark: Path, out: Path, *options: str) -> int:
    return main(["compare", str(device), str(benchmark), "-o", str(out), *options])


def test_the_tools_own_files_cell_by_cell(tmp_path: Path) -> None:
    """Its rows have no order, and it divides a time that nobody knows, and one below zero."""
    times = unpack_times(tmp_path)
    told = ("--time", "--summary", str(times / "accuracy_checking_result.csv"))
    assert compare(times / "bfloat16", times / "float32", tmp_path / "out", *told) == 0
    for name in ("prof_checking_result", "prof_summary"):
        mine, theirs = lines(tmp_path / "out", name), lines(times, name)
        assert mine[0] == theirs[0]
        assert len(theirs) == 49
        known = {line[0]: line for line in theirs}
        assert [line[0] for line in mine[1:]] == _names(times / "bfloat16" / "profile_analyze.log")
        for line in mine:
            wanted = known[line[0]]
            if any(cell.startswith("-") for cell in wanted[5:7]):
                wanted = [*wanted[:7], "None", *wanted[8:]]
            assert line == wanted


def _names(log: Path) -> list[str]:
    return [line.partition("\t")[0] for line in log.read_text().splitlines()]


def log(folder: Path, name: str, rows: Sequence[str]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{row}\n" for row in rows))
    return folder


def time(name: str, us: object, dtype: str = "FP32") -> str:
    direction = name.rpartition(".")[2]
    return "\t".join((name, "dtype", dtype, "input shape", "[[4]]", "output shape", "[4]", direction, str(us)))


def test_times_on_one_side_and_lines_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("paddle.add*0.forward", "paddle.exp*0.forward", "paddle.sin*0.forward")
    device = log(tmp_path / "device", "profile_analyze.log", [time(names[0], 3.0), time(names[1], -1), "paddle.cut"])
    benchmark = log(tmp_path / "benchmark", "profile_analyze.log", [time(names[0], 9.0), time(names[0], 2.0)])
    with (benchmark / "profile_analyze.log").open("a") as file:
        file.write(f"{time(names[1], 5.0)}\n{time(names[2], 5.0)}\n")
    assert compare(device, benchmark, tmp_path / "out", "--time") == 0
    found = {line[0]: line[5:] for line in lines(tmp_path / "out", "prof_checking_result")[1:]}
    assert found == {
        names[0]: ["2.0", "3.0", "1.5"],
        names[1]: ["5.0", "-1", "None"],
        names[2]: ["5.0", "None", "None"],
    }
    output = capsys.readouterr().out
    assert f"warning: {device / 'profile_analyze.log'}: line 3: not as PaddleAPEX writes it\n" in output
    assert "no ratio in 2 of 3 lines: a side lacks them, or its time is not above zero" in output
    assert "timed on both sides: 1 case of 1 API" in output


def test_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device = log(tmp_path / "device", "memory_analyze.log", ["paddle.a*0.forward:\t300", "paddle.b*0*FP32.forward:\t8"])
    benchmark = log(
        tmp_path / "benchmark", "memory_analyze.log", ["paddle.a*0.forward:\t500", "paddle.c*0.forward:\t9"]
    )
    assert compare(device, benchmark, tmp_path / "out", "--memory") == 0
    assert lines(tmp_path / "out", "memory_checking_result") == [
        ["API Name", "Bench Memory Usage (B)", "Device Memory Usage (B)", "Memory Difference"],
        ["paddle.a*0.forward", "500", "300", "200.0"],
        ["paddle.b*0*FP32.forward", "", "8", ""],
        ["paddle.c*0.forward", "9", "", ""],
    ]
    told = "memory on both sides: 1; more in the first run: 0, less: 1; on one side: 2\n"
    assert told in capsys.readouterr().out


def test_runs_of_ours(pytester: pytest.Pytester, make_dump: DumpMaker, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    # So large that a busy machine finds a time above an empty call's.
    x = tensor(300, 300)
    make_dump(data={f"Torch.{name}.0.forward": forward(x, output=x) for name in ("sin", "exp")})
    pytester.runpytest("--probe-dump=dump.json", "--probe-mode=acc,time,mem", "--probe-out=run")
    (result,) = Path("run").glob("accuracy_checking_result_*.csv")
    told = ("--time", "--memory", f"--summary={result}")
    assert compare(Path("run"), Path("run"), tmp_path / "out", *told) == 0
    names = ["Torch.sin.0.forward", "Torch.exp.0.forward"]
    summary = lines(tmp_path / "out", "prof_summary")[1:]
    assert [(line[0], line[2], line[8]) for line in summary] == [(name, "[[300, 300]]", "pass") for name in names]
    for line in summary:
        assert (float(line[5]) > 0, line[6], float(line[7])) == (True, line[5], 1)
    assert [line[0] for line in lines(tmp_path / "out", "memory_checking_result")[1:]] == names


REFUSED = {
    "--memory": "it holds no memory",
    "--summary=x.csv": "add --time",
    "--time --summary=x.csv": "'x.csv' cannot be used; No such file or directory; give an accuracy_checking_result",
    "--time --summary=a/profile_analyze.log": "it has no column Forward Test Success; give an accuracy_checking_result",
    "--time --standard=msprobe": "leave it out",
}


@pytest.mark.parametrize("told", REFUSED)
def test_what_cannot_be_compared(
    tmp_path: Path, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    side = log(tmp_path / "a", "profile_analyze.log", [time("paddle.add*0.forward", 3.0)])
    (side / "memory_analyze.log").write_text("nothing\n")
    monkeypatch.chdir(tmp_path)
    assert compare(side, side, tmp_path / "out", *told.split()) == 2
    shown = capsys.readouterr()
    assert REFUSED[told] in shown.err
    assert shown.out == "" or "warning" in shown.out
    assert not (tmp_path / "out").exists()


def test_logs_of_unlike_dumps_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"paddle.{name}*0.forward" for name in ("add", "sin", "cos")]
    device = log(tmp_path / "device", "profile_analyze.log", [time(name, 3.0) for name in names])
    benchmark = log(tmp_path / "benchmark", "profile_analyze.log", [time(names[0], 3.0)])
    for side, found in ((device, names), (benchmark, names[2:])):
        log(side, "memory_analyze.log", [f"{name}:\t8" for name in found])
    for what in ("--time", "--memory"):
        assert compare(device, benchmark, tmp_path / "out", what) == 2
        told = f"compare {what}: '1 of 3 lines are on both sides' cannot be used; give two runs of the same dump"
        assert told in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def test_a_folder_without_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, words in ((tmp_path, "it holds no memory_analyze*.log and no results.jsonl"),
                          (tmp_path / "none", "it cannot be read: No such file or directory")):  # fmt: skip
        assert compare(folder, folder, tmp_path / "out", "--memory") == 2
        assert words in capsys.readouterr().err


def test_a_folder_of_several_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for dtype in ("FP32", "BF16"):
        side = log(tmp_path / "a", f"profile_analyze.{dtype}.log", [time("paddle.add*0.forward", 3.0)])
    assert compare(side, side, tmp_path / "out", "--time") == 2
    told = (
        "it holds 2 of profile_analyze*.log; give the file itself: profile_analyze.BF16.log, profile_analyze.FP32.log"
    )
    assert told in capsys.readouterr().err
    path = side / "profile_analyze.FP32.log"
    assert compare(path, path, tmp_path / "out", "--time") == 0
    assert compare(path, path, tmp_path / "out", "--time") == 2
    assert "it holds times_compared.csv already" in capsys.readouterr().err
