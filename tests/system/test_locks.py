from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.system.files import DeviceLock

if sys.platform == "win32":
    pytest.skip("Windows has no locks that several processes can share", allow_module_level=True)

# Takes the device in one of the two ways, says so, and keeps it until it is told something.
HOLDS = """
import sys
from contextlib import nullcontext
from pathlib import Path
from pytest_probe.system.files import DeviceLock

lock = DeviceLock(Path(sys.argv[1]), nullcontext)
print("asks", flush=True)
with getattr(lock, sys.argv[2])():
    print("has", flush=True)
    sys.stdin.readline()
"""


class Other:
    """Another process."""

    def __init__(self, path: Path, how: str) -> None:
        command = [sys.executable, "-c", HOLDS, str(path), how]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.says("asks")

    def says(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n"

    def let_go(self) -> None:
        self.process.communicate("\n", timeout=20)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of a lock. A process holds its locks until it ends: the files of those that a test makes are closed here."""
    made: list[DeviceLock] = []
    init = DeviceLock.__init__

    def kept(lock: DeviceLock, *args: Any) -> None:
        made.append(lock)
        init(lock, *args)

    monkeypatch.setattr(DeviceLock, "__init__", kept)
    yield tmp_path / "running" / "cuda-0.lock"
    for lock in made:
        lock._file.close()


def test_many_run_beside_one_another(path: Path) -> None:
    def waiting() -> nullcontext[None]:
        raise AssertionError("nobody has to wait")

    other, lock = Other(path, "shared"), DeviceLock(path, waiting)
    other.says("has")
    with lock.shared():
        assert not lock.others_wait()
    other.let_go()


@pytest.mark.parametrize(
    ("theirs", "ours"), [("shared", "exclusive"), ("exclusive", "shared"), ("exclusive", "exclusive")]
)
@pytest.mark.parametrize("dies", [False, True])
def test_one_who_is_alone_waits_and_is_waited_for(path: Path, theirs: str, ours: str, dies: bool) -> None:
    waited = []

    @contextmanager
    def waiting() -> Iterator[None]:
        waited.append(True)
        other.process.kill() if dies else other.let_go()
        yield

    other, lock = Other(path, theirs), DeviceLock(path, waiting)
    other.says("has")
    with getattr(lock, ours)():
        pass
    assert waited == [True]
    other.process.communicate()


def test_who_wants_to_be_alone_is_next(path: Path) -> None:
    """While it waits for the last one to end its case, nobody else begins one."""
    lock = DeviceLock(path, nullcontext)
    with lock.shared():
        assert not lock.others_wait()
        alone = Other(path, "exclusive")
        while not lock.others_wait():
            pass
        late = Other(path, "shared")
    alone.says("has")
    alone.let_go()
    late.says("has")
    late.let_go()
