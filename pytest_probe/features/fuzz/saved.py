"""A finding as a record of a dump of our own: a regression case from then on."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pytest_probe import frameworks
from pytest_probe.errors import DumpError
from pytest_probe.features.fuzz.finding import Finding
from pytest_probe.model.arguments import Leaf
from pytest_probe.model.dump import TENSOR_FOLDER, DtypeSpec
from pytest_probe.system.files import replacing
from pytest_probe.system.locks import try_lock

PAUSE = 0.05  # seconds
HEADER: Mapping[str, Any] = {"task": "tensor", "level": "L1", "dump_data_dir": TENSOR_FOLDER}
PLAIN = (bool, int, float, str)


def append(path: Path, found: Finding, framework: str) -> str:
    """Add the call to the dump of its framework in a folder, which is made where there is none; the record's name.
    Raises OSError, and DumpError for a file that is no dump, or one of another framework, and for a call with an
    argument that is neither a tensor nor plain."""
    path.mkdir(parents=True, exist_ok=True)
    file = path / "dump.json"
    with (path / ".lock").open("w") as lock:
        while not try_lock(lock):  # another worker appends
            time.sleep(PAUSE)
        content = _read(file, framework) if file.exists() else {**HEADER, "framework": framework, "data": {}}
        api, data = found.api, content["data"]
        number = sum(name.startswith(f"{api}.") and name.endswith(".forward") for name in data)
        name = f"{api}.{number}"
        for direction, entry in _entries(_Writer(file, name, framework), found):
            data[f"{name}.{direction}"] = entry
        with replacing(file) as temporary:
            temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return name


def _read(file: Path, framework: str) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DumpError(file, f"it is no JSON ({error})", "give a folder without it, or a dump of ours") from error
    if not isinstance(content, dict) or not isinstance(content.get("data"), dict):
        raise DumpError(file, "it has no object `data`", "give a folder without it, or a dump of ours")
    recorded = content.get("framework", frameworks.DEFAULT)
    if recorded != framework:
        raise DumpError(file, f"it holds calls of {recorded}, and this is one of {framework}", "give another folder")
    return content


def _entries(writer: _Writer, found: Finding) -> list[tuple[str, dict[str, Any]]]:
    arguments = found.arguments
    args = [writer.value(value, f"forward.input.{place}") for place, value in enumerate(arguments.args)]
    kwargs = {key: writer.value(value, f"forward.kwargs.{key}") for key, value in arguments.kwargs.items()}
    entries = [("forward", {"input_args": args, "input_kwargs": kwargs, "probe": {"tuples": writer.tuples}})]
    if found.direction == "backward":
        incoming = [writer.tensor(Leaf(array), f"backward.{place}") for place, array in found.incoming.items()]
        entries.append(("backward", {"input": incoming, "output": []}))
    return entries


class _Writer:
    """Arguments as a dump's JSON has them; tensors go to files of NumPy's."""

    def __init__(self, file: Path, name: str, framework: str) -> None:
        self._file = file
        self._folder = file.parent / TENSOR_FOLDER
        self._folder.mkdir(exist_ok=True)
        self._name = name
        self._signatures = frameworks.signatures(framework)
        self.tuples: list[str] = []

    def value(self, value: Any, place: str) -> Any:
        if isinstance(value, Leaf):
            return self.tensor(value, place)
        if isinstance(value, Sequence) and not isinstance(value, str):
            if isinstance(value, tuple):
                self.tuples.append(place.removeprefix("forward."))
            return [self.value(item, f"{place}.{index}") for index, item in enumerate(value)]
        if isinstance(value, DtypeSpec):
            _, kind, text = self._signatures.written(value.name)
            return {"type": kind, "value": text}
        if value is not None and not isinstance(value, PLAIN):
            raise DumpError(self._file, f"{place} of the call is a {type(value).__name__}", "copy the script instead")
        return None if value is None else {"type": type(value).__name__, "value": value}

    def tensor(self, leaf: Leaf, place: str) -> dict[str, Any]:
        file = f"{self._name}.{place}.npy"
        np.save(self._folder / file, leaf.array)
        kind, _, dtype = self._signatures.written(leaf.array.dtype.name)
        entry: dict[str, Any] = {
            "type": kind,
            "dtype": dtype,
            "shape": list(leaf.array.shape),
            **dict.fromkeys(("Max", "Min", "Mean", "Norm")),
            "requires_grad": leaf.requires_grad,
            "data_name": file,
        }
        if leaf.strides is not None:
            entry["stride"] = list(leaf.strides)
        if leaf.offset:
            # A place in memory so many elements behind an aligned one.
            entry["address"] = 1 << 30 | leaf.offset * leaf.array.itemsize
        return entry
