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
@pytest.mark.parametrize(
    ("args", "passed"),
    [
        (["-k", "nothing"], 0),
        (["-m", "probe(api='argmax')"], 1),
        (["--deselect", "bad/dump.json::(damaged)"], 2),
        (["-k", "relu", "-n1"], 1),
    ],
)
def test_what_selects_items_hides_no_damage(pytester: pytest.Pytester, args: list[str], passed: int) -> None:
    result = pytester.runpytest("--probe-dump=good", "--probe-dump=bad", *args)
    result.assert_outcomes(passed=passed, deselected=result.parseoutcomes().get("deselected", 0))
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


@pytest.mark.usefixtures("dumps")
def test_a_single_item_is_asked_for_alone(pytester: pytest.Pytester) -> None:
    """The command that reproduces a failure does not fail for another reason."""
    assert pytester.runpytest(f"bad/dump.json::{RELU}").ret == 0


@pytest.mark.usefixtures("dumps")
def test_an_empty_dump_in_a_folder_is_damaged_and_where_its_item_runs_it_is_said_once(
    pytester: pytest.Pytester,
) -> None:
    (pytester.path / "good/empty").mkdir()
    (pytester.path / "good/empty/dump.json").touch()
    result = pytester.runpytest("--probe-dump=good", "--probe-dump=bad")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*good/empty/dump.json: is empty; repeat the capture"])
    result.stdout.no_fnmatch_line("This fails the run*")
