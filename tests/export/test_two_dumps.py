"""The tables that other tools write of two dumps: ptdbg_ascend's own, cell by cell, and those of other dumps."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.support import ptdbg_dumps
from tests.support.running import ran
from tests.support.two_sides import record

# What the tool compared: the standard that judges by the rule of its release, and our table.
CASES = {
    "compare-2.3": ("ptdbg-2.3", "compare_result_ptdbg_2.3.csv"),
    "compare-4.0": ("ptdbg", "compare_result_ptdbg_4.0.csv"),
    "compare-4.0-statistics": ("ptdbg", "compare_result_ptdbg_4.0.csv"),
}


def run(pytester: pytest.Pytester, a: Path | str, b: Path | str, *args: str) -> pytest.RunResult:
    return pytester.runpytest(f"--probe-dump={a}", f"--probe-against={b}", "--probe-out=out", *args)


def table(path: Path) -> list[dict[str, str]]:
    csv.field_size_limit(1 << 24)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("case", "workers"), [(case, "2" if case == "compare-4.0" else "0") for case in CASES])
def test_a_table_and_its_verdicts_are_those_of_the_tool(pytester: pytest.Pytester, case: str, workers: str) -> None:
    ptdbg_dumps.unpack_case(case, Path("case"))
    standard, name = CASES[case]
    run(pytester, "case/dev", "case/ref", f"--probe-standard={standard}", "-n", workers)
    theirs = next(Path("case").glob("compare*/compare_result.csv"))
    assert table(Path("out", name)) == table(theirs)
    assert Path("out", name).read_text().splitlines()[0] == theirs.read_text().splitlines()[0]
    advice = theirs.with_name("advisor.txt")
    assert advice.exists() == Path("out/advisor.txt").exists() == (case != "compare-4.0-statistics")
    if not advice.exists():
        return
    assert Path("out/advisor.txt").read_text() == advice.read_text()
    wrong = {
        row["NPU Name"] for row in table(theirs)
        if row["Accuracy Reached or Not"] == "No" and "output" in row["NPU Name"]
    }  # fmt: skip
    found = set()
    for result in map(json.loads, Path("out/results.jsonl").read_text().splitlines()):
        named = {row["a"]["place"]: row["a"]["name"] for row in result["answers"][0]["pair"]["rows"]}
        entry = result["id"].rpartition("::")[2]
        for output in result["outputs"]:
            if output["verdict"] == "error":
                found.add(named[f"{entry}.{output['name'].removeprefix('grad.')}"])
    assert found == wrong
    assert bool(wrong) == (case == "compare-4.0")


X = np.arange(6, dtype=np.float32).reshape(2, 3)
RELU = ptdbg_dumps.values("Torch_relu_0", [X], X)
UNLIKE = [
    (X[:1], "Unmatched", "No bench data matched."),
    (X.astype(np.float64), "Yes", "No bench data matched."),
    (X.astype(np.float16), "Yes", ""),
]
OLD, NEW, OURS = (f"compare_result_{tool}.csv" for tool in ("ptdbg_2.3", "ptdbg_4.0", "msprobe"))


def two_dumps(folder: Path, name: str, a: dict[str, object], b: dict[str, object], stored: bool = True) -> None:
    for side, calls in (("A", a), ("B", b)):
        ptdbg_dumps.write(folder / side / name, calls, stored=stored)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one run writes of several pairs of dumps: a folder for each."""
    folder = tmp_path_factory.mktemp("pairs")
    relus = [ptdbg_dumps.values(f"Torch_relu_{call}", [X], X) for call in range(6)]
    calls = {name: value for relu in relus for name, value in relu.items()}
    others = [ptdbg_dumps.values(f"Torch_relu_{call}", [X], UNLIKE[call][0]) for call in range(3)]
    exp = ptdbg_dumps.values("Torch_exp_0", [X, 2], np.exp(X))
    two_dumps(folder, "unlike", relus[0] | relus[1] | relus[2] | exp, others[0] | others[1] | others[2])
    norm = ptdbg_dumps.values("Functional_batch_norm_0", [X, X[0]], X)
    wrong = ptdbg_dumps.values("Functional_batch_norm_0", [X, -X[0]], X)
    two_dumps(folder, "wrong", wrong | ptdbg_dumps.values("Torch_relu_0", [X], -X), norm | RELU)
    larger, mul = (ptdbg_dumps.values("Torch_mul_0", [X], X * np.float32(factor)) for factor in (4.0, 1.0))
    two_dumps(folder, "statistics", larger, mul, stored=False)
    two_dumps(folder, "unreadable", calls, calls)
    for call, file in enumerate(unreadable(folder)):
        file.unlink()
        if call > 1:
            file.write_bytes(b"" if call < 4 else b"\x93NUMPY\x01\x00\xff\xff")
    found = ran(folder, "--probe-dump=A", "--probe-against=B", "--probe-out=out", "--probe-standard=ptdbg")
    found.result.stdout.no_fnmatch_line("*Traceback*")
    assert [row["verdict"] for row in found.rows if "unreadable" in row["id"]] == ["skip"] * 6
    return folder / "out"


