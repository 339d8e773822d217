"""--probe-html and `pytest-probe report`: the page about a run. tests/browser opens such pages."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from msgspec import structs, to_builtins

from pytest_probe.cli import main
from pytest_probe.reports.selected import SelectedItem, selected_in, write_items
from tests.acceptance.conftest import NAMES, PLANTED, DumpMaker, written
from tests.support.html_page import details, embedded, verdicts
from tests.support.made_results import RUN, made_result, write_run
from tests.support.running import by_case, ran, refusal

HTML = "--probe-html=page.html"
PAGE = Path("page.html")
OWN = """
    import torch

    def wrong(x):
        return torch.exp(x) * 1.01

    def test_mine(probe):
        probe.check(wrong, reference=torch.exp, inputs=[torch.ones(3, 4)])
"""
CHECK = "test_mine::wrong.0.forward"
PLANTED_VERDICTS = dict(zip(NAMES, ("error", "error", "warning", "pass", "pass", "skip"), strict=True)) | {
    CHECK: "error"
}


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest("--probe-dump=dump.json", "--probe-device=cpu", *args)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dump in which relu is called by a module, and in out/ and page.html a run in which relu fails,
    and a test of a project's own."""
    folder = tmp_path_factory.mktemp("whole")
    path = written(folder / "dump.json")
    path.with_name("construct.json").write_text(json.dumps({"Functional.relu.0.forward": "Module.net.Net.forward.0"}))
    (folder / "conftest.py").write_text(dedent(PLANTED))
    (folder / "test_own.py").write_text(dedent(OWN))
    args = ("test_own.py", "--probe-dump=dump.json", "--probe-device=cpu", HTML, "--probe-out=out", "-n1")
    assert ran(folder, *args).result.ret == 1
    return folder


@pytest.fixture
def finished(pytester: pytest.Pytester, whole: Path) -> None:
    """The test's own copy of it."""
    shutil.copytree(whole, pytester.path, dirs_exist_ok=True)


@pytest.mark.usefixtures("finished")
def test_the_page_has_the_verdicts_and_details_of_the_run() -> None:
    assert verdicts(PAGE) == PLANTED_VERDICTS
    found = details(PAGE)
    assert found.keys() == {*PLANTED_VERDICTS}  # so few that all are among the 200 worst
    relu = found["Functional.relu.0.forward"]
    assert relu["outputs"][0]["reason"] == "noise ratio 512 (limit 64)"
    assert relu["outputs"][0]["worst"] == [[[1, 2], 0.75, 0.25, 4096.0, 512.0]]
    shown = relu["details"]
    assert shown["command"] == "pytest 'dump.json::Functional.relu.0.forward' --probe-device=cpu"
    assert [row["name"] for row in shown["arguments"]] == ["input.0", "inplace"]
    assert (shown["stack"][0]["file"], shown["stack"][0]["line"]) == ("/home/user/train.py", 12)
    assert shown["plots"]["error_map"]["extents"] == [2, 3]
    linear = found["Functional.linear.0.backward"]["details"]["plots"]
    assert linear["noise_ratios"]["small"] + sum(linear["noise_ratios"]["counts"]) in (6, 12)
    assert found["Torch.load.0.forward"].keys() >= {"reason"}
    assert "details" not in found["Torch.load.0.forward"]


@pytest.mark.usefixtures("finished")
def test_the_place_of_a_call_and_its_module() -> None:
    rows = {row[1]: row for row in embedded(PAGE, "rows")}
    modules = embedded(PAGE, "names")["names"]["modules"]
    assert [rows[name][7] for name in NAMES] == [0, 0, 1, 1, 2, 3]
    assert [modules[rows[name][8]] for name in NAMES] == ["net", "net", "", "", "", ""]
    places = sorted((row["place"], row.get("module", "")) for row in by_case().values() if "place" in row)
    assert places[:3] == [(0, "net"), (0, "net"), (1, "")]


