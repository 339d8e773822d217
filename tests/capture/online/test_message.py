from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from pytest_probe.capture.online.message import Entry, NoMessage, Sender, encoded, read
from pytest_probe.inputs.build import stored_array

SENDER = Sender("0123abcd", 1, 4)
ENTRY = Entry(SENDER, 3, 7, "Functional.linear.0.forward", '{"Max": NaN}', {"task": "tensor"}, ["File a.py, line 1"])


def written(path: Path, *parts: bytes) -> Path:
    path.write_bytes(b"".join(parts))
    return path


def test_an_entry_with_its_tensors(tmp_path: Path) -> None:
    tensors = {
        "input.0": np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3),
        "input.1": np.zeros((0, 3), np.float32),
        "kwargs.alpha": np.array(1 + 2j),
        "output": np.array([True, False]),
        "turned": np.arange(6.0).reshape(2, 3).T,
    }
    path = written(tmp_path / "a", *encoded(ENTRY, tensors))
    assert read(path) == ENTRY
    for name, array in tensors.items():
        found = stored_array(path, name)
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (b'\\"version\\":1', b'\\"version\\":2', "its text is of another version, expected 1"),
        (b"pytest_probe", b"other_probes", "it has no text 'pytest_probe'"),
        (b"Functional.linear.0.f", b"Functional/linear.0.f", "its entry has a name that no call has"),
        (b"0123abcd", b"0123ABCD", "its text cannot be read"),
        (b'\\"step\\":3', b'\\"step\\":-', "its text cannot be read"),
        (b"entry", b"entri", "its text cannot be read"),
        (b'{"__meta', b'["__meta', "its header is no JSON object"),
    ],
)
def test_what_is_no_message(tmp_path: Path, before: bytes, after: bytes, words: str) -> None:
    whole = b"".join(encoded(ENTRY))
    assert before in whole
    with pytest.raises(NoMessage, match=words):
        read(written(tmp_path / "a", whole.replace(before, after)))


@pytest.mark.parametrize("length", [0, 7, 8, 100])
def test_a_message_that_is_cut(tmp_path: Path, length: int) -> None:
    with pytest.raises(NoMessage):
        read(written(tmp_path / "a", b"".join(encoded(ENTRY))[:length]))
