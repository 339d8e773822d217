"""One call of an api_accuracy_checker dump, decoded: what the JSON says becomes a Call, or a RecordError that names the
field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from msgspec import Struct

from pytest_probe.errors import RecordError
from pytest_probe.model.dump import Argument, Call, Record, TensorSpec
from pytest_probe.records.api_accuracy_checker.tensor_files import described
from pytest_probe.records.fields import ArgumentFields, quoted
from pytest_probe.records.msprobe.leaves import LEAVES
from pytest_probe.records.msprobe.tensors import tensor
from pytest_probe.system import archive

_TENSOR = "torch.Tensor"
_FILE = "datapath"


class Folders(Struct, frozen=True):
    """Where the files of tensors are looked up: of arguments, and of gradients."""

    arguments: tuple[Path, ...]
    gradients: tuple[Path, ...]


def decode(path: Path, folders: Folders, record: Record) -> Call:
    """The call that a record of the dump at path describes. Raises RecordError."""
    if record.forward is None:
        raise RecordError(path, f"{record.name}.backward", "", "no forward entry", "the forward entry of the same call")
    try:
        forward = _Entry(path, f"{record.name}.forward", folders.arguments)
        body = forward.object(record.forward)
        args = forward.items(forward.need(body, "args", "", list, "a list of arguments"), "args")
        kwargs = forward.optional(body, "kwargs", "", dict, "an object of arguments")
        named = {key: forward.argument(value, f"kwargs.{key}") for key, value in kwargs.items()}
        return Call(tuple(args), named, None, _gradients(path, folders.gradients, record))
    except RecursionError:
        raise RecordError(path, record.name, "", "values nested too deep", "fewer than about 500 levels") from None


def _gradients(path: Path, folders: tuple[Path, ...], record: Record) -> tuple[TensorSpec | None, ...] | None:
    """The incoming gradients: those of the outputs."""
    if record.backward is None:
        return None
    entry = _Entry(path, f"{record.name}.backward", folders)
    found = tuple(entry.argument(value, f"input.{index}") for index, value in enumerate(entry.list(record.backward)))
    for index, item in enumerate(found):
        if not isinstance(item, TensorSpec | None):
            raise entry.error(f"input.{index}", quoted(type(item).__name__), "a tensor or null")
    return found


class _Entry(ArgumentFields):
    def __init__(self, path: Path, name: str, folders: tuple[Path, ...]) -> None:
        super().__init__(path, name)
        self.folders = folders

    def list(self, raw: Any) -> Sequence[Any]:
        """A backward entry's own JSON, which is a list."""
        body = self.decoded(raw)
        if not isinstance(body, list):
            raise self.error("", quoted(body), "a list of gradients")
        return body

    def items(self, values: Sequence[Any], field: str) -> Sequence[Argument]:
        return [self.argument(value, f"{field}.{index}") for index, value in enumerate(values)]

    def argument(self, value: Any, field: str) -> Argument:
        if value is None:
            return None
        if isinstance(value, list):
            return self.items(value, field)
        if not isinstance(value, dict):
            raise self.error(field, quoted(value), "an object, a list or null")
        return self.described(value, value.get("type"), field)

    def leaf(self, kind: str, value: Mapping[str, Any], field: str) -> Argument:
        if kind == _TENSOR:
            return tensor(self, self.located(value, field), field)
        if kind == "NoneType":
            return None
        read = LEAVES.get(kind.removeprefix("numpy."))
        if read is None:
            raise self.no_place(f"{field}.type", quoted(kind))
        return read(self, value, field)

    def located(self, value: Mapping[str, Any], field: str) -> Mapping[str, Any]:
        """A tensor with the bare name of its file, and with dtype and shape, which the file alone tells."""
        if value.get(_FILE) is None:
            return {key: item for key, item in value.items() if key != "data_name"}
        name = self.bare_name(self.need(value, _FILE, field, str, "the path of a file"), field)
        found = {**value, "data_name": name}
        if "dtype" in value and "shape" in value:
            return found
        place = f"{field}.{_FILE}"
        self.file_name(found, "data_name", field)
        path = next((each / name for each in self.folders if archive.is_file(each / name)), None)
        if path is None or not path.resolve().is_relative_to(self.path.parent.resolve()):
            raise self.error(place, f"no file {name!r} in {_told(self.folders)}", "the stored tensor there")
        try:
            dtype, shape = described(path)
        except (OSError, ValueError) as error:
            raise self.error(place, f"{path}, which cannot be read ({error})", "a stored tensor") from error
        return {**found, "dtype": dtype, "shape": shape}

    def bare_name(self, text: str, field: str) -> str:
        """The file's name without the folders of the machine that wrote the dump."""
        parts = PureWindowsPath(text).parts if "\\" in text else PurePosixPath(text).parts
        if ".." in parts or not parts:
            raise self.error(f"{field}.{_FILE}", quoted(text), "the path of a file, without '..'")
        return parts[-1]


def _told(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders)) or "no folder"
