"""What calls, hooks and fixtures log and print is in the report of their item, as in those of pytest's own tests."""

from __future__ import annotations

import logging

import pytest

from tests.acceptance.conftest import DumpMaker
from tests.support.other_plugins import Ran

LOGGING = """
import logging, torch

apart = logging.getLogger("apart")
apart.propagate = False

def relu(x):
    logging.getLogger("kernel").warning("in a call")
    apart.error("in one that %s", "does not propagate")
    logging.getLogger("made later").warning("by a new logger")
    logging.getLogger("kernel").info("below the level")
    print("printed")
    return torch.relu(x) * {factor}

def pytest_runtest_setup(item):
    logging.getLogger("conftest").warning("before the call")
    print("before it")

def pytest_runtest_teardown(item):
    logging.getLogger("conftest").warning("behind the call")
    print("behind it")

def pytest_probe_register(registry):
    registry.calls["Functional.relu"] = relu
"""
COMMAND = ("--probe-dump=dump.json", "--probe-api=relu", "--probe-direction=forward", "--probe-device=cpu")
TEST = "import logging\ndef test_own():\n    logging.getLogger('own').warning('in a test')\n    assert 0\n"


@pytest.fixture(autouse=True)
def usual_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was imported before may have set another one."""
    monkeypatch.setattr(logging.root, "level", logging.WARNING)


def run(pytester: pytest.Pytester, make_dump: DumpMaker, *args: str, factor: float = 2.0) -> str:
    make_dump()
    pytester.makeconftest(LOGGING.format(factor=factor))
    result = pytester.runpytest(*COMMAND, "-p", "no:randomly", *args)
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    return result.stdout.str()


def sections(text: str) -> list[str]:
    return [line.strip("- ") for line in text.splitlines() if line.startswith("-") and "Captured" in line]


PHASES = {"setup": "before it", "call": "printed", "teardown": "behind it"}
PARTS = [f"Captured {kind} {phase}" for phase in PHASES for kind in ("stdout", "log")]


def test_logs_are_in_the_report_as_those_of_pytests_plugin(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """--log-level leaves it active, at the level that it has without."""
    ours, theirs, workers = (run(pytester, make_dump, *args) for args in ([], ["--log-level=WARNING"], ["-n1"]))
    for text in (ours, theirs, workers):
        assert sections(text) == PARTS
        assert "WARNING  conftest:conftest.py:" in text
        assert "WARNING  kernel:conftest.py:7 in a call" in text
        assert text.count("does not propagate") == 1
        assert "by a new logger" in text
        assert "below the level" not in text
    shown = [[line for line in text.splitlines() if ".py:" in line or "Captured" in line] for text in (ours, theirs)]
    assert shown[0] == shown[1]


def test_options_of_logging_are_obeyed(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    files = ("--log-file=all.log", "--log-file-level=INFO", "-o", "log_cli=true")
    text = run(pytester, make_dump, "--log-level=INFO", "--log-format=<%(name)s> %(message)s", *files)
    assert "<kernel> in a call" in text
    assert "<kernel> below the level" in text
    assert "below the level" in (pytester.path / "all.log").read_text()


def test_what_is_printed_is_shown_by_phase_without_pytests_plugin_too(
    pytester: pytest.Pytester, make_dump: DumpMaker, planted_run: Ran
) -> None:
    lines = run(pytester, make_dump, "-p", "no:logging").splitlines()
    found = {line.strip("- "): lines[number + 1] for number, line in enumerate(lines) if "- Captured stdout" in line}
    assert found == {f"Captured stdout {phase}": text for phase, text in PHASES.items()}
    assert [lines.count(text) for text in PHASES.values()] == [1, 1, 1]
    assert sections(planted_run.result.stdout.str()) == []


def test_a_fixture_that_ends_with_an_item_of_a_dump(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makepyfile(
        test_own="""
        import pytest

        @pytest.fixture(scope="session")
        def ends():
            yield
            print("at the end")

        def test_own(ends): pass
        """
    )
    result = pytester.runpytest("test_own.py", *COMMAND, "-p", "no:randomly")
    result.assert_outcomes(passed=2)
    assert "at the end" not in result.stdout.str()


def test_tests_of_the_project_keep_theirs(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """And the hooks of another folder's conftest are none of the dump's."""
    pytester.makepyfile(test_own=TEST)
    other = pytester.mkdir("other")
    (other / "conftest.py").write_text(
        "import logging\ndef pytest_runtest_setup(item):\n    logging.getLogger('elsewhere').warning('not ours')\n"
    )
    (other / "test_other.py").write_text("def test_other():\n    assert 0\n")
    text = run(pytester, make_dump, "test_own.py", "other")
    assert text.count("in a test") >= 1
    assert sections(text).count("Captured log call") == 2
    assert text.count("elsewhere:conftest.py") == 1


def test_a_message_that_cannot_be_formatted_fails_the_item(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    code = LOGGING.format(factor=1.0).replace('warning("in a call")', 'warning("%d", "no number")')
    pytester.makeconftest(code)
    pytester.runpytest(*COMMAND).assert_outcomes(failed=1)
