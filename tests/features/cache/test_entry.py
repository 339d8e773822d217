"""A file of the cache: what is written is read, and what is damaged is not there."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_probe.check.kept import Kept
from pytest_probe.features.cache.entry import Entry, Part

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
    part.add("first", Kept({**ARRAYS, **PLAIN}, TOLD))
    part.add("second", Kept({"output.0": np.arange(5)}))
    part.finish(folder / "entry")
    return folder / "entry"


def test_what_is_written_is_read_bit_for_bit(tmp_path: Path) -> None:
    found = Entry.read(written(tmp_path))
    assert found is not None
    assert found.labels() == ("first", "second")
    first = found.result("first")
    assert first is not None
    assert first.told == TOLD
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
    """Each byte that counts, turned; and each cut."""
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
def test_what_is_no_entry(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "entry"
    path.write_bytes(content)
    assert Entry.read(path) is None
    assert Entry.read(tmp_path / "nothing") is None


def test_what_has_no_place_in_a_file(tmp_path: Path) -> None:
    part = Part.begun(tmp_path)
    with pytest.raises(TypeError, match="has no place in a file"):
        part.add("label", Kept({"output.0": tmp_path}))
    part.discard()
    assert os.listdir(tmp_path) == []
