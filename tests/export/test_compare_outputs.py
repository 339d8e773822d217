"""`pytest-probe compare --direct`: two folders of outputs, without a reference."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_probe.cli import main
from tests.acceptance.conftest import DumpMaker, forward, tensor
from tests.support import csv_cells
from tests.support.paddle_dumps import unpack, unpack_outputs, write_outputs

X = np.linspace(-2, 2, 200, dtype=np.float32)
Sides = tuple[Path, Path]
Row = Mapping[str, str]


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return tmp_path / "device", tmp_path / "benchmark"


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_outputs(tmp_path_factory.mktemp("outputs"))


def compare(device: Path, benchmark: Path, out: Path, *options: str, standard: str = "paddleapex") -> int:
    return main(
        ["compare", str(device), str(benchmark), "-o", str(out), "--direct", f"--standard={standard}", *options]
    )


def details(folder: Path) -> dict[str, Row]:
    return {row["API Name"]: row for row in csv_cells.rows(folder, "accuracy_checking_details")}


def results(folder: Path) -> dict[str, list[str]]:
    return {name: rest for name, *rest in csv_cells.lines(folder, "accuracy_checking_result")[1:]}


@pytest.mark.parametrize("device", ["device", "device_bf16", "bench_bf16"])
def test_the_tools_own_files_cell_by_cell(gpt: Path, tmp_path: Path, device: str) -> None:
    status = compare(gpt / device, gpt / "bench", tmp_path)
    assert status == (device != "bench_bf16")
    theirs = gpt / f"compare_bench_vs_{device}"
    for kind in ("details", "result"):
        mine, wanted = (csv_cells.lines(folder, f"accuracy_checking_{kind}") for folder in (tmp_path, theirs))
        assert len(wanted) > 40
        assert list(csv_cells.unlike(mine, wanted)) == []
        with next(tmp_path.glob(f"*{kind}*")).open("rb") as file:
            assert file.read(3) == b"\xef\xbb\xbf"


# A device's outputs, the benchmark's, the statuses by `paddleapex` and by `paddleapex-documented`, and how the first
# row's message begins.
WRONG, A_BIT_OFF = X * np.float32(1.5), X * np.float32(1.0006)
UNLIKE: dict[str, tuple[Any, Any, str, str, str]] = {
    "a later warning": ([WRONG, A_BIT_OFF], [X, X], "warning", "error", ""),
    "a later error": ([A_BIT_OFF, WRONG], [X, X], "error", "error", ""),
    "fewer": ([X], [X, X], "SKIP", "error", "1 output, the benchmark has 2"),
    "a list": ([X, X], X, "error", "error", "a list of 2, the benchmark has one output"),
    "no list": (X, [X, X], "SKIP", "error", "one output, the benchmark has a list of 2"),
    "shape": (X[:100], X, "error", "error", ""),
    "integers": (X.astype(np.int64), X, "error", "error", ""),
    "short integers": (np.arange(4, dtype=np.int16), np.arange(4, dtype=np.int16), "error", "error", ""),
    "complex": (X + 1j, X + 1j, "error", "error", "PaddleAPEX compares no complex64"),
    "python type": (3, X, "error", "error", ""),
    "a number": (3, 4, "error", "error", ""),
    "equal numbers": (3, 3, "pass", "pass", ""),
    "a scalar of NumPy's": (
        np.float32(3),
        X[:1].reshape(()),
        "error",
        "error",
        "a scalar of NumPy's, the benchmark has a ",
    ),
    "no output": (None, X, "error", "error", "None, the benchmark has a tensor"),
    "none": (None, None, "pass", "pass", "None on both sides"),
    "empty": (X[:0], X[:0], "SKIP", "SKIP", ""),
    "no integers": (np.zeros(0, np.int64), np.zeros(0, np.int64), "error", "error", ""),
    "a list in a list": ([[1], X], [[2], X], "pass", "pass", "a list among the outputs is not compared"),
    "nan": (np.where(X > 1, np.nan, X).astype(np.float32), X, "error", "error", ""),
}


@pytest.mark.parametrize("standard", ["paddleapex", "paddleapex-documented"])
@pytest.mark.parametrize("name", UNLIKE)
def test_where_the_tool_and_its_documents_differ(sides: Sides, tmp_path: Path, name: str, standard: str) -> None:
    device, benchmark, tool, documented, said = UNLIKE[name]
    for side, outputs in zip(sides, (device, benchmark), strict=True):
        write_outputs(side, "paddle.exp*0", outputs)
    status = compare(*sides, tmp_path / "out", standard=standard)
    wanted = tool if standard == "paddleapex" else documented
    found = results(tmp_path / "out")["paddle.exp*0"]
    assert found[:2] == [wanted, " "]
    assert (len(found) == 3) == (wanted == "SKIP")
    rows = details(tmp_path / "out")
    assert status == any(row["Status"] == "error" for row in rows.values())
    if standard == "paddleapex":
        assert rows["paddle.exp*0.forward.output.0"]["Message"].startswith(said)


def test_lists_fill_columns_where_names_are_found(sides: Sides, tmp_path: Path) -> None:
    for side, factor in zip(sides, (1.0001, 1), strict=True):
        for name in ("paddle.Tensor.__add__*0", "paddle.nn.functional.relu*0", "paddle.exp*0"):
            write_outputs(side, name, X * np.float32(factor))
    names = ["相对误差错误率", "二进制一致错误率", "均方根误差"]
    filled = {}
    for standard in ("paddleapex", "paddleapex-documented"):
        compare(*sides, tmp_path / standard, standard=standard)
        found = details(tmp_path / standard)
        filled[standard] = [[name for name in names if row[name] != " "] for row in found.values()]
    assert filled["paddleapex"] == [["均方根误差"]] * 3
    assert filled["paddleapex-documented"] == [["相对误差错误率"], ["均方根误差"], ["二进制一致错误率"]]


def test_dropout_is_judged_by_its_zeros(sides: Sides, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, start in zip(sides, (0, 1), strict=True):
        mask = (np.arange(200) % 2 == start).astype(np.float32)
        write_outputs(side, "paddle.nn.functional.dropout*0", mask)
        write_outputs(side, "paddle.nn.functional.dropout*0", [mask * start, X], backward=True)
    assert compare(*sides, tmp_path / "out") == 1
    assert results(tmp_path / "out") == {"paddle.nn.functional.dropout*0": ["pass", "error"]}
    assert details(tmp_path / "out") == {}
    shown = capsys.readouterr().out
    assert "1 call, judged by paddleapex, output by output: 1 pass, 1 error\n" in shown
    assert (
        "  paddle.nn.functional.dropout*0.backward: more or fewer zeros, by 50 % of the elements; must be below 10 %"
        in shown
    )


def test_what_one_side_alone_has(sides: Sides, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in sides:
        for number in range(2):
            write_outputs(side, f"paddle.exp*{number}", X)
    device, benchmark = sides
    write_outputs(device, "paddle.sin*0", X)
    write_outputs(benchmark, "paddle.cos*0", X)
    write_outputs(device, "paddle.exp*0", [X], backward=True)
    assert compare(device, benchmark, tmp_path / "out") == 0
    alone = "only in the {}'s outputs"
    assert results(tmp_path / "out") == {
        "paddle.exp*0": ["pass", "SKIP", alone.format("device")],
        "paddle.exp*1": ["pass", " "],
        "paddle.sin*0": ["SKIP", " ", alone.format("device")],
        "paddle.cos*0": ["SKIP", " ", alone.format("benchmark")],
    }
    assert "SKIP: 3" in capsys.readouterr().out


def test_an_input_with_stop_gradient_has_no_place_on_one_side(sides: Sides, tmp_path: Path) -> None:
    for side, gradients in zip(sides, ([X, None], [X]), strict=True):
        write_outputs(side, "paddle.multiply*0", X)
        write_outputs(side, "paddle.multiply*0", gradients, backward=True)
    assert compare(*sides, tmp_path / "out", standard="msprobe") == 0
    assert results(tmp_path / "out") == {"paddle.multiply*0": ["pass", "pass"]}
    write_outputs(sides[1], "paddle.multiply*0", [X * 2], backward=True)
    assert compare(*sides, tmp_path / "wrong", standard="msprobe") == 1
    assert results(tmp_path / "wrong") == {"paddle.multiply*0": ["pass", "error"]}


def test_files_that_cannot_be_read_are_named(sides: Sides, tmp_path: Path) -> None:
    for side in sides:
        for name in ("exp", "sin", "cos", "tan"):
            write_outputs(side, f"paddle.{name}*0", X)
    device = sides[0] / "output"
    (device / "paddle.sin*0").write_bytes(pickle.dumps([False, eval], protocol=4))
    (device / "paddle.cos*0").write_bytes((device / "paddle.cos*0").read_bytes()[:100])
    (device / "paddle.tan*0").write_bytes(pickle.dumps([False, ("a", np.array([None]))], protocol=4))
    assert compare(*sides, tmp_path / "out") == 0
    found = results(tmp_path / "out")
    assert [found[f"paddle.{name}*0"][0] for name in ("exp", "sin", "cos", "tan")] == ["pass", "SKIP", "SKIP", "SKIP"]
    assert "it names builtins.eval" in found["paddle.sin*0"][2]


def refused(capsys: pytest.CaptureFixture[str], words: str) -> bool:
    return words in capsys.readouterr().err


def test_folders_that_cannot_be_compared(sides: Sides, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device, benchmark = sides
    device.mkdir()
    write_outputs(benchmark, "paddle.exp*0", X)
    out = tmp_path / "out"
    assert compare(device, benchmark, out) == 2
    assert refused(capsys, "it holds no output/ and no results.jsonl")
    for dtype in ("FP32", "BF16"):
        write_outputs(device / dtype, "paddle.exp*0", X)
    assert compare(device, benchmark, out) == 2
    assert refused(capsys, "say which with --dtype=BF16|FP32")
    assert compare(device, benchmark, out, "--dtype=FP16") == 2
    assert refused(capsys, "it holds no output/ of FP16")
    assert compare(device, benchmark, out, standard="mindspore") == 2
    assert refused(capsys, "--standard")
    for name in ("sin", "cos"):
        write_outputs(benchmark, f"paddle.{name}*0", X)
    assert compare(device, benchmark, out, "--dtype=FP32") == 2
    assert refused(capsys, "1 of 3 calls are on both sides")
    assert not out.exists()
    (benchmark / "output" / "paddle.cos*0").unlink()
    assert compare(device, benchmark, out, "--dtype=bfloat16") == 0


def test_files_of_the_same_name_are_kept(
    sides: Sides, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Then:
        @staticmethod
        def now() -> Any:
            return Then

        @staticmethod
        def strftime(_: str) -> str:
            return "20261121093000"

    monkeypatch.setattr("pytest_probe.features.benchmark.cli.datetime", Then)
    for side in sides:
        write_outputs(side, "paddle.exp*0", X)
    assert compare(*sides, tmp_path) == 0
    before = {path: path.read_bytes() for path in tmp_path.glob("*.csv")}
    assert compare(*sides, tmp_path) == 2
    assert refused(capsys, "it holds accuracy_checking_result_20261121093000.csv already")
    assert {path: path.read_bytes() for path in tmp_path.glob("*.csv")} == before


NEAR = np.nextafter(X, np.float32(9))
LIKE_OUTPUTS = {
    "equal": (X, X, "pass", "pass", "pass"),
    "a bit": (NEAR, X, "pass", "error", "pass"),
    "wrong": (WRONG, X, "error", "error", "error"),
    "zeros": (-np.zeros(3, np.float32), np.zeros(3, np.float32), "pass", "error", "pass"),
    "nan": (X * np.nan, X * np.nan, "pass", "pass", "pass"),
    "integers": (np.array([1, 2]), np.array([1, 3]), "error", "error", "error"),
    "16 bit": (X.astype(np.float16), X, "pass", "error", "pass"),
    "integers and floats": (np.arange(4), np.arange(4.0), "error", "error", "error"),
}


@pytest.mark.parametrize("name", LIKE_OUTPUTS)
def test_rules_without_a_tool(sides: Sides, tmp_path: Path, name: str) -> None:
    for side, outputs in zip(sides, LIKE_OUTPUTS[name], strict=False):
        write_outputs(side, "paddle.exp*0", outputs)
    for standard, wanted in zip(("close", "exact", "msprobe"), LIKE_OUTPUTS[name][2:], strict=True):
        compare(*sides, tmp_path / standard, standard=standard)
        assert (standard, results(tmp_path / standard)["paddle.exp*0"][0]) == (standard, wanted)


def test_a_name_stays_in_its_line(sides: Sides, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, outputs in zip(sides, (WRONG, X), strict=True):
        write_outputs(side, "paddle.a\x1b[2J\nb*0", outputs)
    assert compare(*sides, tmp_path / "out") == 1
    assert "  paddle.a\\x1b[2J\\nb*0.forward.output.0: " in capsys.readouterr().out


REASONS = {
    "exact": "199 of 200 elements have other bits",
    "paddleapex": "50 % of the elements are within 0.001, must be more than 99.9 %",
    "msprobe": "50 % of the elements are within 0.001, must be more than 99.9 %",
}


@pytest.mark.parametrize("standard", REASONS)
def test_messages_count_elements(sides: Sides, tmp_path: Path, standard: str) -> None:
    """Half of the elements are 0.01 % too large, the others 1 %."""
    near, far = X[1:] * np.float32(1.0001), X[1:] * np.float32(1.01)
    wrong = np.concatenate([X[:1], np.where(np.arange(199) % 2 == 0, far, near)])
    for side, outputs in zip(sides, (wrong, X), strict=True):
        write_outputs(side, "paddle.exp*0", outputs)
    compare(*sides, tmp_path / "out", standard=standard)
    assert details(tmp_path / "out")["paddle.exp*0.forward.output.0"]["Message"] == REASONS[standard]


CONFTEST = """
    import torch

    def pytest_probe_register(registry):
        registry.calls["Torch.exp"] = lambda x: torch.exp(x) * 1.01
