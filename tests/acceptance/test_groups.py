"""Failures that are alike are shown once, whatever process ran them and whatever ended first."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from tests.acceptance.conftest import DumpMaker, entries

# Every linear is half as large again, every relu negated.
FAULTS = """
    import torch

    def pytest_probe_register(registry):
        registry.calls["Functional.linear"] = lambda *args: 1.5 * torch.nn.functional.linear(*args)
        registry.calls["Functional.relu"] = lambda x, inplace=False: -torch.nn.functional.relu(x)
"""
LINE = "4 errors: looks like all times 3/2, Functional.linear, first at train.py:12 (record linear.0.forward)"
OTHERS = "the others of this group, each in full with -vv:"


@pytest.fixture
def faulty(pytester: pytest.Pytester, make_dump: DumpMaker) -> pytest.Pytester:
    found = entries()
    linear = {f"Functional.linear.{number}.forward": found["Functional.linear.0.forward"] for number in range(4)}
    data = {**linear, "Functional.relu.0.forward": found["Functional.relu.0.forward"]}
    stack = {name: ["File /home/user/train.py, line 12, in step, \n y = f(x)"] for name in data}
    make_dump(data=data).with_name("stack.json").write_text(json.dumps(stack), encoding="utf-8")
    pytester.makeconftest(FAULTS)
    return pytester


def details(result: pytest.RunResult) -> list[str]:
    """The cases whose text is there in full."""
    return re.findall(r"^(\S+) in float32 by .*: error$", result.stdout.str(), re.MULTILINE)


def test_the_first_of_a_group_is_shown_in_full(faulty: pytest.Pytester) -> None:
    result = faulty.runpytest("--probe-dump=dump.json", "--junitxml=j.xml", "--probe-out=out", "-n2")
    result.assert_outcomes(failed=5)
    assert sorted(details(result)) == ["Functional.linear.0.forward", "Functional.relu.0.forward"]
    others = result.outlines[result.outlines.index(OTHERS) + 1 :][:3]
    assert [line.split()[:2] for line in others] == [
        [f"linear.{number}.forward", "train.py:12"] for number in (1, 2, 3)
    ]
    assert all(len(line) <= 80 for line in others)
    summary = result.outlines.index("==================================== probe =====================================")
    assert result.outlines[summary + 1] == "5 cases, 5 error"
    # The groups are the last that the screen shows.
    ends = " ".join(map(str.strip, result.outlines[summary + 1 : -1])).partition(LINE)[2]
    assert ends.strip().startswith("1 error: 3 of 6 elements differ")
    assert "FAILED" not in ends
    # Each failure counts, and the short summary has the cause before the numbers.
    found = re.findall(r"^FAILED dump\.json::Functional\.linear\.\d\.forward - all", result.stdout.str(), re.MULTILINE)
    assert len(found) == 4
    suite = ElementTree.parse(faulty.path / "j.xml").getroot()[0]
    groups = {each.get("name"): each.get("value") for each in suite.findall("properties/property")}
    assert groups["probe.group.1"] == LINE
    assert str(groups["probe.group.2"]).startswith("1 error: 3 of 6 elements differ")
    # What other tools read of a failing item is whole.
    assert all("to reproduce: " in str(each.text) for each in suite.findall("testcase/failure"))
    assert (faulty.path / "out/summary.md").read_text(encoding="utf-8").splitlines()[2] == f"- {LINE}"
    lines = [json.loads(line) for line in (faulty.path / "out/results.jsonl").read_text().splitlines()]
    assert len(lines) == 5
    assert all(line["reason"].startswith("output.0: ") for line in lines)
    assert all(line["details"]["command"] and line["place"] >= 0 for line in lines)
    assert not any("group" in line for line in lines)


def test_very_verbose_shows_all(faulty: pytest.Pytester) -> None:
    result = faulty.runpytest("--probe-dump=dump.json", "-vv")
    assert len(details(result)) == 5
    assert OTHERS not in result.outlines
    assert LINE in " ".join(map(str.strip, result.outlines))


def test_a_stopped_run_groups_what_failed(faulty: pytest.Pytester) -> None:
    result = faulty.runpytest("--probe-dump=dump.json", "--maxfail=2")
    assert details(result) == ["Functional.linear.0.forward"]
    assert "2 errors: looks like all times 3/2" in result.stdout.str()
    assert "3 items did not run" in result.outlines


def test_of_a_case_that_runs_again_the_last_run_counts(faulty: pytest.Pytester) -> None:
    pytest.importorskip("pytest_rerunfailures")
    result = faulty.runpytest("--probe-dump=dump.json", "--reruns=1", "-p", "rerunfailures")
    assert sorted(details(result)) == ["Functional.linear.0.forward", "Functional.relu.0.forward"]
    assert LINE in " ".join(map(str.strip, result.outlines))


def test_a_test_that_fails_keeps_its_own_text(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine="""
        import pytest, torch

        @pytest.mark.parametrize("number", range(3))
        def test_exp(probe, number):
            probe.check(lambda x: 1.5 * torch.exp(x), reference=torch.exp, inputs=probe.tensor((64, 64)))
        """
    )
    result = pytester.runpytest("--probe-seed=3")
    result.assert_outcomes(failed=3)
    assert len(re.findall(r"^E +to reproduce: ", result.stdout.str(), re.MULTILINE)) == 3
    assert "3 errors: looks like all times 1.5, lambda, first at test_mine.py:" in result.stdout.str()


@pytest.fixture
def many(pytester: pytest.Pytester, make_dump: DumpMaker) -> pytest.Pytester:
    """30 failures of one cause."""
    make_dump(data={f"Functional.linear.{n}.forward": entries()["Functional.linear.0.forward"] for n in range(30)})
    pytester.makeconftest(FAULTS)
    return pytester


def listed(result: pytest.RunResult) -> tuple[int, int]:
    """The lines of the group's other cases, and pytest's own lines of failures."""
    text = result.stdout.str()
    return len(re.findall(r"^  linear\.\d+\.forward ", text, re.MULTILINE)), text.count("\nFAILED ")


def test_of_a_large_group_twenty_cases_are_listed(many: pytest.Pytester) -> None:
    """Other plugins read all that failed."""
    (many.path / "conftest.py").open("a").write(
        "\ndef pytest_terminal_summary(terminalreporter):\n    print('read', len(terminalreporter.stats['failed']))\n"
    )
    result = many.runpytest("--probe-dump=dump.json")
    result.assert_outcomes(failed=30)
    result.stdout.fnmatch_lines(["read 30"])
    assert listed(result) == (20, 20)
    assert {"  and 9 more, with -rf", "and 10 more, with -rf"} <= set(result.outlines)
    assert result.outlines[-1].strip("= ").startswith("30 failed")


@pytest.mark.parametrize("options", [["-ra"], ["-rf"], ["-vv"]])
def test_who_asks_for_all_failures_gets_them(many: pytest.Pytester, options: list[str]) -> None:
    assert listed(many.runpytest("--probe-dump=dump.json", *options))[1] == 30


def test_the_file_that_has_the_others_is_named(many: pytest.Pytester) -> None:
    result = many.runpytest("--probe-dump=dump.json", "--probe-out=out", "-n2")
    result.assert_outcomes(failed=30)
    assert listed(result) == (20, 20)
    assert any(line.startswith("and 10 more in ") and line.endswith("results.jsonl") for line in result.outlines)
