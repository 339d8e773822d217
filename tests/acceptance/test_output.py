"""What calls, hooks and fixtures print stands in the report of their item, and nowhere else."""

from __future__ import annotations

import pytest

from tests.acceptance.conftest import DumpMaker

CALL = """
import torch

def relu(x):
    print("in a call")
    return torch.relu(x) * 2

def pytest_probe_register(registry):
    registry.calls["Functional.relu"] = relu
"""
HOOKS = """
def pytest_runtest_setup(item):
    print("before it")

def pytest_runtest_teardown(item):
    print("behind it")
"""
FIXTURE = """
import pytest

@pytest.fixture(scope="session")
def ends():
    yield
    print("at the end")

def test_own(ends):
    pass
"""
RUN = ("--probe-dump=dump.json", "--probe-api=relu", "--probe-direction=forward", "--probe-device=cpu")


ALL_SECTIONS = {"stdout setup": "before it", "stdout call": "in a call", "stdout teardown": "behind it"}


@pytest.mark.parametrize(
    ("hooks", "sections", "workers"),
    [("", {"stdout call": "in a call"}, "-n0"), (HOOKS, ALL_SECTIONS, "-n0"), (HOOKS, ALL_SECTIONS, "-n1")],
)
def test_output_of_a_case_is_shown_by_phase(
    pytester: pytest.Pytester, make_dump: DumpMaker, hooks: str, sections: dict[str, str], workers: str
) -> None:
    make_dump()
    pytester.makeconftest(CALL + hooks)
    lines = pytester.runpytest(*RUN, workers).stdout.lines
    found = {line.strip("- "): lines[number + 1] for number, line in enumerate(lines) if "- Captured" in line}
    assert found == {f"Captured {phase}": text for phase, text in sections.items()}
    assert sum(line in ("before it", "in a call", "behind it") for line in lines) == len(sections)


def test_a_fixture_that_ends_with_an_item_of_a_dump(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makeconftest("")
    pytester.makepyfile(test_own=FIXTURE)
    result = pytester.runpytest("test_own.py", *RUN, "-p", "no:randomly")
    result.assert_outcomes(passed=2)
    assert "at the end" not in result.stdout.str()
