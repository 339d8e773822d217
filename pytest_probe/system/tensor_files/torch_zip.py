"""Files as torch.save writes them: a zip of one pickle and of the bytes of all storages.

torch is not needed. The pickle is read by an unpickler that knows few names, all of them functions here, and few
instructions, none of which reserves memory; nothing in the file runs.
"""

from __future__ import annotations

import io
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from msgspec import Struct

from pytest_probe.system.tensor_files.base import (
    MAX_NAME,
    VIEWS,
    NamedTensors,
    SafeUnpickler,
    StoredTensor,
    check_instructions,
    itemsize,
    shape_trouble,
    shortened,
    unpickled,
)

_INSTRUCTIONS = frozenset(
    "PROTO GLOBAL BINPUT LONG_BINPUT BINGET LONG_BINGET MARK BINUNICODE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_TUPLE "
    "BINPERSID BININT BININT1 BININT2 LONG1 BINFLOAT NONE NEWFALSE NEWTRUE REDUCE BUILD STOP "
    "EMPTY_DICT SETITEM SETITEMS EMPTY_LIST APPEND APPENDS".split()
)
# Of 40 for each tensor; and bytes of the pickle.
_MOST_INSTRUCTIONS, _MOST_BYTES = 1 << 21, 1 << 24
_CONTENT, _ORDER = "data.pkl", b"little"
_DEPTH = 32
# Bytes that an expanded tensor may have, as for a packed file: so many, or so many times those of its file.
_EXPANDED, _TIMES = 256 << 20, 200
# The storages of each dtype, as files name them.
_STORAGES: Mapping[str, str] = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
_DTYPES = frozenset(
    (
        *(*_STORAGES.values(), "uint16", "uint32", "uint64"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
    )
)
# How a local header of a zip begins: name and extra field follow, stored bytes after them.
HEADER, _HEADER_BYTES = b"PK\3\4", 30
# How a file of PyTorch before 1.6 begins.
OLD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_PICKLE = b"\x80\x02"
_DICTIONARY = re.compile(rb"\x80\x02(?:\}|ccollections\nOrderedDict\n)")


def first_pickle(head: bytes) -> bytes:
    """The beginning of the pickle in a file that begins like this; nothing where it is no such file."""
    if head[:4] != HEADER or len(head) < _HEADER_BYTES or head[8:10] != b"\0\0":
        return b""
    name, extra = _lengths(head)
    end = _HEADER_BYTES + name
    content = head[end + extra :]
    return content if head[_HEADER_BYTES:end].endswith(b"/data.pkl") and content.startswith(_PICKLE) else b""


def is_dictionary(head: bytes) -> bool:
    """Does torch.save's file that begins like this hold a dictionary?"""
    return _DICTIONARY.match(first_pickle(head)) is not None


class _Tensor(Struct, frozen=True):
    """A tensor in the pickle, by its storage: the file of that, and how many elements it has. views: its metadata."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    storage: str
    held: int
    views: Mapping[str, Any]


class _Storage(Struct, frozen=True):
    dtype: str
    file: str
    held: int


class _Function(Struct, frozen=True):
    """What the pickle calls. An instruction that sets attributes finds none that it can set."""

    run: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        return self.run(*args)


class _Dict(dict[Any, Any]):
    def __setstate__(self, state: object) -> None:
        """Attributes, as those of a module's state, are no content."""


def _tensor(
    storage: Any, offset: Any, shape: Any, stride: Any, _grad: Any = None, _hooks: Any = None, metadata: Any = None
) -> _Tensor:
    if not isinstance(storage, _Storage) or not isinstance(shape, tuple) or not isinstance(stride, tuple):
        raise ValueError("it holds no tensor")
    whole = all(type(each) is int and each >= 0 for each in (offset, *shape, *stride))
    if not whole or len(shape) != len(stride):
        raise ValueError("it holds a tensor without a place in its storage")
    views = metadata if isinstance(metadata, dict) else {}
    return _Tensor(storage.dtype, shape, stride, offset, storage.file, storage.held, views)


def _tensor_in_bytes(
    storage: Any, offset: Any, shape: Any, stride: Any, grad: Any, hooks: Any, dtype: Any, metadata: Any = None
) -> _Tensor:
    """The same in a storage that has no dtype."""
    if not isinstance(storage, _Storage) or dtype not in _DTYPES:
        raise ValueError("it holds no tensor")
    storage = _Storage(dtype, storage.file, storage.held // itemsize(dtype))
    return _tensor(storage, offset, shape, stride, grad, hooks, metadata)


def _tensor_with_attributes(function: Any, _kind: Any, args: Any, _attributes: Any) -> Any:
    if not isinstance(function, _Function) or not isinstance(args, tuple):
        raise ValueError("it holds no tensor")
    return function(*args)


def _nothing(*_: Any) -> None:
    """What the pickle has where no tensor is."""


_NAMES: Mapping[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor_v2"): _Function(_tensor),
    ("torch._utils", "_rebuild_tensor_v3"): _Function(_tensor_in_bytes),
    ("torch._utils", "_rebuild_parameter"): _Function(lambda data, *_: data),
    ("torch._utils", "_rebuild_parameter_with_state"): _Function(lambda data, *_: data),
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"): _Function(lambda data, *_: data),
    ("torch._tensor", "_rebuild_from_type_v2"): _Function(_tensor_with_attributes),
    ("torch_npu.utils.storage", "_rebuild_npu_tensor"): _Function(lambda *args: _tensor(*args[:6])),
    ("torch", "Tensor"): None,
    ("torch.nn.parameter", "Parameter"): None,
    ("collections", "OrderedDict"): _Function(_Dict),
    ("torch", "Size"): _Function(_nothing),
    ("torch", "device"): _Function(_nothing),
    ("torch.storage", "UntypedStorage"): "uint8",
    **{("torch", name): dtype for name, dtype in _STORAGES.items()},
    **{("torch", dtype): dtype for dtype in _DTYPES},
}


class _Unpickler(SafeUnpickler):
    known = _NAMES

    def persistent_load(self, pid: Any) -> _Storage:
        """("storage", dtype, file, device, elements)"""
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage":
            raise ValueError("it points to something outside the file")
        _, dtype, file, _, held = pid
        if not isinstance(dtype, str) or not isinstance(file, str) or type(held) is not int:
            raise ValueError("it has a storage without a name")
        return _Storage(dtype, file, held)


def read_one(file: BinaryIO) -> StoredTensor:
    """The tensor that a file holds alone; strides of 0 may make it larger than the file. Raises OSError, or ValueError
    for any other file."""
    with _opened(file) as found:
        tree, _, storages = _content(found)
        if not isinstance(tree, _Tensor):
            raise ValueError(f"it holds a {type(tree).__name__.lstrip('_').lower()}, not a tensor")
        return _stored(file, tree, storages.get(tree.storage))


def read(file: BinaryIO, size: int) -> NamedTensors:
    """The tensors in a file of so many bytes, by their dotted names. Raises OSError, or ValueError for
    any other file."""
    with _opened(file) as found:
        tree, instructions, storages = _content(found)
        tensors: dict[str, StoredTensor] = {}
        damage, others = [], []
        for name, leaf in _leaves(tree, instructions):
            if not isinstance(leaf, _Tensor):
                others.append(name)
                continue
            try:
                tensor = _stored(file, leaf, storages.get(leaf.storage))
                expanded = math.prod(tensor.shape) * itemsize(tensor.dtype)
                if expanded > max(_EXPANDED, _TIMES * size):
                    raise ValueError(f"it has {expanded:,} bytes, more than a file of {size:,} bytes may expand to")
                tensors[name] = tensor
            except ValueError as error:
                damage.append(f"{shortened(name)}: {error}")
    return NamedTensors(tensors, tuple(damage), tuple(others))


@contextmanager
def _opened(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    if file.read(len(OLD)) == OLD:
        raise ValueError("PyTorch before 1.6 wrote it, or torch.save in that format; load it and save it again")
    try:
        with zipfile.ZipFile(file) as found:
            yield found
    except (zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise ValueError(f"it is no file of a tensor ({error})") from error


def _content(found: zipfile.ZipFile) -> tuple[Any, int, Mapping[str, zipfile.ZipInfo]]:
    """What the pickle in the zip holds, of how many instructions that is, and the storages by their names."""
    entries = {entry.filename: entry for entry in found.infolist()}
    name = next((name for name in entries if name.endswith(f"/{_CONTENT}")), None)
    if name is None:
        raise ValueError("it holds no tensor")
    folder = name.removesuffix(_CONTENT)
    order = entries.get(f"{folder}byteorder")
    if order is not None and (order.file_size > len(_ORDER) or found.read(order) != _ORDER):
        raise ValueError("its numbers are not in little-endian order")
    if entries[name].file_size > _MOST_BYTES:
        raise ValueError(f"its pickle has {entries[name].file_size:,} bytes, expected at most {_MOST_BYTES:,}")
    prefix = f"{folder}data/"
    storages = {name.removeprefix(prefix): entry for name, entry in entries.items() if name.startswith(prefix)}
    data = found.read(name)
    count = check_instructions(data, _INSTRUCTIONS, _MOST_INSTRUCTIONS)
    return unpickled(_Unpickler, io.BytesIO(data)), count, storages


def _leaves(tree: Any, most: int) -> Iterator[tuple[str, Any]]:
    """What lies in dictionaries and lists, by dotted names. Raises ValueError where they repeat one another, as no more
    parts than instructions show, or are nested too deep."""
    open_items = [iter([("", tree)])]
    seen = 0
    while open_items:
        item = next(open_items[-1], None)
        if item is None:
            open_items.pop()
            continue
        seen += 1
        if seen > most or len(open_items) > _DEPTH:
            raise ValueError(f"its dictionaries and lists repeat one another, or are nested deeper than {_DEPTH}")
        if isinstance(item[1], dict | list | tuple):
            open_items.append(_items(*item))
        else:
            yield item


def _items(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        part = key if isinstance(key, str) else str(key) if type(key) is int else type(key).__name__
        if len(name) + len(part) >= MAX_NAME:
            raise ValueError(f"it has a name of {len(name) + len(part):,} characters, expected fewer than {MAX_NAME:,}")
        yield f"{name}.{part}" if name else part, each


def _stored(file: BinaryIO, tensor: _Tensor, entry: zipfile.ZipInfo | None) -> StoredTensor:
    """Where a tensor lies in the file. Raises ValueError where no such tensor can."""
    trouble = shape_trouble(tensor.shape)
    if trouble:
        raise ValueError(trouble)
    if entry is None or entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
        raise ValueError(f"its storage {shortened(tensor.storage)} is not there, or is packed")
    steps = zip(tensor.shape, tensor.stride, strict=True)
    span = 1 + sum((extent - 1) * stride for extent, stride in steps) if 0 not in tensor.shape else 0
    width = itemsize(tensor.dtype)
    held = min(tensor.held, entry.file_size // width)
    if tensor.offset + span > held:
        raise ValueError(f"it ends at element {tensor.offset + span:,} of a storage of {held:,}")
    file.seek(entry.header_offset)
    header = file.read(_HEADER_BYTES)
    if not header.startswith(HEADER):
        raise zipfile.BadZipFile(f"no file begins at byte {entry.header_offset:,}")
    start = entry.header_offset + _HEADER_BYTES + sum(_lengths(header))
    size = file.seek(0, os.SEEK_END)
    if start + entry.file_size > size:
        raise ValueError(f"its storage ends at byte {start + entry.file_size:,} of a file of {size:,}")
    stride = None if _is_in_order(tensor) else tensor.stride
    views = tuple(name for name in VIEWS if tensor.views.get(name))
    return StoredTensor(tensor.dtype, tensor.shape, start + tensor.offset * width, span, stride, views)


def _lengths(header: bytes) -> tuple[int, int]:
    """Bytes of the name and of the extra field behind a local header."""
    name, extra = struct.unpack_from("<HH", header, _HEADER_BYTES - 4)
    return name, extra


def _is_in_order(tensor: _Tensor) -> bool:
    step = 1
    for extent, stride in zip(reversed(tensor.shape), reversed(tensor.stride), strict=True):
        if extent != 1 and stride != step:
            return 0 in tensor.shape
        step *= extent
    return True
