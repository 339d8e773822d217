"""What `make test` runs of the tests that judge many calls, and what `make evidence` says of them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.evidence import drawn, table
from tests.support.running import collected

TESTS = """
import pytest

@pytest.mark.evidence
@pytest.mark.parametrize("number", range(210))
def test_numbers(number): ...

@pytest.mark.evidence
def test_alone(): ...

@pytest.mark.parametrize("number", range(2))
def test_others(number): ...

@pytest.mark.evidence
def test_checks(probe):
    import torch

    probe.check(torch.relu, reference=torch.relu, inputs=[probe.tensor((4,))], backward=True)
    with pytest.raises(AssertionError):
        probe.check(torch.neg, reference=torch.relu, inputs=[probe.tensor((4,))])
"""


@pytest.fixture(autouse=True)
def _files(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=TESTS)
    pytester.makeconftest("pytest_plugins = ['tests.support.evidence']")
    pytester.makeini("[pytest]\nmarkers = evidence")


def test_a_tenth_is_drawn_of_each_test_alone() -> None:
    ids = [f"a.py::test_x[{number}]" for number in range(241)]
    kept = {ids[place] for place in drawn(ids)}
    assert len(kept) == 25
    more = ["b.py::test_y", *ids, "c.py::test_z[1]", "c.py::test_z[2]"]
    found = {more[place] for place in drawn(more)}
    assert (kept < found, "b.py::test_y" in found, len(found)) == (True, True, 28)


def test_the_tenth_is_the_same_in_each_run(pytester: pytest.Pytester) -> None:
    def ran(*args: str) -> list[str]:
        return sorted(name.partition("::")[2] for name in collected(pytester, *args))

    first = ran("--tenth")
    assert first == ran("--tenth", "-p", "no:cacheprovider")
    assert [name.partition("[")[0] for name in first] == [
        "test_alone", "test_checks", *["test_numbers"] * 21, "test_others", "test_others"
    ]  # fmt: skip
    assert len(ran("-m", "evidence")) == 212


def test_a_whole_run_says_the_verdicts_by_file(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("-m", "evidence", "-n1")
    result.stdout.fnmatch_lines(
        ["*verdicts of checks*", "*pass  warning    error     skip", "test_mine.py *2 *0 *1 *0"]
    )
    pytester.runpytest("--tenth", "-k", "checks").stdout.no_fnmatch_line("*verdicts of checks*")


def test_the_table_adds_up() -> None:
    lines = list(table({"a.py": Counter({"pass": 1200, "error": 3}), "b.py": Counter({"warning": 2, "pass": 1})}))
    assert lines == [
        "         pass  warning    error     skip",
        "a.py    1,200        0        3        0",
        "b.py        1        2        0        0",
        "all     1,201        2        3        0",
    ]
