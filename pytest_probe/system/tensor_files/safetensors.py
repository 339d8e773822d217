"""Files of safetensors: the length of a header, the header as JSON, and the bytes of all tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from pytest_probe.system.tensor_files.base import (
    MAX_NAME,
    NamedTensors,
    StoredTensor,
    itemsize,
    shape_trouble,
    shortened,
)

_LENGTH = 8
# Bytes of a header, as the format itself limits them.
_MAX_HEADER = 100_000_000
# No text begins with a number below that: its eighth byte is none of a text's.
_NO_TEXT = 1 << 48
_NO_TENSOR = "__metadata__"
_FLOAT4 = "F4"  # whose shape counts numbers, two a byte
_DTYPES: Mapping[str, str] = {
    **{"BOOL": "bool", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"},
    **{"C64": "complex64", "C128": "complex128"},
    **{f"{kind[0].upper()}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu"},
    **{"F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", _FLOAT4: "float4_e2m1fn_x2"},
}

_NAMES: Mapping[str, str] = {dtype: name for name, dtype in _DTYPES.items()}
# The dtypes that the format has, by their bare names.
DTYPES = frozenset(_NAMES)


class _Entry(Struct):
    """A tensor in the header; offsets are counted from the header's end."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


_HEADER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXTS = msgspec.json.Decoder(dict[str, str])
_ENTRY = msgspec.json.Decoder(_Entry)


def is_safetensors(head: bytes) -> bool:
    """Does a file with this beginning say how long its header is, and then begin it?"""
    return int.from_bytes(head[:_LENGTH], "little") < _NO_TEXT and head[_LENGTH:].lstrip()[:1] == b"{"


def read(file: BinaryIO, size: int, most: int = _MAX_HEADER) -> NamedTensors:
    """The tensors of a file of so many bytes, whose header has at most so many. Raises ValueError where none can be
    read."""
    length = int.from_bytes(file.read(_LENGTH), "little")
    if length > most:
        raise ValueError(f"it says that its header has {length:,} bytes, which are at most {most:,}")
    begin = _LENGTH + length
    if begin > size:
        raise ValueError(
            f"its header is cut off: it has {length:,} bytes, of which {max(size - _LENGTH, 0):,} are there"
        )
    try:
        header = _HEADER.decode(file.read(length))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header is no JSON object ({error})") from None
    found: dict[str, StoredTensor] = {}
    texts, damage = dict[str, str](), list[str]()
    try:
        texts = _TEXTS.decode(header.pop(_NO_TENSOR, b"{}"))
    except (ValueError, RecursionError) as error:
        damage.append(f"{_NO_TENSOR}: it cannot be read ({error})")
    for name, raw in header.items():
        tensor = _tensor(name, raw, begin, size)
        if isinstance(tensor, str):
            damage.append(f"{shortened(name)}: {tensor}")
        else:
            found[name] = tensor
    damage += _overlaps(found)
    return NamedTensors(found, tuple(damage), texts=texts)


def written(tensors: Mapping[str, tuple[str, tuple[int, ...], memoryview]], texts: Mapping[str, str]) -> Iterator[Any]:
    """The parts of a file with these tensors, each as its dtype's bare name, its shape and its bytes, and with these
    texts. A tensor's bytes are the memory that was given, its dtype one of DTYPES."""
    header: dict[str, Any] = {_NO_TENSOR: dict(texts)}
    begin = 0
    for name, (dtype, shape, content) in tensors.items():
        known = _NAMES[dtype]
        counted = (*shape[:-1], 2 * shape[-1]) if known == _FLOAT4 else shape
        header[name] = _Entry(known, counted, (begin, begin + content.nbytes))
        begin += content.nbytes
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % _LENGTH)
    yield len(text).to_bytes(_LENGTH, "little") + text
    yield from (content for _, _, content in tensors.values())


def _tensor(name: str, raw: msgspec.Raw, begin: int, size: int) -> StoredTensor | str:
    """A tensor, or what is wrong with it."""
    if len(name) > MAX_NAME:
        return f"its name has {len(name):,} characters, expected at most {MAX_NAME:,}"
    try:
        entry = _ENTRY.decode(raw)
    except (ValueError, RecursionError) as error:
        return f"its entry cannot be read ({error})"
    dtype = _DTYPES.get(entry.dtype)
    if dtype is None:
        return f"the dtype {shortened(entry.dtype)}, expected one of {', '.join(_DTYPES)}"
    shape = entry.shape
    trouble = shape_trouble(shape)
    if trouble:
        return trouble
    if entry.dtype == _FLOAT4:
        if not shape or shape[-1] % 2:
            return f"{entry.dtype} of shape {list(shape)}, expected an even last dimension: two numbers share a byte"
        shape = (*shape[:-1], shape[-1] // 2)
    (first, end), count = entry.data_offsets, math.prod(shape)
    if not 0 <= first <= end or end - first != count * itemsize(dtype):
        return f"the offsets {first} and {end}, expected {count * itemsize(dtype)} bytes for {entry.dtype} of its shape"
    if begin + end > size:
        return f"it ends at byte {begin + end:,} of a file of {size:,}"
    return StoredTensor(dtype, shape, begin + first, count)


def _overlaps(found: dict[str, StoredTensor]) -> list[str]:
    """What is wrong with tensors that begin inside another one; they are taken out."""
    damage = []
    last, end = "", 0
    for name, tensor in sorted(found.items(), key=lambda item: item[1].start):
        if tensor.span and tensor.start < end:
            damage.append(f"{shortened(name)}: it begins inside {shortened(last)}")
            del found[name]
        elif tensor.span:
            last, end = name, tensor.start + tensor.span * itemsize(tensor.dtype)
    return damage