def unreadable(folder: Path) -> list[Path]:
    """Of either side: one that is gone, an empty one, and one that is cut."""
    sides = enumerate("ABABAB")
    return [folder / side / f"unreadable/dump/Torch_relu_{call}_forward_output.npy" for call, side in sides]


def cells(file: Path, row: str, *columns: str) -> tuple[str, ...]:
    found = next(each for each in table(file) if each["NPU Name"] == row)
    return tuple(found[column] for column in columns)


def test_what_has_no_counterpart_or_another_structure(out: Path) -> None:
    old, new, ours = (next(out.glob(f"unlike/**/{name}")) for name in (OLD, NEW, OURS))
    columns = ("Bench Name", "Bench Tensor Dtype", "Bench Tensor Shape", "Bench max", "Cosine",
               "Accuracy Reached or Not", "Err_message")  # fmt: skip
    for file in (old, new):
        found = cells(file, "Torch_exp_0_forward_input.0", *columns)
        assert found == (*["Nan"] * 6, "No bench data matched.")
    assert len(table(new)) == 9
    found = cells(ours, "Torch.exp.0.forward.output.0", "Bench Name", "Cosine", "Bench max")
    assert found == ("N/A", "None", "N/A")
    for call, (_, older, newer) in enumerate(UNLIKE):
        name = f"Torch_relu_{call}_forward_output"
        assert cells(old, name, "Accuracy Reached or Not") == (older,)
        assert cells(new, name, "Err_message") == (newer,)


def test_files_that_cannot_be_read(out: Path) -> None:
    old, new = (next(out.glob(f"unreadable/**/{name}")) for name in (OLD, NEW))
    for call, file in enumerate(unreadable(out.parent)):
        for written, said in ((old, f"Dump file:{file} not found"), (new, f"Dump file: {file} not found.")):
            assert cells(written, file.stem, "Cosine", "Err_message") == ("Nan", said)
        assert cells(new, f"Torch_relu_{call}_forward_input.0", "Cosine", "Err_message") == ("1.0", "")


def test_advice_on_the_first_wrong_row(out: Path) -> None:
    lines = next(out.glob("wrong/**/advisor.txt")).read_text().splitlines()
    assert lines[:2] == ["Line: 3", "Suspect Nodes: Functional_batch_norm_0_forward_input.1"]
    assert lines[2].startswith("Expert Advice: Torch API batch_norm input not fixed")


def test_release_2_3_passes_over_batch_norm(pytester: pytest.Pytester, out: Path) -> None:
    a, b = (out.parent / side / "wrong/dump.pkl" for side in "AB")
    run(pytester, a, b, "--probe-standard=ptdbg-2.3")
    assert Path("out/advisor.txt").read_text().splitlines() == [
        "Line: 6",
        "Suspect Nodes: Torch_relu_0_forward_output",
        "Expert Advice: This is a forward API computation error. Check the computation implementation.",
    ]


def test_dumps_of_our_own_have_tables_in_the_order_of_calls(pytester: pytest.Pytester) -> None:
    record(Path("A"))
    record(Path("B"))
    run(pytester, "A", "B", "-n2")
    rows = table(Path("out/compare_result_ptdbg_4.0.csv"))
    assert [row["NPU Name"] for row in rows] == [row["Bench Name"] for row in rows]
    places = [row["NPU Name"] for row in table(Path("out/compare_result_msprobe.csv"))]
    entries = [*dict.fromkeys(re.sub(r"(ward)\..*", r"\1", place) for place in places)]
    recorded = [*json.loads(next(Path("A").rglob("dump.json")).read_text())["data"]]
    forwards = [entry for entry in recorded if entry.endswith(".forward")]
    assert entries[: len(forwards)] == forwards
    assert sorted(entries) == sorted(recorded)
    assert {row["MaxAbsErr"] for row in rows} == {"0.000000000000"}
    assert {row["NPU Tensor Dtype"] for row in rows} >= {"torch.float32", "<class 'int'>"}
    written = json.loads(Path("out/run.json").read_text())["tables"]
    assert {"advisor.txt", "compare_result_msprobe.csv", "compare_result_ptdbg_2.3.csv"} <= set(written)


def test_dumps_of_statistics_have_their_differences(out: Path) -> None:
    new, ours = (next(out.glob(f"statistics/**/{name}")) for name in (NEW, OURS))
    assert cells(new, "Torch_mul_0_forward_output", "Max diff", "Min diff") == ("15.0", "0.0")
    columns = ("Max diff", "MaxRelativeErr", "MinRelativeErr", "Result", "Err_message")
    found = cells(ours, "Torch.mul.0.forward.output.0", *columns)
    assert found == ("15.0", "300.0%", "N/A", "Warning", "Need double check api accuracy.")
    assert not [*new.parent.glob("*2.3.csv"), *new.parent.glob("advisor.txt")]


def test_results_carry_no_rows_that_nobody_writes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    two_dumps(pytester.path, "", RELU, RELU)

    def rows_of(*args: object) -> None:
        raise AssertionError("rows of no table")

    monkeypatch.setattr("pytest_probe.features.against.compare.rows_of", rows_of)
    result = pytester.runpytest_inprocess("--probe-dump=A/dump.pkl", "--probe-against=B/dump.pkl")
    result.assert_outcomes(passed=1)