def test_no_details_are_made_where_nobody_asks(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makeconftest(
        """
        def pytest_runtest_logreport(report):
            found = getattr(report, "probe", {})
            assert "details" not in found and "place" not in found
        """
    )
    assert "INTERNALERROR" not in run(pytester).stdout.str()


@pytest.mark.usefixtures("finished")
def test_checks_of_a_test_of_ones_own() -> None:
    found = details(PAGE)[CHECK]
    assert found["details"]["command"].startswith("pytest 'test_own.py::test_mine'")
    assert found["details"]["plots"]["points"]["more"][0] == pytest.approx(0.01 * 2.718, rel=0.01)


def test_beside_a_benchmark_and_a_baseline(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    run(pytester, "--probe-out=before", "--probe-baseline=b.jsonl", "--probe-baseline-update")
    pytester.makeconftest(
        """
        import torch

        def pytest_probe_register(registry):
            registry.calls["Functional.relu"] = lambda x: torch.relu(x) + 1
        """
    )
    for number, given in enumerate(("--probe-benchmark=before", "--probe-baseline=b.jsonl")):
        page = Path(f"page{number}.html")
        run(pytester, given, f"--probe-html={page}")
        beside = embedded(page, "beside")
        assert (beside["kind"], beside["common"]) == (("benchmark", "baseline")[number], 6)
        rows = embedded(page, "rows")
        changed = {rows[move[0]][1]: move[1] for move in beside["moves"] if verdicts(page)[rows[move[0]][1]] == "error"}
        assert changed == {"Functional.relu.0.forward": "pass"}


def compared(*names: str, **other: Any) -> Any:
    """What the page has of a run of four cases beside one of cases of these names, of another seed or dump."""
    for folder, made, facts in (("out", "abcd", {}), ("two", names, other)):
        results = [structs.replace(made_result(place), id=f"dump.json::{name}") for place, name in enumerate(made)]
        Path(folder).mkdir()
        write_items(Path(folder), [SelectedItem(each.id, place, each.id) for place, each in enumerate(results)])
        write_run(Path(folder), iter(results), selected=to_builtins(selected_in(Path(folder))), **facts)
    assert main(["report", "out", "two", "-o", "page.html"]) == 0
    return embedded(PAGE, "beside")


@pytest.mark.usefixtures("pytester")
def test_report_compares_two_folders() -> None:
    beside = compared("a", "b", "c", settings={**RUN["settings"], "seed": 7})
    assert (beside["common"], beside["only_here"], beside["only_there"]) == (3, 1, 0)
    assert beside["notes"] == ["The seed differs: 0 here, 7 there, so the inputs are others."]


@pytest.mark.usefixtures("pytester")
def test_unlike_dumps_are_listed() -> None:
    beside = compared("x", dumps=[{"label": "dump.json", "path": "/dump.json", "digest": f"sha256:{64 * '1'}"}])
    assert (beside["alike"], beside["common"], beside["moves"]) == (False, 0, [])
    assert (beside["only_here"], beside["only_there"]) == (4, 1)
    assert "of other dumps" in beside["notes"][0]


@pytest.mark.usefixtures("pytester")
def test_a_fifo_is_not_replaced_by_a_page() -> None:
    os.mkfifo("pipe")
    assert main(["report", "out", "-o", "pipe"]) == 2
    assert Path("pipe").is_fifo()


def test_a_page_without_jinja2_is_a_usage_error(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dump()
    right = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name == "jinja2" else right(name, *rest)
    )
    said = refusal(pytester, "--probe-dump=dump.json", HTML)
    said.fnmatch_lines(["--probe-html: *pip install 'pytest-probe[[]report[]]'*"])
    assert not PAGE.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"schema": 1}', "its results are of schema 1, this version reads 2"),
        ("{}", "its run.json is none of pytest-probe's: Object missing required field `schema`"),
        ("{", "its run.json is none of pytest-probe's"),
        ('{"schema": 2, "seed": "x"}', "its run.json is none of pytest-probe's: Expected `int`, got `str`"),
        (None, "run.json cannot be read (No such file or directory)"),
    ],
)
def test_results_that_cannot_be_shown(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str], content: str | None, words: str
) -> None:
    Path("out").mkdir()
    if content is not None:
        Path("out/run.json").write_text(content)
    assert main(["report", "out", "-o", "page.html"]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.usefixtures("finished")
def test_results_that_are_damaged(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Path("out/results.jsonl").read_text()
    Path("out/results.jsonl").write_text(lines + '{"id": "torn')  # as a kill leaves it
    assert main(["report", "out", "-o", "page.html"]) == 0
    assert len(embedded(PAGE, "rows")) == len(PLANTED_VERDICTS)
    Path("out/results.jsonl").write_text('{"id": 7}\n')
    assert main(["report", "out", "-o", "page.html"]) == 2
    assert "results.jsonl:1: pytest-probe does not write this" in capsys.readouterr().err
    Path("out/results.jsonl").unlink()
    assert main(["report", "out", "-o", "page.html"]) == 2
    assert "results.jsonl cannot be read" in capsys.readouterr().err


@pytest.mark.usefixtures("finished")
def test_a_page_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "out", "-o", "none/page.html"]) == 2
    assert "it cannot be written: No such file or directory" in capsys.readouterr().err
