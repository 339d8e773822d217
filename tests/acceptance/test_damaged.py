"""A damaged dump fails the run, whatever is selected of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.conftest import DumpMaker, entries

RELU, ARGMAX = "Functional.relu.0.forward", "Torch.argmax.0.forward"


def cut_off(dump: Path) -> None:
    """Leaves relu, and half of what follows."""
    text = dump.read_text()
    dump.write_text(text[: text.index(ARGMAX) + 40])


@pytest.fixture
def dumps(make_dump: DumpMaker) -> None:
    make_dump("good/dump.json", {ARGMAX: entries()[ARGMAX]})
    cut_off(make_dump("bad/dump.json", {name: entries()[name] for name in (RELU, ARGMAX)}))


@pytest.mark.usefixtures("dumps")
def test_what_selects_items_hides_no_damage(pytester: pytest.Pytester) -> None:
    selects = ("--deselect", "bad/dump.json::(damaged)", "-m", "probe(api='relu')", "-n1")
    result = pytester.runpytest("--probe-dump=good", "--probe-dump=bad", *selects)
    result.assert_outcomes(passed=1, deselected=result.parseoutcomes().get("deselected", 0))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            f"probe: {pytester.path}/bad/dump.json: is damaged or cut off at byte *; copy the file again, or *",
            "This fails the run, although its item (damaged) was left out",
        ]
    )


def test_last_failed_hides_no_damage(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """The dump was whole when its items passed last time."""
    bad = make_dump("bad/dump.json", {name: entries()[name] for name in (RELU, ARGMAX)})
    pytester.makepyfile(test_mine="def test_mine(): assert False")
    pytester.runpytest("--probe-dump=bad", "test_mine.py").assert_outcomes(passed=2, failed=1)
    cut_off(bad)
    pytester.makepyfile(test_mine="def test_mine(): pass")
    result = pytester.runpytest("--probe-dump=bad", "test_mine.py", "--lf")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["probe: */bad/dump.json: is damaged *", "This fails the run*"])
    # The command that reproduces a failure does not fail for another reason.
    assert pytester.runpytest(f"bad/dump.json::{RELU}").ret == 0
