"""What a CI job sees of a run: GitHub's marks and page, summary.md, other plugins' reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_probe.cli import main
from pytest_probe.features.gate.baseline import write
from pytest_probe.features.markdown import Failing, error_commands, page
from pytest_probe.reports.tally import Tally
from tests.acceptance.conftest import USER_SCRIPT, DumpMaker
from tests.features.gate.test_baseline import HEADER, case, cases
from tests.features.gate.test_gate import BASELINE, CONFTEST, DATA, UPDATE, run
from tests.support.other_plugins import Ran, run_beside


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ERROR", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("planted")
def test_github_marks_the_line_of_the_call(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dump()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "page.md")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(Path(USER_SCRIPT).parent))
    Path("page.md").write_text("before\n")
    result = run(pytester, "-n1")
    assert result.ret == 1
    marks = [line for line in result.outlines if line.startswith("::error ")]
    assert marks == [
        f"::error file=train.py,line=12,title=dump.json%3A%3AFunctional.relu.0.{direction}::output.0: noise ratio 512 "
        "(limit 64)"
        for direction in ("forward", "backward")
    ]
    page = Path("page.md").read_text()
    assert page.startswith("before\n## pytest-probe: 2 cases failed\n")
    assert (
        f"| `dump.json::Functional.relu.0.forward` | output.0: noise ratio 512 (limit 64) | `{USER_SCRIPT}:12` |"
        in page
    )


def test_markdown_lists_the_failed_cases(planted_run: Ran) -> None:
    page = (planted_run.folder / "out/summary.md").read_text()
    assert page.splitlines()[:5] == [
        "## pytest-probe: 2 cases failed",
        "",
        "- 1 error: noise ratio 512 (limit 64), Functional.relu, at train.py:12 (record relu.0.forward)",
        "- 1 error: noise ratio 512 (limit 64), Functional.relu, at train.py:12 (record relu.0.backward)",
        "- 6 cases, 2 pass, 1 warning, 2 error, 1 skip",
    ]


def test_other_reports_have_the_gate(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = ("html", "metadata", "pytest_reportlog", "allure_pytest", "rerunfailures")
    make_dump(data=DATA)
    pytester.makeconftest(CONFTEST)
    run(pytester, BASELINE, UPDATE).assert_outcomes(passed=3)
    monkeypatch.setenv("ERROR", "1")
    shown = ("--html=report.html", "--report-log=log.jsonl", "--alluredir=allure", "--reruns=1")
    ran = run_beside(pytester, monkeypatch, plugins, BASELINE, *shown, workers=1)
    ran.result.stdout.fnmatch_lines(["gate: 1 worse, 2 as before *"])
    assert ran.summary.items() >= {"failed": 1, "passed": 2, "rerun": 1}.items()
    found = [case.properties["probe.gate"] for case in ran.junit if "probe.gate" in case.properties]
    assert sorted(found) == ["same", "same", "worse"]
    logged = [json.loads(line) for line in Path("log.jsonl").read_text().splitlines()]
    calls = [line for line in logged if line.get("when") == "call" and line["outcome"] == "failed"]
    assert ["probe.gate", "worse"] in calls[0]["user_properties"]
    results = [json.loads(path.read_text()) for path in Path("allure").glob("*-result.json")]
    assert {result["status"] for result in results} == {"passed", "failed"}
    assert "worse than the baseline" in Path("report.html").read_text()


def test_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = case("exp")
    worse = replace(before, outputs=(replace(before.outputs[0], rmse=2.1e-7, noise_ratio=2.0, crc="1"),))
    files = {"base": (HEADER, cases("exp", "sin", "tanh")), "new": (HEADER, {**cases("sin"), worse.id: worse})}
    files["other"] = (replace(HEADER, seed=5), cases("exp"))
    for name, (header, found) in files.items():
        write(tmp_path / name, header, found, whole=True)

    def diff(*names: str) -> tuple[int, str]:
        status = main(["baseline", "diff", *(str(tmp_path / name) for name in names)])
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    status, text = diff("base", "new")
    assert status == 1
    assert text.splitlines()[::2][:2] == ["2 cases, 1 worse, 1 as before, 1 only in A", "worse:"]
    assert "dump.json::exp: 2.1" in text
    assert text.endswith("only in A:\n  dump.json::tanh\n")
    assert diff("new", "base")[0] == 0
    assert diff("new", "base")[1].startswith("3 cases, 1 as before, 1 better, 1 new\n")
    assert diff("base", "base") == (0, "3 cases, 3 as before\nbits: 3 of 3 outputs as before\n")
    assert diff("other", "new")[1].startswith("seed: 5 in A, 0 in B: bits are not compared\n")
    assert diff("none", "base")[0] == 2


def test_commands_escape_what_would_end_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", "/work/repo")
    failing = Failing("a::b,c", "100 % wrong:\nall", "/work/repo/src/a,b.py", 3)
    assert list(error_commands([failing])) == [
        "::error file=src/a%2Cb.py,line=3,title=a%3A%3Ab%2Cc::100 %25 wrong:%0Aall"
    ]
    elsewhere = Failing("a", "b", "/other/x.py", 0)
    assert list(error_commands([elsewhere] * 12)) == ["::error file=/other/x.py,title=a::b"] * 10


def test_markdown_shows_names_as_they_are() -> None:
    tally = Tally()
    tally.verdicts["error"] = 60
    failing = [Failing("d.json::a|b`c", "limit *2* | <b>", "train.py", 7)] * 60
    text = "\n".join(page(["probe: cpu"], tally, failing, 0, bold=["a_b cannot be written"]))
    assert text.startswith(
        "## pytest-probe: 60 cases failed\n\n- 60 cases, 60 error\n- cpu\n- **a\\_b cannot be written**\n"
    )
    assert "| `d.json::a\\|b'c` | limit \\*2\\* \\| \\<b\\> | `train.py:7` |" in text
    assert text.endswith("\nand 10 more\n")
