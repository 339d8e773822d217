"""--probe-timeout: a case that takes too long ends its process, also where it holds the GIL."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import DumpMaker
from tests.support.running import refusal, rows

pytestmark = pytest.mark.usefixtures("forked")
# A function of C's that is called with the GIL held.
HANGS = """
    import ctypes

    def hang(*args, **kwargs):
        ctypes.PyDLL(None).sleep(60)

    def pytest_probe_register(registry):
        registry.calls["Torch.argmax"] = hang
"""
RUN = ("--probe-dump=dump.json", "--probe-device=cpu", "--probe-api=argmax", "--probe-timeout=2")


def found(pytester: pytest.Pytester) -> dict[str, str]:
    (result,) = rows(pytester.path / "out")
    return {key: result[key] for key in ("verdict", "kind", "reason")}


TIMEOUT = {
    "verdict": "error",
    "kind": "timeout",
    "reason": "the process was ended by --probe-timeout while the device ran it",
}


def test_a_machine_that_takes_no_process_is_one_sentence(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    make_dump()
    monkeypatch.setattr("subprocess.Popen", refuses)
    said = refusal(pytester, *RUN, "--probe-out=out")
    said.fnmatch_lines(["--probe-timeout: '2' cannot be used; *a process, *unavailable): give 0*"])
    assert len(said.lines) == 1


def test_a_run_that_hangs_ends(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makeconftest(HANGS)
    # Pipes: the process that writes the stacks outlives the one that hung, and is waited for. pytest's limit is longer,
    # and leaves ours.
    command = [sys.executable, "-m", "pytest", *RUN, "--probe-out=out", "-o", "faulthandler_timeout=5"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == -signal.SIGALRM
    words = "\nprobe: a case took longer than --probe-timeout=2 s, so this process was ended; its stacks:\n"
    assert words in result.stderr
    assert ", line 4 in hang\n" in result.stderr
    assert (pytester.path / "out/results.jsonl").read_text() == ""
    resumed = pytester.runpytest(*RUN, "--probe-out=out", "--probe-resume")
    assert resumed.ret == pytest.ExitCode.TESTS_FAILED
    assert found(pytester) == TIMEOUT
    assert not (pytester.path / "out/running").exists()


@pytest.mark.parametrize(
    ("pytests", "said"),
    [
        ("1", "probe: cases are limited by pytest's faulthandler_timeout=1 s alone, which is shorter *=2 s"),
        ("5", "probe: cases are limited by --probe-timeout=2 s, which is not longer *=5 s"),
    ],
)
def test_the_shorter_of_two_time_limits_is_said(
    pytester: pytest.Pytester, make_dump: DumpMaker, pytests: str, said: str
) -> None:
    make_dump()
    config = pytester.parseconfigure(*RUN, "-o", f"faulthandler_timeout={pytests}")
    header = config.hook.pytest_report_header(config=config, start_path=Path())
    pytest.LineMatcher([line for lines in header for line in lines]).fnmatch_lines([said])


# The first time it hangs.
SLOW = """
    import ctypes
    from pathlib import Path
    import torch

    def slow(*args, **kwargs):
        if not Path("called").exists():
            Path("called").touch()
            ctypes.PyDLL(None).sleep(60)
        return torch.argmax(*args, **kwargs)

    def pytest_probe_register(registry):
        registry.calls["Torch.argmax"] = slow
"""


@pytest.mark.parametrize("workers", [(), ("-n1",)])
def test_a_case_that_ran_out_of_time_runs_again_with_more(
    pytester: pytest.Pytester, make_dump: DumpMaker, workers: tuple[str, ...]
) -> None:
    """Without workers the run died and wrote no result; with one the result is a timeout."""
    make_dump()
    pytester.makeconftest(SLOW)
    run = (*RUN[:-1], "--probe-out=out")
    runs = pytester.runpytest if workers else pytester.runpytest_subprocess
    assert runs(*run, "--probe-timeout=2", *workers).ret != 0
    assert not workers or found(pytester) == TIMEOUT
    assert runs(*run, "--probe-timeout=60", "--probe-resume", *workers).ret == 0
    assert found(pytester)["verdict"] == "pass"


# The time limit of a case that waits for another process, behind a run inside this one, which leaves it its stacks.
WAITS = """
import time
from types import SimpleNamespace
from pytest_probe.features.timeout import Limit

config = SimpleNamespace(pluginmanager=SimpleNamespace(hasplugin=lambda name: False))
limit, inside = Limit(config, 1.0, None, None), Limit(config, 1.0, None, None)
with inside.case():
    pass
inside.close()
with limit.suspended():
    print("no case runs", flush=True)
time.sleep(1.5)
with limit.case():
    with limit.suspended():
        time.sleep(1.5)
    print("it waited", flush=True)
    time.sleep(60)
"""


def test_its_time_begins_when_it_has_waited() -> None:
    done = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, timeout=50)
    assert done.stdout == "no case runs\nit waited\n"
    assert done.returncode == -signal.SIGALRM
    assert 'File "<string>", line 18 in <module>\n' in done.stderr


BUSY = """
import signal
signal.signal(signal.SIGALRM, lambda *_: print("theirs", flush=True))
signal.setitimer(signal.ITIMER_REAL, 0.5)
"""


def test_an_alarm_that_others_use_is_left_to_them() -> None:
    program = WAITS.replace("limit, inside = Limit", f"{BUSY}limit, inside = Limit")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert done.stdout == "no case runs\ntheirs\nit waited\n"
    assert done.returncode == 1
    assert "Timeout (0:00:01)!" in done.stderr
