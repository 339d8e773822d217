"""Failures that are alike are shown once, whatever process ran them and whatever ended first."""

from __future__ import annotations

import json
import re
from textwrap import indent
from xml.etree import ElementTree

import pytest

from tests.acceptance.conftest import Probed, entries, written
from tests.support.other_plugins import Ran

# Every linear is half as large again, every relu negated.
FAULTS = """
    import torch

    def pytest_probe_register(registry):
        registry.calls["Functional.linear"] = lambda *args: 1.5 * torch.nn.functional.linear(*args)
        registry.calls["Functional.relu"] = lambda x, inplace=False: -torch.nn.functional.relu(x)
"""
LINE = "30 errors: looks like all times 3/2, Functional.linear, first at train.py:12 (record linear.0.forward)"
OTHERS = "the others of this group, each in full with -vv:"
FIRST = ["Functional.linear.0.forward", "Functional.relu.0.forward"]


@pytest.fixture
def faulty(pytester: pytest.Pytester) -> Probed:
    """A run of 30 failures of one cause, and of one of another."""
    linear, relu = (entries()[f"Functional.{api}.0.forward"] for api in ("linear", "relu"))
    data = {f"Functional.linear.{number}.forward": linear for number in range(30)}
    data["Functional.relu.0.forward"] = relu
    stack = {name: ["File /home/user/train.py, line 12, in step, \n y = f(x)"] for name in data}

    def run(*args: str, conftest: str = "") -> Ran:
        pytester.makeconftest(FAULTS + conftest)
        written(pytester.path / "dump.json", data)
        (pytester.path / "stack.json").write_text(json.dumps(stack), encoding="utf-8")
        return Ran(pytester.runpytest("--probe-dump=dump.json", *args), pytester.path)

    return run


def details(found: Ran) -> list[str]:
    """The cases whose text is there in full."""
    return sorted(re.findall(r"^(\S+) in float32 by .*: error$", found.result.stdout.str(), re.MULTILINE))


def listed(found: Ran) -> tuple[int, int]:
    """The lines of the group's other cases, and pytest's own lines of failures."""
    text = found.result.stdout.str()
    return len(re.findall(r"^  linear\.\d+\.forward ", text, re.MULTILINE)), text.count("\nFAILED ")


def test_the_first_of_a_group_is_shown_in_full(faulty: Probed) -> None:
    found = faulty("--junitxml=junit.xml", "--probe-out=out", "-n2")
    found.result.assert_outcomes(failed=31)
    assert details(found) == FIRST
    lines = found.result.outlines
    others = lines[lines.index(OTHERS) + 1 :][:20]
    assert [line.split()[:2] for line in others[:3]] == [
        [f"linear.{number}.forward", "train.py:12"] for number in (1, 2, 3)
    ]
    assert all(len(line) <= 80 for line in others)
    summary = lines.index("==================================== probe =====================================")
    assert lines[summary + 1] == "31 cases, 31 error"
    # The groups are the last that the screen shows.
    ends = " ".join(map(str.strip, lines[summary + 1 : -1])).partition(LINE)[2]
    assert ends.strip().startswith("1 error: 3 of 6 elements differ")
    assert "FAILED" not in ends
    # The short summary has the cause before the numbers, and says where the others are.
    short = re.findall(r"^FAILED dump\.json::Functional\.linear\.\d+\.forward - all", "\n".join(lines), re.MULTILINE)
    assert len(short) >= 19
    assert listed(found) == (20, 21)
    assert any(line.startswith("and 10 more in ") and line.endswith("results.jsonl") for line in lines)
    suite = ElementTree.parse(found.folder / "junit.xml").getroot()[0]
    groups = {each.get("name"): each.get("value") for each in suite.findall("properties/property")}
    assert groups["probe.group.1"] == LINE
    assert str(groups["probe.group.2"]).startswith("1 error: 3 of 6 elements differ")
    # What other tools read of a failing item is whole.
    assert all("to reproduce: " in str(each.text) for each in suite.findall("testcase/failure"))
    assert (found.folder / "out/summary.md").read_text(encoding="utf-8").splitlines()[2] == f"- {LINE}"
    rows = found.rows
    assert len(rows) == 31
    assert all(row["reason"].startswith("output.0: ") for row in rows)
    assert all(row["details"]["command"] and row["place"] >= 0 for row in rows)
    assert not any("group" in row for row in rows)


def test_of_a_large_group_twenty_cases_are_listed_and_other_plugins_read_all(faulty: Probed) -> None:
    """Of a case that runs again the last run counts."""
    pytest.importorskip("pytest_rerunfailures")
    reads = "def pytest_terminal_summary(terminalreporter):\n"
    reads += "    print('read', len(terminalreporter.stats['failed']))\n"
    found = faulty("--reruns=1", "-p", "rerunfailures", conftest="\n" + indent(reads, "    "))
    found.result.stdout.fnmatch_lines(["read 31"])
    assert details(found) == FIRST
    assert listed(found) == (20, 21)
    assert {"  and 9 more, with -rf", "and 10 more, with -rf"} <= set(found.result.outlines)
    assert found.result.outlines[-1].strip("= ").startswith("31 failed")
    assert LINE in " ".join(map(str.strip, found.result.outlines))


def test_who_asks_for_all_failures_gets_them(faulty: Probed) -> None:
    found = faulty("-vv")
    assert (len(details(found)), listed(found)) == (31, (0, 31))
    assert OTHERS not in found.result.outlines
    assert LINE in " ".join(map(str.strip, found.result.outlines))
    assert listed(faulty("-rf"))[1] == 31


def test_a_stopped_run_groups_what_failed(faulty: Probed) -> None:
    found = faulty("--maxfail=2")
    assert details(found) == FIRST[:1]
    assert "2 errors: looks like all times 3/2" in found.result.stdout.str()
    assert "29 items did not run" in found.result.outlines
