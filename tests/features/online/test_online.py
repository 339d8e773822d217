"""Programs that send their calls to a shared folder, and the runs that judge what comes."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_probe.cli import main
from tests.features.online.conftest import LIMIT, Ends, said
from tests.support.csv_cells import rows
from tests.support.running import refusal

pytestmark = pytest.mark.slow

# So that a process can be killed in the middle, and who is killed is gone soon.
SLOW = """
import time

def pytest_runtest_call():
    time.sleep(0.1)
"""
QUICK = """
import pytest_probe.capture.online.shared_folder as shared
import pytest_probe.features.online.folder_source as source
shared.BEAT_SECONDS, shared.GONE_SECONDS, source.GONE_SECONDS = 0.2, 4.0, 4.0
"""
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


def wrong(ends: Ends, out: str) -> set[str]:
    return {line["id"].partition("::")[2] for line in ends.results(out) if line["verdict"] == "error"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    """It ran with a wrong kernel, once recorded and once sent, and nobody has judged its calls."""
    found = Ends(tmp_path_factory.mktemp("program"))
    recorded = said(found.program("dump_path=dump", "fault=gelu"))
    sent = said(found.program(f"online={found.address}", "fault=gelu"))
    assert losses(recorded) == losses(sent) != []
    yield found
    found.end()


@pytest.fixture(scope="module")
def recorded(program: Ends) -> list[dict[str, Any]]:
    """What a run finds in what it recorded."""
    said(program.checker("recorded", "--probe-dump=dump", "--probe-device=recorded"))
    return program.results("recorded")


@pytest.fixture
def sent(program: Ends, ends: Ends) -> Ends:
    """A folder with what the program sent."""
    shutil.copytree(program.shared, ends.shared)
    return ends


def test_verdicts_are_those_of_a_dump(recorded: list[dict[str, Any]], sent: Ends) -> None:
    checker = sent.checker("online", f"--probe-listen={sent.address}", "--junit-xml=online.xml")
    text = said(checker)
    assert checker.returncode == 1, text
    assert "3 failed, 48 passed" in text
    assert by_case(sent.results("online")) == by_case(recorded)
    assert wrong(sent, "online") == {"Functional.gelu.0.forward"}
    assert {line["id"].partition("::")[0] for line in sent.results("online")} == {f"rank0/step{n}" for n in range(3)}
    assert "rank 0: 3 steps, 0 to 2" in text
    assert 'classname="rank0.step2"' in (sent.folder / "online.xml").read_text()
    assert list(sent.shared.iterdir()) == []
    # The command of the failing item works when all is over.
    command = next(line for line in text.splitlines() if "to reproduce: " in line).partition("pytest ")[2]
    assert "1 failed" in said(sent.start("-m", "pytest", *shlex.split(command)))


@pytest.mark.usefixtures("recorded")
def test_a_device_beside_is_the_benchmark(program: Ends, sent: Ends) -> None:
    text = said(sent.checker("online", f"--probe-listen={sent.address}", "--probe-device=cpu"))
    assert "compared with " in text
    assert "3 failed, 48 passed" in text
    assert [line["verdict"] for line in sent.results("online/benchmark")] == ["pass"] * 51

    said(program.checker("cpu", "--probe-dump=dump", "--probe-device=cpu"))
    sides = [str(program.folder / device) for device in ("recorded", "cpu")]
    assert main(["compare", *sides, "-o", str(program.folder / "compared")]) == 1
    folders = sent.folder / "online", program.folder / "compared"
    online, offline = (rows(folder, "api_precision_compare_details") for folder in folders)
    assert {row["API Name"].partition("::")[0] for row in online} == {f"rank0/step{step}" for step in range(3)}

    def bare(lines: list[dict[str, str]]) -> list[list[str]]:
        """Without the labels, which name the folder of a dump."""
        return sorted([row["API Name"].partition("::")[2], *list(row.values())[1:]] for row in lines)

    assert bare(online) == bare(offline)
    errors = {row["API Name"].partition("::")[2] for row in online if row["比对结果"] == "error"}
    assert errors == {"Functional.gelu.0.forward.output.0"}


def test_a_choice_of_items(sent: Ends) -> None:
    said(sent.checker("online", f"--probe-listen={sent.address}", "-k", "gelu and backward"))
    found = [line["id"].partition("::")[2] for line in sent.results("online")]
    assert found == ["Functional.gelu.0.backward"] * 3


def test_a_run_that_ends_early_lists_what_came(sent: Ends) -> None:
    text = said(sent.checker("online", f"--probe-listen={sent.address}", "--maxfail=2"))
    found = sent.results("online")
    assert sum(line["verdict"] == "error" for line in found) == 2
    assert len(found) < 51
    assert "not run, though it came: " in text


def test_ranks_that_are_not_asked_for(sent: Ends) -> None:
    checking = {"is_online": True, "nfs_path": str(sent.shared), "rank_list": [3]}
    (sent.folder / "checking.json").write_text(json.dumps({"task": "run_ut", "run_ut": checking}))
    said(sent.checker("online", "--probe-listen=checking.json"))
    assert sent.results("online") == []


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


def test_a_full_disk_leaves_the_rest_for_the_next_checker(sent: Ends) -> None:
    (sent.folder / "conftest.py").write_text(FULL)
    first = sent.checker("first", f"--probe-listen={sent.address}")
    text = said(first)
    assert first.returncode == 2, text
    assert "No space left on device" in text
    assert len(sent.results("first")) == 5
    (sent.folder / "conftest.py").unlink()
    said(sent.checker("second", f"--probe-listen={sent.address}"))
    found = sent.results("first") + sent.results("second")
    assert len(by_case(found)) == len(found) == 51


def test_files_that_are_no_messages(sent: Ends) -> None:
    files = sorted(path for path in sent.shared.iterdir() if "goodbye" not in path.name)
    files[0].write_bytes(b"\xff" * 100)
    files[1].write_bytes(files[1].read_bytes()[:200])
    files[2].write_bytes(files[2].read_bytes().replace(b"Functional.gelu.0", b"Functional/gelu.0"))
    text = said(sent.checker("online", f"--probe-listen={sent.address}"))
    assert "refused:" in text
    assert "rank 0 has ended: 48 of the 51 entries that it sent were judged" in text
    # The first three are forward entries, of which the second and the third have a backward as well.
    assert len(sent.results("online")) == 51 - 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--probe-listen={folder}", "--probe-dump=dump.json"],
            "it needs cases that are known before the run, and with ",
        ),
        (["--probe-listen={folder}", "--collect-only"], "nothing can be collected before"),
        (["--probe-listen={folder}", "--probe-device=npu"], "--probe-device: 'npu' cannot be used"),
        (["--probe-listen=file:///proc/none"], "give a folder that can be written"),
        (["--probe-listen=none.json"], "give a configuration file that can be read"),
    ],
)
def test_what_does_not_go_with_it(pytester: pytest.Pytester, options: list[str], words: str) -> None:
    pytester.makefile(".json", dump='{"task": "statistics", "level": "L1", "data": {}}')
    folder = (pytester.path / "shared").as_uri()
    refusal(pytester, *(option.format(folder=folder) for option in options)).fnmatch_lines([f"*{words}*"])
