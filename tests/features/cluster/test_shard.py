"""A shard without Ray: what its process runs, how it dies, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_probe.features.cluster import shard
from pytest_probe.features.cluster.shard import Died, Message, Start, content_of, run_shard, versions
from pytest_probe.plugin.device_reports import Described
from tests.acceptance.conftest import entries
from tests.support.settings import settings_of

pytestmark = pytest.mark.slow

PLACE = "node", 1
LINEAR, RELU, ARGMAX = (
    f"dump.json::{name}.0.forward" for name in ("Functional.linear", "Functional.relu", "Torch.argmax")
)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"task": "statistics", "level": "L1", "framework": "pytorch", "data": entries()}))
    return path


def start(folder: Path, dumps: Sequence[Path], *items: str) -> Start:
    return Start(
        ("--probe-cluster=ray", "-p", "no:cacheprovider", "-p", "no:rerunfailures", "-p", "no:randomly"),
        str(folder),
        tuple(map(str, dumps)),
        {"OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": None, "PYTHONPATH": os.pathsep.join(sys.path)},
        settings_of(devices=("cpu",), dumps=tuple(dumps)),
        {"testrunuid": "1"},
        {str(dump): content_of(str(dump)) for dump in dumps},
        items=items,
    )


def run(begins: Start, say: Callable[[Sequence[Message]], None]) -> None:
    run_shard(versions(), pickle.dumps(begins), begins.items, *PLACE, say)


def said(begins: Start) -> list[Message]:
    found: list[Message] = []
    run(begins, found.extend)
    return found


def names(messages: Sequence[Message]) -> list[Any]:
    """The items that ended, and those that a process died of."""
    return [
        message[0] if isinstance(message, tuple) else message.item if isinstance(message, Died) else Described
        for message in messages
    ]


def test_items_run_in_their_order_and_what_died_is_told(tmp_path: Path, dump: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        """
import os

def pytest_probe_inputs(case, arguments):
    if case.record.api == "argmax":
        os._exit(7)
"""
    )
    found = said(start(tmp_path, [dump], LINEAR, ARGMAX, RELU))
    # The next process runs what was left.
    assert names(found) == [Described, LINEAR, ARGMAX, Described, RELU]
    device, linear, died, _, _ = found
    assert isinstance(device, Described)
    assert (device.name, device.devices[0]["device"]) == ("cpu", "cpu")
    assert isinstance(linear, tuple)
    assert len(pickle.loads(linear[1])[0]) == 3
    assert isinstance(died, Died)
    assert died.verdict is not None
    assert (died.verdict.verdict, died.verdict.kind) == ("error", "crash")
    assert died.verdict.reason.startswith("the process died with exit status 7")


def test_what_is_killed_runs_again_once(tmp_path: Path, dump: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        """
import os, signal

def pytest_probe_inputs(case, arguments):
    if case.record.api == "argmax":
        os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    found = said(start(tmp_path, [dump], ARGMAX))
    assert names(found) == [Described, ARGMAX] * 2
    verdicts = [message.verdict for message in found if isinstance(message, Died)]
    assert verdicts[0] is None
    assert verdicts[1] is not None
    assert "death 2 of this case" in verdicts[1].reason


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"files": {"/nowhere/dump.json": "sha256:0 1"}},
            "'/nowhere/dump.json' cannot be used; node node cannot read it",
        ),
        ({"files": {__file__: ""}}, "node node has another file there; put it where all nodes have the same path"),
        ({"files": {"/nowhere": "a folder"}}, "'/nowhere' cannot be used; node node cannot read it"),
    ],
)
def test_a_node_that_does_not_fit_runs_nothing(tmp_path: Path, dump: Path, changed: dict[str, Any], words: str) -> None:
    found: list[Message] = []
    with pytest.raises(RuntimeError, match=words):
        run(replace(start(tmp_path, [dump], RELU), **changed), found.extend)
    assert len(found) == 1
    assert isinstance(found[0], Described)
    assert found[0].trouble


