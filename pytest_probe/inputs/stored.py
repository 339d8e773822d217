"""Tensors that a dump kept as files. A dump is untrusted: names lead nowhere else, and sizes are checked first."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
from msgspec import Struct, field

from pytest_probe.errors import RecordError
from pytest_probe.model.dump import FIELDS, TensorSpec
from pytest_probe.numerics.dtypes import AnyArray, is_floating, numpy_dtype
from pytest_probe.system import archive

# A file may hold a little more than its tensor: headers, padding, the rest of a small storage.
_FILE_FACTOR = 4
_FILE_EXTRA = 1 << 20
# What every error about a file can advise.
_GENERATE = "--probe-inputs=generated makes values from the statistics instead"
_NAMED = "in a folder that --probe-data-dir=DIR names"


class StoredTensors(Struct, frozen=True):
    """The tensor files of one dump.

    data_dirs are the folders in which bare file names are looked up, in order; load reads what is not `.npy` (the
    framework's own files) without running anything in it. A file lies in the dump's folder after links are resolved,
    unless anywhere is true. fields says what the dump calls the places of tensors, gradient_dirs where the files of
    gradients are, if elsewhere.
    """

    dump_path: Path
    data_dirs: tuple[Path, ...]
    load: Callable[[Path | BinaryIO], AnyArray]
    anywhere: bool = False
    fields: Mapping[str, str] = field(default_factory=lambda: FIELDS)
    gradient_dirs: tuple[Path, ...] = ()

    def place(self, record: str, path: str) -> tuple[str, str]:
        """The entry and the field of an argument ("input.0", "grad.0"), as the dump calls them."""
        root, _, rest = path.partition(".")
        direction = "backward" if root == "grad" else "forward"
        return f"{record}.{direction}", f"{self.fields[root]}.{rest}"

    def array(self, spec: TensorSpec, entry: str, field: str) -> AnyArray:
        """The stored values, in the recorded dtype and shape.

        entry and field name the tensor in errors ("Functional.linear.0.forward", "input_args.0").
        Raises RecordError where the name is no bare name, the file is not there, too large or not readable, or holds
        something else than was recorded.
        """

        def error(found: str, wanted: str) -> RecordError:
            return RecordError(self.dump_path, entry, where, found, wanted)

        where = f"{spec.place}, {field}" if spec.place else field
        dtype = _dtype(spec, error)
        folders = self.gradient_dirs if self.gradient_dirs and entry.endswith(".backward") else self.data_dirs
        path = self._find(spec, folders, error)
        size, allowed = archive.size(path), _FILE_FACTOR * spec.size * dtype.itemsize + _FILE_EXTRA
        if not size:
            raise error(f"{path}, which is empty", f"a stored tensor; {_GENERATE}")
        size = max(size, _unpacked(path))
        if size > allowed:
            raise error(f"a file of {size} bytes, {path}", f"at most {allowed} for {spec.dtype} of shape {spec.shape}")
        array = self._read(path, error)
        if array.shape != spec.shape:
            raise error(f"shape {array.shape} in {path}", f"shape {spec.shape} as recorded; {_GENERATE}")
        same = _in_dtype(array, dtype)
        if same is None:
            raise error(f"dtype {array.dtype} in {path}", f"{spec.dtype} as recorded; {_GENERATE}")
        return same

    def _find(self, spec: TensorSpec, among: tuple[Path, ...], error: Callable[[str, str], RecordError]) -> Path:
        name = spec.data_name or ""
        if name in ("", ".", "..") or Path(name).name != name or any(mark in name for mark in "/\\\0"):
            raise error(f"data_name {name!r}", "the bare name of a file beside the dump")
        for folder in among:
            path = folder / name
            if archive.is_file(path):
                if self.anywhere or path.resolve().is_relative_to(self.dump_path.parent.resolve()):
                    return path
                raise error(f"{path}, a link out of the dump's folder", f"a file in it, or {_NAMED}")
        folders = ", ".join(map(str, among)) or "no folder"
        raise error(f"no file {name!r} in {folders}", f"the stored tensor there, or {_NAMED}; {_GENERATE}")

    def _read(self, path: Path, error: Callable[[str, str], RecordError]) -> AnyArray:
        try:
            if archive.split(path) is not None:
                return self._of_archive(path)
            if path.suffix != ".npy":
                return self.load(path)
            # Mapped, not read: a header that promises more than the file holds is refused before memory is taken.
            return np.array(np.load(path, mmap_mode="r", allow_pickle=False))
        except MemoryError:
            raise
        except Exception as failure:  # damage makes a framework raise whatever it happens to trip over
            found = f"{path}, which cannot be read ({_said(failure)})"
            raise error(found, f"a stored tensor; {_GENERATE}") from failure

    def _of_archive(self, path: Path) -> AnyArray:
        with archive.open_file(path) as file:
            return _npy(file.read()) if path.suffix == ".npy" else self.load(file)


def _npy(content: bytes) -> AnyArray:
    """The array in a file of NumPy's. Raises ValueError or TypeError, before memory is taken, where it is not whole."""
    file = BytesIO(content)
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, in_columns, dtype = header(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    return np.ndarray(shape, dtype, content, file.tell(), order="F" if in_columns else "C").copy()


def _unpacked(path: Path) -> int:
    """The bytes that an archive says it takes: torch packs none, and takes the memory before it looks. 0 for others."""
    try:
        with archive.open_file(path) as file, zipfile.ZipFile(file) as found:
            return sum(entry.file_size for entry in found.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error):
        return 0


def _said(failure: Exception) -> str:
    """What an exception says, without the advice that follows: torch's is to load the file unsafely."""
    return str(failure).split("\n")[0].split(". ")[0].rstrip(".") or type(failure).__name__


def _dtype(spec: TensorSpec, error: Callable[[str, str], RecordError]) -> np.dtype[np.generic]:
    try:
        return numpy_dtype(spec.dtype)
    except ValueError as failure:
        raise error(f"dtype {spec.dtype!r}", str(failure)) from failure


def _in_dtype(array: AnyArray, dtype: np.dtype[np.generic]) -> AnyArray | None:
    """The array in the recorded dtype, None where it is another one's.

    NumPy's files know bfloat16 and float8 as raw bytes only, Paddle's bfloat16 as uint16, and MindSpore writes both as
    float32.
    """
    if array.dtype == dtype:
        return array
    if array.dtype == np.uint16 and dtype.name == "bfloat16":
        return array.view(dtype)
    if not is_floating(dtype) or dtype.itemsize > 2:
        return None
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)
    if array.dtype != np.float32:
        return None
    with np.errstate(all="ignore"):
        narrow = array.astype(dtype)
    return narrow if np.array_equal(narrow.astype(np.float32), array, equal_nan=True) else None
