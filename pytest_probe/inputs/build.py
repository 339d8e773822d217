"""The arguments of a case: stored tensors where a dump has them, generated ones of the same statistics elsewhere.

A dump is untrusted: the names of its tensor files lead nowhere else, and sizes are checked first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from msgspec import Struct, field

from pytest_probe.errors import LostArgument, RecordError, Unsupported
from pytest_probe.inputs.draws import RecordStreams, round_to_dtype
from pytest_probe.inputs.fills import exact_values, is_exact
from pytest_probe.inputs.generated import draw, generate_in, kind_of
from pytest_probe.inputs.memory import is_layout, offset, without_repeats
from pytest_probe.inputs.planted import plant, supposed
from pytest_probe.inputs.role_table import is_planted, roles
from pytest_probe.inputs.roles import NoValues, Role
from pytest_probe.model.dump import FIELDS, Argument, Call, Dump, TensorSpec, named_tensors
from pytest_probe.model.run import Arguments, Array, BoundCall, Leaf, map_tree
from pytest_probe.numerics.arrays import contiguous
from pytest_probe.numerics.dtypes import DTYPES, PACKED, AnyArray, dtype_name, is_floating, numpy_dtype
from pytest_probe.system import archive
from pytest_probe.system.files import open_regular
from pytest_probe.system.tensor_files import StoredTensor, paddle_pickle, stored_tensors, torch_zip
from pytest_probe.user_errors import first_line

# A file may hold a little more than its tensor: headers, padding, the rest of a small storage.
_FILE_FACTOR = 4
_FILE_EXTRA = 1 << 20
# Bytes up to which a file is read as a whole: to map one takes as long as to read these.
_READ = 1 << 22
_VIEWS: Mapping[str, Callable[[AnyArray], AnyArray]] = {"conj": np.conjugate, "neg": np.negative}
# What every error about a file can advise.
_GENERATE = "--probe-inputs=generated makes values from the statistics instead"
_NAMED = "in a folder that --probe-data-dir=DIR names"


class StoredTensors(Struct, frozen=True):
    """The tensor files of one dump.

    data_dirs are the folders in which bare file names are looked up, in order. A file lies in the dump's folder after
    links are resolved, unless anywhere is true. fields says what the dump calls the places of tensors, gradient_dirs
    where the files of gradients are, if elsewhere.
    """

    dump_path: Path
    data_dirs: tuple[Path, ...]
    anywhere: bool = False
    fields: Mapping[str, str] = field(default_factory=lambda: FIELDS)
    gradient_dirs: tuple[Path, ...] = ()

    @classmethod
    def of(cls, dump: Dump) -> StoredTensors:
        return cls(dump.path, dump.data_dirs, dump.anywhere, dump.fields, dump.gradient_dirs)

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
        where = f"{spec.place}, {field}" if spec.place else field
        error = functools.partial(RecordError, self.dump_path, entry, where)
        dtype = _dtype(spec, error)
        path = self._find(spec, self._folders(entry), error)
        if not spec.data_key:
            # A file of this tensor alone is neither empty, nor too large for it.
            size, allowed = archive.size(path), _FILE_FACTOR * spec.size * dtype.itemsize + _FILE_EXTRA
            if not size:
                raise error(f"{path}, which is empty", f"a stored tensor; {_GENERATE}")
            if size > allowed:
                most = f"at most {allowed} for {spec.dtype} of shape {spec.shape}"
                raise error(f"a file of {size} bytes, {path}", most)
        array = self._read(path, spec.data_key, error)
        if array.shape != spec.shape:
            raise error(f"shape {array.shape} in {path}", f"shape {spec.shape} as recorded; {_GENERATE}")
        same = _in_dtype(array, dtype)
        if same is None:
            raise error(f"dtype {array.dtype} in {path}", f"{spec.dtype} as recorded; {_GENERATE}")
        return same

    def path(self, spec: TensorSpec, entry: str, field: str) -> Path:
        """Where the file of a tensor is; the arguments and errors are those of `array`."""
        return self._find(spec, self._folders(entry), functools.partial(RecordError, self.dump_path, entry, field))

    def _folders(self, entry: str) -> tuple[Path, ...]:
        return self.gradient_dirs if self.gradient_dirs and entry.endswith(".backward") else self.data_dirs

    def _find(self, spec: TensorSpec, among: tuple[Path, ...], error: Callable[[str, str], RecordError]) -> Path:
        name = spec.data_name or ""
        if name in ("", ".", "..") or Path(name).name != name or any(mark in name for mark in "/\\\0"):
            raise error(f"data_name {name!r}", "the bare name of a file next to the dump")
        for folder in among:
            path = folder / name
            if archive.is_file(path):
                if self.anywhere or _inside(path, self.dump_path.parent):
                    return path
                raise error(f"{path}, a link out of the dump's folder", f"a file in it, or {_NAMED}")
        folders = ", ".join(map(str, among)) or "no folder"
        raise error(f"no file {name!r} in {folders}", f"the stored tensor there, or {_NAMED}; {_GENERATE}")

    def _read(self, path: Path, key: str, error: Callable[[str, str], RecordError]) -> AnyArray:
        try:
            if key:
                return stored_array(path, key)
            if path.suffix != ".npy" or archive.split(path) is not None:
                with archive.open_file(path) as file:
                    if path.suffix == ".npy":
                        return _npy(file.read())
                    # The tensor that a file of torch's or of Paddle's holds alone.
                    head = file.read(len(torch_zip.OLD))
                    file.seek(0)
                    of_paddle = head.startswith(b"\x80") and head != torch_zip.OLD
                    return paddle_pickle.load(file) if of_paddle else _values(file, torch_zip.read_one(file))
            if path.stat().st_size < _READ:
                return _npy(path.read_bytes())
            # Mapped first: a header that promises more than the file holds is refused before memory is taken.
            np.load(path, mmap_mode="r", allow_pickle=False)
            whole: AnyArray = np.load(path, allow_pickle=False)
            return whole
        except MemoryError:
            raise
        except Exception as failure:  # damage makes NumPy raise whatever it happens to trip over
            found = f"{path}, which cannot be read ({first_line(failure)})"
            raise error(found, f"a stored tensor; {_GENERATE}") from failure


# How files of NumPy's usually begin: version 1.0, and a header that ends after so many bytes.
_USUAL, _USUAL_SIZE = b"\x93NUMPY\x01\x00\x76\x00", 128


def _inside(path: Path, folder: Path) -> bool:
    """Does a file lie in a folder after links are resolved? Of one that is no link its own folder decides."""
    if path.is_symlink():
        return path.resolve().is_relative_to(_resolved(folder))
    return _below(path.parent, folder)


@functools.lru_cache(64)
def _below(inner: Path, folder: Path) -> bool:
    return _resolved(inner).is_relative_to(_resolved(folder))


@functools.lru_cache(64)
def _resolved(folder: Path) -> Path:
    return folder.resolve()


def stored_array(path: Path, key: str) -> AnyArray:
    """One tensor of a file that holds many: only its part of the file is read. Raises OSError and ValueError."""
    with open_regular(path) as file:
        return contiguous(_values(file, stored_tensors(path).tensors[key]))


def _values(file: BinaryIO, stored: StoredTensor) -> AnyArray:
    """The values of a tensor in a file, on no more memory than they take there."""
    dtype = numpy_dtype(stored.dtype)
    content = np.empty(stored.span * dtype.itemsize, np.uint8)
    file.seek(stored.start)
    if file.readinto(content) != len(content):  # type: ignore[attr-defined]
        raise ValueError("it ends too early")
    values = content.view(dtype)
    for name in stored.views:
        values = _VIEWS[name](values)
    if stored.stride is None:
        return values.reshape(stored.shape)
    steps = [stride * dtype.itemsize for stride in stored.stride]
    # Not as_strided, which asks for the dtype by a name that NumPy does not have for float8_e5m2.
    return np.ndarray(stored.shape, dtype, values.view(np.uint8), 0, steps)


def _npy(content: bytes) -> AnyArray:
    """The array in a file of NumPy's. Raises ValueError or TypeError, before memory is taken, where it is not whole."""
    # Tensors of one dtype and shape have one header, which NumPy compiles as Python.
    usual = content.startswith(_USUAL) and len(content) >= _USUAL_SIZE
    shape, in_columns, dtype, begin = _known_header(content[:_USUAL_SIZE]) if usual else _header(content)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if math.prod(shape) * dtype.itemsize > len(content) - begin:
        raise ValueError("it ends too early")
    return np.ndarray(shape, dtype, content, begin, order="F" if in_columns else "C").copy()