def test_a_node_of_another_version_is_named_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match=r"node node has pytest .*, and this process 1\.0"):
        run_shard({**versions(), "pytest": "1.0"}, b"another format", (), *PLACE, lambda messages: None)
    monkeypatch.setattr(shard, "_SAME", ("no-such-package",))
    with pytest.raises(RuntimeError, match="node node has no-such-package none, and this process 2"):
        run_shard({**versions(), "no-such-package": "2"}, b"", (), *PLACE, lambda messages: None)


def test_a_dump_of_the_same_size_and_tensors_of_another_size_are_others(tmp_path: Path, dump: Path) -> None:
    """What a run may write into their folder is none of them."""
    before = content_of(str(dump))
    dump.write_text(dump.read_text().replace("relu", "gelu"))
    assert content_of(str(dump)) != before
    folder = tmp_path / "tensors"
    folder.mkdir()
    (folder / "a.npy").write_bytes(b"12")
    begins = start(tmp_path, [dump, folder], RELU)
    (folder / "log.txt").touch()
    assert content_of(str(folder)) == begins.files[str(folder)]
    (folder / "a.npy").write_bytes(b"123")
    with pytest.raises(RuntimeError, match=r"tensors' cannot be used; node node has other tensors there"):
        said(begins)
    (folder / "a.npy").unlink()
    assert content_of(str(folder)) != begins.files[str(folder)]


def test_the_process_of_the_shard_has_another_version(tmp_path: Path, dump: Path) -> None:
    begins = start(tmp_path, [dump], RELU)
    place = tmp_path / "path" / "msgspec-0.1.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: msgspec\nVersion: 0.1\n")
    path = os.pathsep.join([str(place.parent), *sys.path])
    with pytest.raises(RuntimeError, match=r"node node has msgspec 0\.1, and this process"):
        said(replace(begins, environment={**begins.environment, "PYTHONPATH": path}))


def test_items_that_are_not_there_end_the_shard(tmp_path: Path, dump: Path) -> None:
    found: list[Message] = []
    with pytest.raises(RuntimeError, match="1 item of a shard did not run on node node: its pytest stopped"):
        run(start(tmp_path, [dump], RELU, "dump.json::Torch.other.0.forward"), found.extend)
    assert names(found) == [Described, RELU]


@pytest.mark.parametrize(("items", "words"), [((), ""), ((RELU,), "between cases: ")])
def test_a_process_that_never_starts_says_why(tmp_path: Path, dump: Path, items: tuple[str, ...], words: str) -> None:
    """Of a shard that only describes the device the node is refused: no other one is tried here."""
    (tmp_path / "conftest.py").write_text("import nothing_of_this_name\n")
    found: list[Message] = []
    with pytest.raises(RuntimeError, match=f"{words}[^$]*nothing_of_this_name"):
        run(start(tmp_path, [dump], *items), found.extend)
    if not items:
        assert isinstance(found[-1], Described)
        assert "nothing_of_this_name" in found[-1].trouble


def test_a_batch_ends_at_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "_TICK", 60.0)
    monkeypatch.setattr(shard, "_BYTES", 5)
    ours, theirs = Pipe()
    for message in (Described(), *(("item", b"123") for _ in range(4)), None):
        theirs.send(message)
    with ours, theirs:
        assert [len(messages) for messages in shard._messages(ours)] == [1, 2, 2, 1]


def test_a_shard_leaves_no_process_and_no_folder(tmp_path: Path, dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    Path(tmp_path, "temporary").mkdir()
    (tmp_path / "conftest.py").write_text(
        f"import os\nfrom pathlib import Path\nPath({str(tmp_path)!r}, 'process').write_text(str(os.getpid()))"
    )

    def lost(messages: Sequence[Message]) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        run(start(tmp_path, [dump], RELU), lost)
    assert not Path("/proc", (tmp_path / "process").read_text()).exists() or os.name != "posix"
    assert [path.suffix for path in (tmp_path / "temporary").iterdir()] == [".lock"]
