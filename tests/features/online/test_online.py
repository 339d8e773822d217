"""Programs that send their calls, and checkers at a shared folder."""

from __future__ import annotations

import shlex
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.features.online.conftest import LIMIT, Ends, said

pytestmark = pytest.mark.slow

# So that a process can be killed in the middle.
SLOW = """
import time

def pytest_runtest_call():
    time.sleep(0.1)
"""


# So that who is killed is gone soon.
QUICK = """
import pytest_probe.capture.online.shared_folder as shared
import pytest_probe.features.online.folder_source as source
shared.BEAT_SECONDS, shared.GONE_SECONDS, source.GONE_SECONDS = 0.2, 4.0, 4.0
"""


def by_case(results: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The results by step and entry, without the dump that they are from."""
    found = {}
    for line in results:
        label, _, entry = line["id"].partition("::")
        step = next(part for part in label.split("/") if part.startswith("step"))
        assert (step, entry) not in found
        found[step, entry] = {**line, "id": ""}
    return found


def losses(text: str) -> list[str]:
    return [line for line in text.splitlines() if line[0].isdigit()]


def test_verdicts_are_those_of_a_dump(ends: Ends) -> None:
    recorded = said(ends.program("dump_path=dump"))
    assert "51 passed" in said(ends.checker("offline", "--probe-dump=dump", "--probe-device=recorded"))
    checker = ends.checker("online", f"--probe-listen={ends.address}", "--junit-xml=online.xml")
    sent = said(ends.program(f"online={ends.address}"))
    text = said(checker)
    assert checker.returncode == 0, text
    assert losses(recorded) == losses(sent)
    assert by_case(ends.results("online")) == by_case(ends.results("offline"))
    assert {line["id"].partition("::")[0] for line in ends.results("online")} == {f"rank0/step{n}" for n in range(3)}
    assert "rank 0: 3 steps, 0 to 2" in text
    assert 'classname="rank0.step2"' in (ends.folder / "online.xml").read_text()
    assert list(ends.shared.iterdir()) == []


def test_a_wrong_kernel_is_found_while_the_program_runs(ends: Ends) -> None:
    said(ends.program(f"online={ends.address}", "fault=gelu"))
    checker = ends.checker("online", f"--probe-listen={ends.address}")
    text = said(checker)
    assert checker.returncode == 1
    wrong = {line["id"].partition("::")[2] for line in ends.results("online") if line["verdict"] == "error"}
    assert wrong == {"Functional.gelu.0.forward"}
    # The command of the failing item works when all is over.
    command = next(line for line in text.splitlines() if "to reproduce: " in line).partition("pytest ")[2]
    again = ends.start("-m", "pytest", *shlex.split(command))
    assert "1 failed" in said(again)


@pytest.mark.parametrize(("option", "ran"), [("-x", 3), ("--maxfail=2", 30), ("-k gelu and backward", 3)])
def test_options_of_pytest(ends: Ends, option: str, ran: int) -> None:
    said(ends.program(f"online={ends.address}", "fault=gelu"))
    words = [option] if option.startswith("--") else option.split(" ", 1)
    text = said(ends.checker("online", f"--probe-listen={ends.address}", *words))
    found = ends.results("online")
    if option.startswith("-k"):
        assert {line["id"].partition("::")[2] for line in found} == {"Functional.gelu.0.backward"}
        assert len(found) == ran
        return
    assert sum(line["verdict"] == "error" for line in found) == (1 if option == "-x" else 2)
    assert len(found) < 51
    assert "not run, though it came: " in text


def _six_are_noted(ends: Ends) -> bool:
    """Has the first checker six results, and is each result noted? One that is not would come twice."""
    first, second = (len(ends.results(name)) for name in ("first", "second"))
    noted = sum(len(path.read_text().splitlines()) for path in ends.shared.glob("*.done"))
    return first >= 6 and noted >= first + second


def test_two_checkers_one_of_which_is_killed(ends: Ends) -> None:
    (ends.folder / "conftest.py").write_text(QUICK + SLOW)
    first, second = (ends.checker(out, f"--probe-listen={ends.address}") for out in ("first", "second"))
    program = ends.program(f"online={ends.address}")
    end = time.monotonic() + LIMIT
    while not _six_are_noted(ends) and time.monotonic() < end:
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    said(program)
    text = said(second)
    assert second.returncode == 0, text
    found = ends.results("first") + ends.results("second")
    assert len(by_case(found)) == len(found) == 51
    assert 0 < len(ends.results("first")) < 51


# A disk that takes five results.
FULL = """
import errno
from pytest_probe.reports.results_file import ResultsWriter

class Full:
    def __init__(self, file):
        self.file, self.left = file, 5

    def write(self, text):
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(text)

    def __getattr__(self, name):
        return getattr(self.file, name)

made = ResultsWriter.__init__

def init(self, *args, **options):
    made(self, *args, **options)
    self._file = Full(self._file)

ResultsWriter.__init__ = init
"""


def test_a_full_disk_leaves_the_rest_for_the_next_checker(ends: Ends) -> None:
    said(ends.program(f"online={ends.address}"))
    (ends.folder / "conftest.py").write_text(FULL)
    first = ends.checker("first", f"--probe-listen={ends.address}")
    text = said(first)
    assert first.returncode == 2, text
    assert "No space left on device" in text
    assert len(ends.results("first")) == 5
    (ends.folder / "conftest.py").unlink()
    second = ends.checker("second", f"--probe-listen={ends.address}")
    text = said(second)
    assert second.returncode == 0, text
    found = ends.results("first") + ends.results("second")
    assert len(by_case(found)) == len(found) == 51


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-n1"], "leave -n out"),
        (["--probe-dump=dump"], "it needs cases that are known before the run, and with --probe-listen=file:///"),
        (["--collect-only"], "nothing can be collected before"),
        (["--probe-listen=nowhere"], "give file:///FOLDER, or HOST:PORT"),
        (["--probe-listen=file:///proc/none"], "give a folder that can be written"),
    ],
)
def test_what_does_not_go_with_it(ends: Ends, options: list[str], words: str) -> None:
    (ends.folder / "dump").mkdir()
    (ends.folder / "dump/dump.json").write_text('{"task": "statistics", "level": "L1", "data": {}}')
    checker = ends.checker("out", f"--probe-listen={ends.address}", *options)
    text = said(checker)
    assert checker.returncode == 4, text
    assert words in text


def test_files_that_are_no_messages(ends: Ends, tmp_path: Path) -> None:
    said(ends.program(f"online={ends.address}"))
    files = sorted(path for path in ends.shared.iterdir() if "goodbye" not in path.name)
    files[0].write_bytes(b"\xff" * 100)
    files[1].write_bytes(files[1].read_bytes()[:200])
    files[2].write_bytes(files[2].read_bytes().replace(b"Functional.gelu.0", b"Functional/gelu.0"))
    checker = ends.checker("online", f"--probe-listen={ends.address}")
    text = said(checker)
    assert "refused:" in text
    # The first three are forward entries, of which the second and the third have a backward as well.
    assert len(ends.results("online")) == 51 - 5
