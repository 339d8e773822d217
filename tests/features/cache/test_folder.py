"""The folder: bounded, the least recently used first, and safe for several processes."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_probe.check.reference_cache import CachedResult
from pytest_probe.features.cache.folder import ABANDONED, Entry, Folder, Part


def keep(folder: Folder, name: str, size: int = 1000) -> None:
    part = Part.begun(folder.path)
    part.add("label", CachedResult({"output.0": np.zeros(size, np.uint8)}))
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
    old, new = Part.begun(folder.path), Part.begun(folder.path)
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


ARRAYS = {
    "float64": np.array([1.5, -0.0, math.inf, math.nan, 5e-324]),
    "bfloat16": np.array([[1.5, 2.0]], ml_dtypes.bfloat16),
    "float8": np.array([0.5], ml_dtypes.float8_e4m3fn),
    "complex": np.array([1 + 2j, complex(math.nan, -math.inf)], np.complex64),
    "bool": np.array([True, False, True]),
    "int": np.array(-(2**63), np.int64),
    "empty": np.zeros((0, 3), np.float32),
    "turned": np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
}
PLAIN: dict[str, Any] = {"a": True, "b": -3, "c": 0.1, "d": -math.inf, "e": 1 - 2j, "f": 'a "text"\n', "g": None}
TOLD = {"changed": ["input.0"], "whole": True, "terms": 1.0}


def written(folder: Path) -> Path:
    part = Part.begun(folder)
    part.add("first", CachedResult({**ARRAYS, **PLAIN}, TOLD))
    part.add("second", CachedResult({"output.0": np.arange(5)}))
    part.finish(folder / "entry")
    return folder / "entry"


def test_what_is_written_is_read_bit_for_bit(tmp_path: Path) -> None:
    found = Entry.read(written(tmp_path))
    assert found is not None
    assert found.labels() == ("first", "second")
    first = found.result("first")
    assert first is not None
    assert first.other == TOLD
    assert {name: first.values[name] for name in PLAIN} == PLAIN
    for name, array in ARRAYS.items():
        read = first.values[name]
        assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes()), name
    # A sum goes over memory: it has the same last digits only where elements lie alike.
    assert first.values["turned"].strides == ARRAYS["turned"].strides
    assert os.listdir(tmp_path) == ["entry"]


def test_arrays_may_be_written_to_and_the_file_stays(tmp_path: Path) -> None:
    path = written(tmp_path)
    for _ in range(2):
        found = Entry.read(path)
        assert found is not None
        second = found.result("second")
        assert second is not None
        assert second.values["output.0"].tolist() == [0, 1, 2, 3, 4]
        second.values["output.0"][:] = 7


def test_no_damage_gives_other_numbers(tmp_path: Path) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    whole = Entry.read(path)
    assert whole is not None
    expected = repr([whole.result(label) for label in ("first", "second")])
    seen = set()
    for place in range(0, len(content), 3):
        damaged = tmp_path / "damaged"
        damaged.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        found = Entry.read(damaged)
        for label in ("first", "second"):
            result = None if found is None else found.result(label)
            seen.add(result is None)
            assert result is None or repr(result) in expected
        damaged.write_bytes(content[:place])
        assert Entry.read(damaged) is None
    assert seen == {True, False}  # padding holds nothing


@pytest.mark.parametrize("content", [b"", b"probe-reference\0", b"\0" * 200 + b"probe-reference\0"])
def test_a_damaged_entry_is_not_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "entry"
    path.write_bytes(content)
    assert Entry.read(path) is None
    assert Entry.read(tmp_path / "nothing") is None


def test_what_has_no_place_in_a_file(tmp_path: Path) -> None:
    part = Part.begun(tmp_path)
    with pytest.raises(TypeError, match="has no place in a file"):
        part.add("label", CachedResult({"output.0": tmp_path}))
    part.discard()
    assert os.listdir(tmp_path) == []