"""


def test_runs_of_two_builds_and_dtypes(
    pytester: pytest.Pytester, make_dump: DumpMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In float32, in both dtypes, and in bfloat16 of a build whose exp is wrong."""
    pytest.importorskip("torch")
    entry = forward(tensor(20, 20), output=tensor(20, 20))
    make_dump(data={"Torch.exp.0.forward": entry, "Torch.sin.0.forward": entry})
    for name, dtypes in (("wide", "recorded"), ("both", "recorded,bfloat16"), ("wrong", "bfloat16")):
        if name == "wrong":
            pytester.makeconftest(CONFTEST)
        pytester.runpytest(
            "--probe-dump=dump.json", "--probe-save=all", f"--probe-out={name}", f"--probe-dtype={dtypes}"
        )
    capsys.readouterr()
    wide, both, wrong = Path("wide"), Path("both"), Path("wrong")
    compare(wrong, wide, tmp_path / "narrow")
    assert results(tmp_path / "narrow")["Torch.sin.0"][0] in ("pass", "warning")
    cells = details(tmp_path / "narrow")["Torch.sin.0.forward.output.0"]
    assert (cells["DEVICE Dtype"], cells["Bench Dtype"]) == ("torch.bfloat16", "torch.float32")
    assert float(cells["最大绝对误差"]) > 0
    assert compare(wrong, both, tmp_path / "chosen", "--dtype=BF16", standard="exact") == 1
    assert results(tmp_path / "chosen") == {"Torch.exp.0": ["error", " "], "Torch.sin.0": ["pass", " "]}
    cells = details(tmp_path / "chosen")["Torch.exp.0.forward.output.0"]
    assert (cells["DEVICE Dtype"], cells["Shape"]) == ("torch.bfloat16", "(20, 20)")
    assert compare(both, both, tmp_path / "all", standard="exact") == 0
    names = {f"Torch.{name}.0{dtype}" for name in ("exp", "sin") for dtype in ("", "[bfloat16]")}
    assert set(results(tmp_path / "all")) == names
    assert compare(both, wide, tmp_path / "none", "--dtype=FP16") == 2
    assert refused(capsys, "it holds no run in FP16, but in bfloat16, float32")
    (wide / "saved/dump.json/Torch.sin.0.forward.pt").unlink()
    compare(wide, wrong, tmp_path / "again", standard="close")
    assert results(tmp_path / "again")["Torch.sin.0"][0] == "SKIP"


def test_a_folder_of_paddleapex_beside_a_run_of_ours(
    pytester: pytest.Pytester, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("paddle")
    unpack("gpt_random", pytester.path)
    run = ("--probe-dump=forward_rank0_all.json", "--probe-api=paddle.sqrt", "--probe-device=cpu")
    pytester.runpytest(*run, "--probe-out=unsaved")
    pytester.runpytest(*run, "--probe-out=ours", "--probe-save=all")
    first = json.loads(Path("ours", "results.jsonl").read_text().splitlines()[0])
    assert first["api"] == "paddle.sqrt"
    write_outputs(tmp_path / "theirs", "paddle.sqrt*0", np.full(first["outputs"][0]["shape"], 7, np.float32))
    capsys.readouterr()
    assert compare(Path("unsaved"), tmp_path / "theirs", tmp_path / "out") == 2
    assert refused(capsys, "run with --probe-save=all")
    assert compare(tmp_path / "theirs", Path("ours"), tmp_path / "out") == 1
    (cells,) = details(tmp_path / "out").values()
    assert (cells["API Name"], cells["DEVICE Dtype"]) == ("paddle.sqrt*0.forward.output.0", "paddle.float32")
