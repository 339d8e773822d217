"""What calls, hooks and fixtures log and print is in the report of their item, as in those of pytest's own tests."""

from __future__ import annotations

import logging
import re

import pytest

from tests.acceptance.conftest import DumpMaker, entries

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
    return torch.relu(x) * 2

def gelu(x):
    logging.getLogger("kernel").warning("%d", "no number")
    return torch.nn.functional.gelu(x)

def pytest_runtest_setup(item):
    logging.getLogger("conftest").warning("before the call")
    print("before it")

def pytest_runtest_teardown(item):
    logging.getLogger("conftest").warning("behind the call")
    print("behind it")

def pytest_probe_register(registry):
    registry.calls |= {"Functional.relu": relu, "Functional.gelu": gelu}
"""
COMMAND = ("--probe-dump=dump.json", "-p", "no:randomly")
TEST = "import logging\ndef test_own():\n    logging.getLogger('own').warning('in a test')\n    assert 0\n"


@pytest.fixture(autouse=True)
def usual_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was imported before may have set another one."""
    monkeypatch.setattr(logging.root, "level", logging.WARNING)


def dump(make_dump: DumpMaker) -> None:
    relu = entries()["Functional.relu.0.forward"]
    make_dump(data={f"Functional.{api}.0.forward": relu for api in ("relu", "gelu")})


def run(pytester: pytest.Pytester, make_dump: DumpMaker, *args: str) -> dict[str, str]:
    """What the run says of the failure of each item."""
    dump(make_dump)
    pytester.makeconftest(LOGGING)
    result = pytester.runpytest(*COMMAND, *args)
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    parts = re.split(r"^_+ (\S+) +_+$|^=+ .* =+$", result.stdout.str(), flags=re.MULTILINE)
    return {name: text for name, text in zip(parts[1::2], parts[2::2], strict=True) if name}


def sections(text: str) -> list[str]:
    return [line.strip("- ") for line in text.splitlines() if line.startswith("-") and "Captured" in line]


RELU, GELU = "Functional.relu.0.forward", "Functional.gelu.0.forward"
PHASES = {"setup": "before it", "call": "printed", "teardown": "behind it"}
PARTS = [f"Captured {kind} {phase}" for phase in PHASES for kind in ("stdout", "log")]


def test_logs_are_in_the_report_as_those_of_pytests_plugin(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """--log-level leaves it active, at the level that it has without, and so do workers. Tests of the project keep
    theirs, the hooks of another folder's conftest are none of the dump's, and a message that cannot be formatted fails
    its item."""
    pytester.makepyfile(test_own=TEST)
    other = pytester.mkdir("other")
    (other / "conftest.py").write_text(
        "import logging\ndef pytest_runtest_setup(item):\n    logging.getLogger('elsewhere').warning('not ours')\n"
    )
    (other / "test_other.py").write_text("def test_other():\n    assert 0\n")
    found = run(pytester, make_dump, "test_own.py", "other")
    assert found.keys() == {RELU, GELU, "test_own", "test_other"}
    assert "in a test" in found["test_own"]
    assert [name for name, text in found.items() if "elsewhere:conftest.py" in text] == ["test_other"]
    theirs = run(pytester, make_dump, "--log-level=WARNING", "-n1")
    for text in (found[RELU], theirs[RELU]):
        assert sections(text) == PARTS
        assert "WARNING  conftest:conftest.py:" in text
        assert "WARNING  kernel:conftest.py:7 in a call" in text
        assert text.count("does not propagate") == 1
        assert "by a new logger" in text
        assert "below the level" not in text
    shown = [[line for line in each.splitlines() if ".py:" in line or "Captured" in line]
             for each in (found[RELU], theirs[RELU])]  # fmt: skip
    assert shown[0] == shown[1]


def test_options_of_logging_are_obeyed(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    files = ("--log-file=all.log", "--log-file-level=INFO", "-o", "log_cli=true")
    text = run(pytester, make_dump, "--log-level=INFO", "--log-format=<%(name)s> %(message)s", *files)[RELU]
    assert "<kernel> in a call" in text
    assert "<kernel> below the level" in text
    assert "below the level" in (pytester.path / "all.log").read_text()


def test_what_is_printed_is_shown_by_phase_without_pytests_plugin_too(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    lines = run(pytester, make_dump, "-p", "no:logging")[RELU].splitlines()
    found = {line.strip("- "): lines[number + 1] for number, line in enumerate(lines) if "- Captured stdout" in line}
    assert found == {f"Captured stdout {phase}": text for phase, text in PHASES.items()}
    assert [lines.count(text) for text in PHASES.values()] == [1, 1, 1]


def test_a_fixture_that_ends_with_an_item_of_a_dump(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    dump(make_dump)
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
    result = pytester.runpytest("test_own.py", *COMMAND)
    result.assert_outcomes(passed=3)
    assert "at the end" not in result.stdout.str()
