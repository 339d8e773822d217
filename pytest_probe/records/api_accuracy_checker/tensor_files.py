"""Dtype and shape of a tensor file, where the dump does not tell them: its small pickle is read by an unpickler that
knows few names and runs nothing."""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_probe.system import archive

# What a pickle of one tensor needs. Places in its memo of more than a byte would take memory for all before them.
_INSTRUCTIONS = frozenset(
    "PROTO GLOBAL BINPUT BINGET MARK BINUNICODE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_TUPLE BINPERSID BININT BININT1 "
    "BININT2 LONG1 NEWFALSE NEWTRUE REDUCE STOP EMPTY_DICT".split()
)
_MOST_INSTRUCTIONS, _MOST_BYTES = 1000, 1 << 16
_CONTENT = "data.pkl"
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


def described(path: Path) -> tuple[str, list[int]]:
    """Bare dtype and shape of the tensor in a file. Raises OSError, or ValueError for what is no such file."""
    with archive.open_file(path) as file:
        try:
            with zipfile.ZipFile(file) as found:
                entry = next((each for each in found.infolist() if each.filename.endswith(f"/{_CONTENT}")), None)
                if entry is None or entry.file_size > _MOST_BYTES:
                    raise ValueError("it holds no tensor")
                data = found.read(entry)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
            raise ValueError(f"it is no file of a tensor ({error})") from error
    return _tensor(data)


def _tensor(data: bytes) -> tuple[str, list[int]]:
    try:
        for count, (instruction, _, _) in enumerate(pickletools.genops(data)):
            if instruction.name not in _INSTRUCTIONS or count > _MOST_INSTRUCTIONS:
                raise ValueError(f"its pickle has the instruction {instruction.name}, which a stored tensor has not")
        found = _Unpickler(io.BytesIO(data)).load()
    except ValueError:
        raise
    except Exception as error:  # whatever the pickle's instructions lead to
        raise ValueError(f"it is no pickle of a tensor ({type(error).__name__})") from error
    if not isinstance(found, _Tensor):
        raise ValueError("it holds no tensor")
    return found.dtype, found.shape


class _Tensor:
    """What stands for the tensor: of its storage the dtype is known."""

    def __init__(self, storage: Any, _offset: Any, shape: Any, *_: Any) -> None:
        if not isinstance(storage, str) or not isinstance(shape, tuple):
            raise ValueError("it holds no tensor")
        self.dtype = storage
        self.shape = list(shape)


def _parameter(data: Any, *_: Any) -> Any:
    return data


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known: Mapping[tuple[str, str], Any] = {
            ("torch._utils", "_rebuild_tensor_v2"): _Tensor,
            ("torch._utils", "_rebuild_parameter"): _parameter,
            ("collections", "OrderedDict"): OrderedDict,
        }
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) not in known:
            raise ValueError(f"it names {module}.{name}, which a stored tensor does not need")
        return known[module, name]

    def persistent_load(self, pid: Any) -> Any:
        """("storage", dtype, file, device, elements)"""
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage":
            raise ValueError("it points to something outside the file")
        return pid[1]
