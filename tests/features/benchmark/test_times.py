from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_probe.cli import main
from pytest_probe.features.benchmark.times import ComparedTime, compare, lines, read_times
from pytest_probe.model.measurement import CaseTime
from pytest_probe.reports.results_file import lines_of
from tests.support.made_results import made_result

RUN = {"kind": "run", "nested": False, "asynchronous": False, "backward": False}


def program(folder: Path, *rows: dict[str, Any], **way: bool) -> Path:
    """What `pytest-probe time -o` writes, as far as it is read."""
    folder.mkdir()
    section = {"kind": "section", "section": ""}
    text = "".join(json.dumps(line) + "\n" for line in (RUN | way, section, *rows))
    (folder / "time.jsonl").write_text(text)
    return folder


def row(api: str, p50: float | None, calls: int = 10, **more: Any) -> dict[str, Any]:
    one = {"kind": "api", "section": "", "api": api, "direction": "forward", "shapes": None}
    return one | {"calls": calls, "own": 5.0 * calls, "p50": p50} | more


def cases(folder: Path, **times: float | None) -> Path:
    """What --probe-mode=time writes, as far as it is read."""
    folder.mkdir()
    found = []
    for entry, median in times.items():
        api, dtype = entry.split("__")
        time = CaseTime(note="too short") if median is None else CaseTime(median_us=median)
        name = f"dump.json::Torch.{api}.0.forward[{dtype}]"
        one = replace(made_result(0, details=False), id=name, api=f"Torch.{api}", direction="forward", time=time)
        found.append(one)
    (folder / "results.jsonl").write_text(lines_of(found))
    return folder


def test_calls_of_programs_count_with_their_median_and_the_largest_loss_comes_first(tmp_path: Path) -> None:
    here = program(tmp_path / "a", row("Torch.exp", 3.0), row("Torch.mm", 50.0, calls=4), row("Torch.sin", 1.0))
    there = program(tmp_path / "b", row("Torch.exp", 2.0, calls=7), row("Torch.mm", 40.0), row("Torch.sin", 2.0))
    found = compare(read_times(here), read_times(there))
    assert found == [
        ComparedTime("Torch.mm", "forward", 4, 200.0, 160.0),
        ComparedTime("Torch.exp", "forward", 10, 30.0, 20.0),
        ComparedTime("Torch.sin", "forward", 10, 10.0, 20.0),
    ]
    assert [(one.loss, one.ratio) for one in found] == [(40.0, 1.25), (10.0, 1.5), (-10.0, 0.5)]


def test_a_single_call_has_its_own_time_and_rows_of_shapes_and_sections_do_not_count_twice(tmp_path: Path) -> None:
    rows = row("Torch.exp", None, calls=1), row("Torch.exp", 9.0, shapes="[2]"), row("Torch.exp", 9.0, section="step")
    times = read_times(program(tmp_path / "a", *rows, row("Torch.sin", 1.0, calls=0)))
    assert [(key, one[""].microseconds) for key, one in times.by_api.items()] == [(("Torch.exp", "forward"), 5.0)]


def test_cases_pair_by_record_and_dtype(tmp_path: Path) -> None:
    here = cases(tmp_path / "a", exp__float32=3.0, exp__float16=4.0, sin__float32=1.0, cos__float32=None)
    there = cases(tmp_path / "b", exp__float32=2.0, exp__bfloat16=1.0, cos__float32=2.0)
    times = read_times(here / "results.jsonl"), read_times(there)
    assert compare(*times) == [ComparedTime("Torch.exp", "forward", 1, 3.0, 2.0)]
    assert list(lines(compare(*times), *times)) == [
        "timed on both sides: 1 case of 1 API, 3.00 us in the first run, 2.00 us in the second (1.50 times)",
        "    loss  ratio    first   second  cases  API",
        "+1.00 us   1.50  3.00 us  2.00 us      1  Torch.exp",
        "only in the first run: Torch.sin",
        "only in the second run: Torch.cos",
    ]


def test_the_command_writes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = program(tmp_path / "a", row("Torch.exp", 3.0)), program(tmp_path / "b", row("Torch.exp", 2.0))
    assert main(["compare", str(here), str(there), "--time", "-o", str(tmp_path / "out")]) == 0
    assert "+10.0 us   1.50  30.0 us  20.0 us     10  Torch.exp" in capsys.readouterr().out
    with (tmp_path / "out/times_compared.csv").open(encoding="utf-8-sig", newline="") as file:
        (cells,) = csv.DictReader(file)
    assert list(cells.values()) == ["Torch.exp", "forward", "10", "30.0", "20.0", "1.5", "10"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "it cannot be read (No such file or directory); give folders that"),
        ("cases", "one is of a program, the other of cases"),
        ("nested", "'nested: false, true' cannot be used; time both programs with the same options"),
        ("damaged", "time.jsonl:1: "),
        ("empty", "it holds no times; give folders that"),
        ("nothing", "it holds no time.jsonl and no results.jsonl; give folders that"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    here = program(tmp_path / "a", row("Torch.exp", 3.0))
    cases(tmp_path / "cases", exp__float32=1.0)
    program(tmp_path / "nested", row("Torch.exp", 3.0), nested=True)
    program(tmp_path / "empty")
    (tmp_path / "nothing").mkdir()
    (program(tmp_path / "damaged") / "time.jsonl").write_text("{")
    assert main(["compare", str(here), str(tmp_path / name), "--time"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--time", "--standard=msprobe"], "--standard: 'msprobe' cannot be used; --time judges nothing; leave it out"),
        (["--time", "--direct"], "--direct: '--time' cannot be used; one compares outputs, the other"),
        (["--dtype=FP32", "-o", "x"], "--dtype: 'FP32' cannot be used; it chooses a folder of outputs: add --direct"),
        (["--standard=close", "-o", "x"], "it compares outputs without a reference: add --direct"),
        (["--memory"], "--out is missing; give a folder for the files"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    here = str(program(tmp_path / "a", row("Torch.exp", 3.0)))
    assert main(["compare", here, here, *args]) == 2
    assert message in capsys.readouterr().err