def _header(content: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, whether columns come first, dtype, and where the values begin. Raises ValueError or TypeError."""
    file = BytesIO(content)
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return (*header(file), file.tell())


_known_header = functools.lru_cache(256)(_header)


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
    if dtype_name(dtype) == PACKED:
        return array.view(dtype) if array.dtype in (np.uint8, np.dtype("V1")) else None
    if not is_floating(dtype) or dtype.itemsize > 2:
        return None
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)
    if array.dtype != np.float32:
        return None
    with np.errstate(all="ignore"):
        narrow = array.astype(dtype)
    return narrow if np.array_equal(narrow.astype(np.float32), array, equal_nan=True) else None


_COMPLEX_OF = {"float32": "complex64", "float64": "complex128"}


def build(
    call: Call, *, bound: BoundCall, record: str, dtype: str | None, seed: int, kind: str, files: StoredTensors
) -> Arguments:
    """The arguments of one call, in the recorded dtypes or with every floating tensor rounded to dtype.

    kind is "auto", "generated", "stored" or "exact" (integers and powers of two, of which sums of products are exact).
    bound is the same call with its arguments by name, record the record's name
    ("Functional.linear.0"). Complex tensors go to the complex dtype of dtype's width where NumPy has one, else they
    stay. Generated values are drawn for the
    recorded dtype, so all dtypes see the same ones, rounded. A tensor that was passed twice is
    one array in both places.
    Raises RecordError where a tensor cannot be had, Unsupported where kind is "stored" and the dump has only
    statistics.
    """
    for path, spec in (*call.tensors(), *named_tensors(call.gradients, "grad")):
        if spec.dtype not in DTYPES:
            (entry, field), wanted = files.place(record, path), "a dtype that NumPy or ml_dtypes has"
            raise RecordError(files.dump_path, entry, f"{field}.dtype", repr(spec.dtype), wanted)
    return _Builder(call, bound, record, dtype, seed, kind, files).arguments()


def _stream(path: str) -> str:
    """The name of an argument's random numbers, which seeds of recorded runs depend on."""
    root, _, rest = path.partition(".")
    return f"args.{rest}" if root == "input" else path


class _Builder:
    def __init__(
        self, call: Call, bound: BoundCall, record: str, dtype: str | None, seed: int, kind: str, files: StoredTensors
    ) -> None:
        self._call, self._record, self._dtype, self._kind, self._files = call, record, dtype, kind, files
        self._bound = bound
        self._streams = RecordStreams(record, seed)
        self._roles: Mapping[str, Role] = {} if kind == "stored" else roles(bound, call)
        # For each argument that is the same tensor as another, the one whose values both have: the first that has a
        # role, else the first.
        first: dict[object, str] = {}
        found: dict[str, object] = {}
        for path, spec in call.tensors():
            if spec.address and spec.size:
                found[path] = key = (spec.address, spec.dtype, spec.shape, spec.stride)
                # An index that is passed twice must be one in both places.
                if key not in first or (path in self._roles and first[key] not in self._roles):
                    first[key] = path
        self._first = {path: first[key] for path, key in found.items()}
        self._made: dict[str, AnyArray] = {}

    def arguments(self) -> Arguments:
        gradients = self._call.gradients
        return Arguments(
            args=tuple(map_tree(value, f"input.{i}", self._argument) for i, value in enumerate(self._call.args)),
            kwargs={
                name: map_tree(value, f"kwargs.{name}", self._argument) for name, value in self._call.kwargs.items()
            },
            gradients=None
            if gradients is None
            else tuple(None if spec is None else self._leaf(spec, f"grad.{i}") for i, spec in enumerate(gradients)),
        )

    def _argument(self, value: Argument, path: str) -> Argument:
        if not isinstance(value, TensorSpec):
            return value
        leaf = self._leaf(value, path)
        return Array(leaf.array) if value.ndarray else leaf

    def _leaf(self, spec: TensorSpec, path: str) -> Leaf:
        # What was one tensor in the program has one array of values here.
        first = self._first.get(path, path)
        values = self._made.get(first)
        if values is None:
            target, kind = spec.dtype, kind_of(spec.dtype)
            if self._dtype is not None and not spec.ndarray and kind in ("float", "complex"):
                target = self._dtype if kind == "float" else _COMPLEX_OF.get(self._dtype, spec.dtype)
            values = self._made[first] = self._values(spec, first, target)
        return Leaf(values, spec.requires_grad, spec.stride if is_layout(spec) else None, offset(spec))

    def _values(self, spec: TensorSpec, path: str, dtype: str) -> AnyArray:
        if self._kind == "exact" and is_exact(spec) and path not in self._roles:
            # The argument at this place, or in whose list it is.
            places = self._bound.paths.items()
            parameter = next((name for name, place in places if f"{path}.".startswith(f"{place}.")), "")
            stream = self._streams.at(_stream(path))
            return exact_values(spec, dtype, stream, scales=parameter.startswith("scale_"))
        if self._kind != "generated" and spec.data_name is not None:
            return round_to_dtype(self._files.array(spec, *self._files.place(self._record, path)), dtype)
        if self._kind == "stored":
            entry, field = self._files.place(self._record, path)
            raise Unsupported(
                f"{self._files.dump_path}: {entry}: {field}: no tensor was stored, and --probe-inputs=stored was given",
                kind="no stored tensors",
            )
        if self._kind != "generated" and spec.values is not None:
            return round_to_dtype(np.array(spec.values, spec.dtype).reshape(spec.shape), dtype)
        return self._generated(spec, path, dtype)

    def _generated(self, spec: TensorSpec, path: str, dtype: str) -> AnyArray:
        own, stream, role = without_repeats(spec), self._streams.at(_stream(path)), self._roles.get(path)
        if role is not None and own.size:
            try:
                values = round_to_dtype(role.make(own, stream), dtype)
            except NoValues as error:
                entry, field = self._files.place(self._record, path)
                found, wanted = "a tensor whose values were not stored", "its values, which are a size"
                raise LostArgument(self._files.dump_path, entry, field, found, wanted) from error
        elif kind_of(spec.dtype) == "float" and is_planted(self._bound, path):
            numbers = plant(draw(supposed(own), stream, dtype), own, stream)
            values = round_to_dtype(numbers, dtype).reshape(own.shape)
        else:
            values = generate_in(own, stream, dtype)
        return values if own is spec else np.array(np.broadcast_to(values, spec.shape))
