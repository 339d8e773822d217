"""A shard without Ray: what it says, why it does not run, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_probe.features.cluster import shard
from pytest_probe.features.cluster.shard import Start, content_of, run_shard, versions
from pytest_probe.features.cluster.worker import written_at
from tests.acceptance.conftest import entries
from tests.support import forks
from tests.support.settings import settings_of

LINEAR, RELU, OTHER = (
    f"dump.json::{name}.0.forward" for name in ("Functional.linear", "Functional.relu", "Torch.other")
)
PROGRAM = """
import os, pickle, tempfile
from pytest_probe.features.cluster.shard import run_shard

with open("start", "rb") as file:
    wanted, begin, items = pickle.load(file)
tempfile.tempdir = os.path.abspath("temporary")
said = []
why = run_shard(wanted, begin, items, "here", 1, said.append)
with open("said", "wb") as file:
    pickle.dump((said, why), file)
"""

WORKER_DIES = """
import os
from pytest_probe.plugin import xdist

xdist.IDLE_DEATHS = 0
if "PYTEST_XDIST_WORKER" in os.environ:
    os._exit(3)
"""


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"task": "statistics", "level": "L1", "framework": "pytorch", "data": entries()}))
    return path


def start(folder: Path, *dumps: Path) -> Start:
    return Start(
        ("--probe-cluster=ray", "-p", "no:cacheprovider", "-p", "no:rerunfailures", "-p", "no:randomly"),
        str(folder),
        tuple(sys.path),
        tuple(map(str, dumps)),
        {"OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": None, "PYTEST_XDIST_WORKER": None},
        settings_of(devices=("cpu",), dumps=tuple(dumps)),
        {"testrunuid": "1"},
        {str(dump): content_of(str(dump)) for dump in dumps},
    )


def said(begins: Start, *items: str) -> tuple[list[Any], str]:
    """What a shard says, and why not all ran, in a process of its own, as Ray gives it one."""
    folder = Path(begins.folder)
    (folder / "program.py").write_text(PROGRAM)
    (folder / "start").write_bytes(pickle.dumps((versions(), pickle.dumps(begins), items)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    (folder / "temporary").mkdir()
    process = forks.run(["program.py"], folder, environment)
    assert process.returncode == 0, process.stderr
    assert [path.suffix for path in (folder / "temporary").iterdir() if path.name.startswith("pytest-probe-")] == [
        ".lock"
    ]
    found: tuple[list[Any], str] = pickle.loads((folder / "said").read_bytes())
    return found


def refused(wanted: dict[str, str], begin: bytes) -> str:
    """Why a node runs nothing."""
    messages: list[Any] = []
    why = run_shard(wanted, begin, (), "here", 1, messages.append)
    assert not messages
    return why


@pytest.mark.slow
def test_what_a_shard_says(tmp_path: Path, dump: Path) -> None:
    """An item that is not there does not keep the others from running."""
    (tmp_path / "conftest.py").write_text(
        "import os\nfrom pathlib import Path\n"
        f"def pytest_probe_inputs(case, arguments):\n    Path({str(tmp_path)!r}, 'pid').write_text(str(os.getpid()))\n"
    )
    (described, *ran), why = said(start(tmp_path, dump), RELU, LINEAR, OTHER)
    assert [device["device"] for device in described] == ["cpu"]
    # Not the costliest first: where the shard is lost, the first that has no result is the one that ran.
    assert [item for item, _ in ran] == [RELU, LINEAR]
    assert [[report["when"] for report in reports] for _, reports in ran] == [["setup", "call", "teardown"]] * 2
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists() or os.name != "posix"
    assert why == "its pytest stopped, or did not collect them"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("conftest", "words"),
    [
        ("import nothing_of_this_name", "No module named 'nothing_of_this_name'"),
        (WORKER_DIES, "the process on node here died with exit status 3"),
    ],
)
def test_a_process_that_never_starts_says_why(tmp_path: Path, dump: Path, conftest: str, words: str) -> None:
    (tmp_path / "conftest.py").write_text(conftest)
    messages, why = said(start(tmp_path, dump), LINEAR)
    assert not messages
    assert why.endswith(words)


@pytest.mark.slow
def test_a_device_that_is_unknown_here_is_refused_as_on_any_machine(tmp_path: Path, dump: Path) -> None:
    begins = replace(start(tmp_path, dump), settings=settings_of(devices=("tpu",), dumps=(dump,)))
    messages, why = said(begins)
    assert not messages
    assert why.startswith("--probe-device: 'tpu' cannot be used; torch says: ")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"/nowhere/dump.json": "sha256:0 1"}, "'/nowhere/dump.json' cannot be used; node here cannot read it"),
        ({__file__: ""}, "node here has another file there; put it where all nodes have the same path"),
        ({"/nowhere": "a folder"}, "'/nowhere' cannot be used; node here cannot read it"),
    ],
)
def test_a_node_that_does_not_fit_runs_nothing(tmp_path: Path, files: dict[str, str], words: str) -> None:
    assert words in refused(versions(), pickle.dumps(replace(start(tmp_path), files=files)))


def test_a_node_of_another_version_is_named_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    why = refused({**versions(), "pytest": "1.0"}, b"another format")
    assert "node here has pytest " in why
    assert why.endswith("and this process 1.0; install the same")
    monkeypatch.setattr(shard, "_SAME", ("no-such-package",))
    why = refused({**versions(), "no-such-package": "2"}, b"")
    assert "node here has no-such-package none, and this process 2" in why


def test_a_dump_of_the_same_size_and_tensors_of_another_size_are_others(tmp_path: Path, dump: Path) -> None:
    """What a run may write into their folder is none of them."""
    before = content_of(str(dump))
    dump.write_text(dump.read_text().replace("relu", "gelu"))
    assert content_of(str(dump)) != before
    folder = tmp_path / "tensors"
    folder.mkdir()
    (folder / "a.npy").write_bytes(b"12")
    begins = start(tmp_path, dump, folder)
    (folder / "log.txt").touch()
    assert content_of(str(folder)) == begins.files[str(folder)]
    (folder / "a.npy").write_bytes(b"123")
    assert "tensors' cannot be used; node here has other tensors there" in refused(versions(), pickle.dumps(begins))
    (folder / "a.npy").unlink()
    assert content_of(str(folder)) != begins.files[str(folder)]


def test_no_piece_of_a_file_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many messages wait, and what files hold may be larger than memory."""
    monkeypatch.setattr(shard, "_PIECE", 2)
    (tmp_path / "out").mkdir()
    for size in (0, 4, 5):
        (tmp_path / "out" / f"{size}.pt").write_bytes(b"12345"[:size])
    found: dict[str, list[bytes]] = {}
    for path, piece in shard.pieces(tmp_path):
        found.setdefault(path, []).append(piece)
    assert found == {"/out/0.pt": [b""], "/out/4.pt": [b"12", b"34"], "/out/5.pt": [b"12", b"34", b"5"]}


def test_a_relative_path_belongs_to_the_folder_of_the_run() -> None:
    assert written_at("/run/here", Path("/sent"), Path("../saved/a.pt")) == Path("/sent/run/saved/a.pt")
    assert written_at("/run/here", Path("/sent"), Path("/out/a.pt")) == Path("/sent/out/a.pt")
