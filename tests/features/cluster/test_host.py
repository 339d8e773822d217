"""A host without Ray: what its process runs, how it dies, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_probe import records
from pytest_probe.features.cluster.host import Host
from pytest_probe.features.cluster.messages import ItemReports, Outcome, Place, RunFacts, SentCase, SentDump, Start
from pytest_probe.model.dump import Dump, no_frames, no_modules
from tests.acceptance.conftest import entries
from tests.support.settings import settings_of

pytestmark = pytest.mark.slow

PLACE = Place("0123456789abcdef", "node", 0, 1)
# A conftest in which argmax ends the process.
DIES = """
import os

def pytest_probe_inputs(case, arguments):
    if case.record.api == "argmax":
        os._exit(7)
"""


@pytest.fixture
def dump(tmp_path: Path) -> Dump:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"task": "statistics", "level": "L1", "framework": "pytorch", "data": entries()}))
    return records.read_dump(path, records.READERS)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    (tmp_path / "conftest.py").write_text(DIES)
    found = Host(start(tmp_path), PLACE)
    yield found
    found.close()


def start(folder: Path, **settings: object) -> Start:
    place = str(folder)
    return Start(
        ("--probe-cluster=ray", "-p", "no:cacheprovider", "-p", "no:rerunfailures", "-p", "no:randomly"),
        place,
        place,
        tuple(sys.path),
        (place,),
        {"OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": None},
        settings_of(devices=("cpu",), **settings),
        {"testrunuid": "1"},
    )


def cases(dump: Dump, *apis: str) -> bytes:
    bare = SentDump(0, dump.path, dump.path.name, replace(dump, records=(), stack=no_frames, modules=no_modules))
    sent = [
        SentCase(f"dump.json::{record.name}.forward", bare, record, "forward", None, None, None)
        for api in apis
        for record in dump.records
        if record.api == api
    ]
    return pickle.dumps(sent)


def ran(outcome: Outcome) -> list[ItemReports]:
    return [pickle.loads(content) for content in outcome.ran]


def test_items_run_one_after_another_and_what_died_is_told(host: Host, dump: Dump) -> None:
    ready = host.ready()
    assert ready.trouble == ""
    assert (ready.name, ready.devices[0]["device"]) == ("cpu", "cpu")
    first = host.run(cases(dump, "relu", "linear"), {})
    assert [found.item for found in ran(first)] == [0, 1]
    assert first.death is None
    assert all(len(found.reports) == 3 for found in ran(first))
    second = host.run(cases(dump, "linear", "argmax", "relu"), {})
    assert [found.item for found in ran(second)] == [0]
    assert second.death is not None
    assert second.death.ending.status == 7
    assert second.death.running.item == "dump.json::Torch.argmax.0.forward"
    # The next process runs what was left.
    third = host.run(cases(dump, "relu"), {})
    assert (len(third.ran), third.death) == (1, None)


def test_a_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import nothing_of_this_name\n")
    host = Host(start(tmp_path), PLACE)
    try:
        trouble = host.ready().trouble
        assert trouble.splitlines()[0].startswith("pytest ended with status 4") or "died" in trouble
        outcome = host.run(pickle.dumps([]), {})
        assert outcome.death is not None
        assert outcome.death.running.item == ""
    finally:
        host.close()


def test_a_closed_host_leaves_no_process_and_no_folder(tmp_path: Path, dump: Dump) -> None:
    (tmp_path / "conftest.py").write_text("")
    host = Host(start(tmp_path), PLACE)
    host.tell(RunFacts())
    host.ready()
    process, folder = host._process.pid, host._folder
    assert Path(f"/proc/{process}").exists() or os.name != "posix"
    host.close()
    assert host._process.returncode == 0
    assert not folder.exists()
