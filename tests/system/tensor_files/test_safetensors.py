from __future__ import annotations

import json
import tracemalloc
from contextlib import suppress
from io import BytesIO
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_probe.system.tensor_files import NamedTensors, StoredTensor, itemsize
from pytest_probe.system.tensor_files.safetensors import is_safetensors, read
from tests.support.tensor_files import safetensors, with_header

GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def _read(data: bytes) -> NamedTensors:
    return read(BytesIO(data), len(data))


def test_tensors_lie_behind_the_header() -> None:
    arrays: dict[str, np.ndarray] = {"a/b": np.zeros((2, 3), np.float32), "c": np.zeros((), np.int64)}
    data = safetensors(**arrays)
    begin = len(data) - 32
    assert is_safetensors(data)
    assert _read(data).tensors == {
        "a/b": StoredTensor("float32", (2, 3), begin, 6),
        "c": StoredTensor("int64", (), begin + 24, 1),
    }


def test_the_library_writes_what_is_read() -> None:
    torch = pytest.importorskip("safetensors.torch")
    import torch as framework

    dtypes = [
        *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "float8_e4m3fn", "float8_e5m2"),
    ]
    written = torch.save({dtype: framework.ones(3).to(getattr(framework, dtype)) for dtype in dtypes}, {"by": "me"})
    found = _read(written)
    assert {name: tensor.dtype for name, tensor in found.tensors.items()} == {dtype: dtype for dtype in dtypes}
    assert {(tensor.shape, tensor.span) for tensor in found.tensors.values()} == {((3,), 3)}
    assert found.damage == ()


@pytest.mark.parametrize(
    "head", [b"", b"{}", b'{"task": "statistics"}', b"\0" * 8, b"\xff" * 8 + b"{", '﻿{"a": 1}'.encode("utf-16")]
)
def test_other_files_are_none(head: bytes) -> None:
    assert not is_safetensors(head)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            with_header({}, length=2**31),
            "it says that its header has 2,147,483,648 bytes, which are at most 100,000,000",
        ),
        (with_header({}, length=90), "its header is cut off: it has 90 bytes, of which 2 are there"),
        (with_header(b"[1, 2]"), "its header is no JSON object"),
        (with_header(b'{"a": '), "its header is no JSON object"),
        (with_header(b'{"\xff": 1}'), "its header is no JSON object"),
        (with_header(b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "its header is no JSON object"),
        (b"\x01\0\0", "its header is cut off: it has 1 bytes, of which 0 are there"),
    ],
)
def test_a_header_that_cannot_be_read(data: bytes, message: str) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match="^" + message.replace("(", r"\(")):
        _read(data)
    assert tracemalloc.get_traced_memory()[1] < 10 * len(data) + (1 << 20)
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (GOOD | {"dtype": "F6"}, "the dtype F6, expected one of BOOL, F16, BF16, F32, F64"),
        (GOOD | {"dtype": "F4", "shape": [2, 3]}, "F4 of shape [2, 3], expected an even last dimension"),
        (GOOD | {"dtype": 7}, "its entry cannot be read (Expected `str`, got `int` - at `$.dtype`)"),
        (GOOD | {"shape": [-2]}, "its shape has something else than integers from 0 on"),
        (GOOD | {"shape": [2**63]}, "its shape has something else than integers from 0 on"),
        (GOOD | {"shape": [2.0]}, "its entry cannot be read (Expected `int`, got `float`"),
        (GOOD | {"shape": [1] * 65}, "it has 65 dimensions, expected at most 64"),
        (GOOD | {"shape": [0, 2**62]}, "its sizes without zeros have a product of 2**59 or more"),
        (GOOD | {"shape": [3]}, "the offsets 0 and 8, expected 12 bytes for F32 of its shape"),
        (GOOD | {"shape": [2**62, 2]}, "the offsets 0 and 8, expected 36893488147419103232 bytes"),
        (GOOD | {"data_offsets": [8, 0]}, "the offsets 8 and 0, expected 8 bytes"),
        (GOOD | {"data_offsets": [-8, 0]}, "the offsets -8 and 0, expected 8 bytes"),
        (GOOD | {"data_offsets": [0]}, "its entry cannot be read (Expected `array` of length 2"),
        ({}, "its entry cannot be read (Object missing required field `dtype`)"),
        (None, "its entry cannot be read (Expected `object`, got `null`)"),
    ],
)
def test_a_tensor_that_cannot_be_had_leaves_the_others(entry: Any, message: str) -> None:
    found = _read(with_header({"good": GOOD, "bad": entry}, bytes(8)))
    assert [*found.tensors] == ["good"]
    (damage,) = found.damage
    assert damage.startswith(f"bad: {message}")


