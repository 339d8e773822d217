"""junit's file of a run without workers that ends in a crash."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

TESTS = """
import os
import pytest

def test_passes(): pass

def test_fails(): assert 0

@pytest.mark.parametrize("name", ["a<b"])
class TestDies:
    def test_dies(self, name): os.abort()

def test_does_not_run(): pass
"""

# What is kept of an item is text.
SMALL = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    xml = session.config.stash[session.config.pluginmanager.get_plugin("junitxml").xml_key]
    assert all(isinstance(each, bytes) for each in xml.node_reporters_ordered)
"""


def cases(path: Path) -> list[tuple[str, str, list[str]]]:
    found = ElementTree.parse(path).getroot().iter("testcase")
    return [(case.attrib["classname"], case.attrib["name"], [each.tag for each in case]) for case in found]


@pytest.mark.usefixtures("forked")
def test_what_ran_before_a_crash_is_in_junit(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=TESTS)
    pytester.makeconftest(SMALL)
    (pytester.path / "j.xml").write_text("of an earlier run, which was longer" * 100)
    options = ("--probe-seed=1", "-p", "no:faulthandler", "--junitxml")
    assert pytester.runpytest_subprocess(*options, "j.xml").ret < 0
    ran = [("test_mine", "test_passes", []), ("test_mine", "test_fails", ["failure"])]
    died = ("test_mine.TestDies", "test_dies[a<b]", ["error"])
    assert cases(pytester.path / "j.xml") == [*ran, died]
    result = pytester.runpytest_subprocess(*options, "new/j.xml", "--deselect=test_mine.py::TestDies")
    result.assert_outcomes(passed=2, failed=1, deselected=1)
    assert cases(pytester.path / "new/j.xml") == [*ran, ("test_mine", "test_does_not_run", [])]
    assert pytester.runpytest_subprocess(*options, "/dev/null", "-k", "passes").ret == 0
