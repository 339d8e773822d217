"""The folder: bounded, the least recently used first, and safe for several processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from pytest_probe.check.kept import Kept
from pytest_probe.features.cache.folder import ABANDONED, Folder


def keep(folder: Folder, name: str, size: int = 1000) -> None:
    part = folder.begin()
    part.add("label", Kept({"output.0": np.zeros(size, np.uint8)}))
    folder.keep(part, name)


def names(path: Path) -> list[str]:
    return sorted(file.stem for file in path.iterdir())


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 10_000)
    for number in range(6):
        keep(folder, f"{number}")
        os.utime(tmp_path / f"{number}.reference", (number, number))
    assert folder.entry("0") is not None  # used now
    keep(folder, "6", 4000)
    left = names(tmp_path)
    assert {"0", "6"} <= set(left)
    assert "1" not in left
    assert left == sorted(left)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 10_000


def test_what_is_larger_than_the_folder_is_not_kept(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 10_000)
    keep(folder, "small")
    keep(folder, "large", 9_000)
    assert names(tmp_path) == ["small"]


def test_what_another_process_wrote_counts(tmp_path: Path) -> None:
    first, second = Folder(tmp_path, 10_000), Folder(tmp_path, 10_000)
    for number in range(5):
        keep(first, f"a{number}")
        keep(second, f"b{number}")
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 10_000


def test_parts_of_killed_processes_go_those_of_others_stay(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 10_000)
    old, new = folder.begin(), folder.begin()
    long_ago = time.time() - 2 * ABANDONED
    os.utime(old.path, (long_ago, long_ago))
    foreign = tmp_path / "movie.mp4.part"
    foreign.write_bytes(b"of a download")
    os.utime(foreign, (long_ago, long_ago))
    (tmp_path / "notes.txt").write_text("a user's own file")
    keep(folder, "entry")
    assert not old.path.exists()
    assert new.path.exists()
    assert (tmp_path / "notes.txt").exists()
    assert foreign.exists()
    assert folder.entry("entry") is not None