def test_two_float4_share_a_byte() -> None:
    found = _read(with_header({"a": {"dtype": "F4", "shape": [2, 16], "data_offsets": [0, 16]}}, bytes(16)))
    assert (found.tensors["a"].dtype, found.tensors["a"].shape) == ("float4_e2m1fn_x2", (2, 8))


def test_a_tensor_may_not_end_beyond_the_file() -> None:
    data = with_header({"a": GOOD, "b": GOOD | {"data_offsets": [8, 16]}}, bytes(15))
    found = _read(data)
    assert [*found.tensors] == ["a"]
    assert found.damage == (f"b: it ends at byte {len(data) + 1} of a file of {len(data)}",)


def test_tensors_may_not_overlap() -> None:
    entries = {name: GOOD | {"data_offsets": [at, at + 8]} for name, at in (("c", 8), ("b", 4), ("a", 0))}
    entries["empty"] = {"dtype": "F32", "shape": [0], "data_offsets": [2, 2]}
    found = _read(with_header(entries, bytes(16)))
    assert [*found.tensors] == ["c", "a", "empty"]
    assert found.damage == ("b: it begins inside a",)


def test_a_name_has_a_limit() -> None:
    names = ["a" * 1000, "b" * 1001, "c\0/../d"]
    found = _read(
        with_header({name: GOOD | {"data_offsets": [8 * i, 8 * i + 8]} for i, name in enumerate(names)}, bytes(24))
    )
    assert [*found.tensors] == [names[0], names[2]]
    assert found.damage == (f"{'b' * 77}...: its name has 1,001 characters, expected at most 1,000",)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_OFFSETS = st.lists(st.integers(-2, 40) | st.sampled_from([2**31, 2**63, 2**70]), min_size=1, max_size=3)
_ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "BOOL", "I64", "F8_E4M3", "F4", ""]),
        "shape": st.lists(st.integers(-1, 4) | st.sampled_from([2**31, 2**62]), max_size=3),
        "data_offsets": _OFFSETS,
    }
)


@given(
    st.dictionaries(st.text(max_size=4), _ENTRIES | _JSON, max_size=5) | _JSON, st.integers(0, 40), st.integers(0, 300)
)
def test_whatever_a_header_says_all_tensors_lie_in_the_file_and_apart(header: Any, content: int, cut: int) -> None:
    data = with_header(json.dumps(header).encode(), bytes(content))
    data = data[: len(data) - cut] if cut < 20 else data
    try:
        found = _read(data)
    except ValueError:
        return
    places = sorted((t.start, t.start + t.span * itemsize(t.dtype)) for t in found.tensors.values() if t.span)
    assert all(8 <= first <= last <= len(data) for first, last in places)
    assert all(one[1] <= other[0] for one, other in pairwise(places))
    assert len(found.tensors) + len(found.damage) == len(set(header) - {"__metadata__"})


@given(st.binary(max_size=80))
def test_any_bytes_are_tensors_or_an_error(data: bytes) -> None:
    with suppress(ValueError):
        assert len(_read(data).tensors) <= len(data)
