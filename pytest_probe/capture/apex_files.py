"""The files of one step in PaddleAPEX's layout: forward_rank0_all.json, its parts, and tensors next to them.

A call is one entry of such a file, with the gradients that come to it later, so that the file is written when the step
ends.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from pytest_probe.capture.config import ApexOptions
from pytest_probe.capture.snapshot import BackwardEntry, ForwardEntry, NamedEntry, PlainEntry, Seen, Tree
from pytest_probe.capture.writer import StepFiles
from pytest_probe.system.files import write_whole

_log = logging.getLogger("pytest_probe")

# The value that replaces gradients where some or all are missing.
_FAILED = "Failed"
# Max and Min where a tensor has none, as PaddleAPEX writes them where Paddle's own functions raise.
_UNKNOWN = (1, 0)
_BUILTINS = ("bool", "int", "float", "str")
_NUMPY = ("bool_", "str_", "float", "int", "uint")
# A call in which one of these dtypes occurs counts as half precision.
_HALF = ("float16", "bfloat16")


class ApexFiles(StepFiles):
    """Collects the entries of a step, and writes them when it ends. rank and step name the folder and the files."""

    def __init__(self, options: ApexOptions, rank: int) -> None:
        self._options = options
        self._rank = rank
        self._entries: dict[str, dict[str, Any]] = {}
        self._half: set[str] = set()
        self._left_out = 0
        # The slot of the next tensor or value, by key.
        self._slots: dict[str, int] = {}

    def open(self, folder: Path) -> None:
        super().open(folder)
        self._folder = folder

    def add(self, entries: Sequence[NamedEntry], save: Callable[[Any, str], None]) -> None:
        for entry in entries:
            name, _, direction = entry.name.rpartition(".")
            api, _, number = name.rpartition(".")
            key = f"{api}*{number}"
            leaves = _Leaves(key, self._slots.get(key, 0), self._options.unique, save)
            if direction == "forward" and type(entry.body) is ForwardEntry:
                self._forward(key, entry.body, leaves)
            elif type(entry.body) is BackwardEntry and key in self._entries and entry.body.input is not UNSET:
                gradients = [leaves.written(tree) for tree in entry.body.input]
                self._entries[key]["dout_list"] = gradients if None not in gradients else [_FAILED]
            self._slots[key] = leaves.slot

    def _forward(self, key: str, body: ForwardEntry, leaves: _Leaves) -> None:
        # run_paddle.py ends at an argument that is null, and at an output that is neither a tensor nor the only one.
        outputs = [] if body.output is UNSET or body.output == [None] else body.output
        if body.input_args is UNSET or not (_has_form(body.input_args) and _are_tensors(outputs)):
            self._left_out += 1
            return
        args = [leaves.written(tree) for tree in body.input_args]
        kwargs = {name: leaves.written(tree) for name, tree in body.input_kwargs.items()}
        self._entries[key] = {"args": args, "kwargs": kwargs, "dout_list": [_FAILED]}
        if leaves.half:
            self._half.add(key)

    def moved(self, folder: Path) -> None:
        self._folder = folder

    def end(self, frames: Mapping[int, list[str]]) -> int:
        parts = {"all": self._entries}
        if self._options.split:
            parts["half"] = {key: value for key, value in self._entries.items() if key in self._half}
            parts["other"] = {key: value for key, value in self._entries.items() if key not in self._half}
        size = 0
        for part, entries in parts.items():
            path = self._folder / f"forward_rank{self._rank}_{part}.json"
            if self._options.unique:
                # Each call once; the calls of an API follow one another and get new numbers.
                by_api: dict[str, dict[str, dict[str, Any]]] = {}
                for key in sorted(entries):
                    by_api.setdefault(key.rpartition("*")[0], {})[json.dumps(entries[key])] = entries[key]
                calls = ((api, enumerate(found.values())) for api, found in by_api.items())
                entries = {f"{api}*{number}": entry for api, found in calls for number, entry in found}
            text = json.dumps(entries, indent=2).encode()
            write_whole(path, text)
            size += len(text)
        if self._left_out:
            _log.info(
                "pytest-probe: %d calls are left out of %s, at which PaddleAPEX's run_paddle.py would end: their "
                "arguments have no form there, or they give something else than tensors",
                self._left_out,
                self._folder,
            )
        if self._options.remote:
            remote = Path(self._options.remote)
            try:
                shutil.copytree(self._folder, remote / self._folder.name, dirs_exist_ok=True)
            except OSError as error:
                _log.error("pytest-probe: %s is not copied to %s (%s); it stays there", self._folder, remote, error)
        return size


def _has_form(tree: Tree) -> bool:
    if isinstance(tree, Seen):
        return tree.type == "paddle.Tensor"
    if isinstance(tree, PlainEntry):
        return tree.type in (*_BUILTINS, "slice", "paddle.dtype") or tree.type.startswith(_NUMPY)
    if isinstance(tree, Mapping):
        return bool(tree) and not isinstance(tree.get("type"), str) and all(map(_has_form, tree.values()))
    return tree is None or all(map(_has_form, tree))


def _are_tensors(tree: Tree) -> bool:
    if isinstance(tree, (list, tuple)):
        return all(map(_are_tensors, tree))
    return isinstance(tree, Seen) and tree.type == "paddle.Tensor"


class _Leaves:
    """Writes the arguments of one call. slot counts its values as PaddleAPEX does, which names files after it."""

    def __init__(self, key: str, slot: int, rounds: bool, save: Callable[[Any, str], None]) -> None:
        self._key = key
        self.slot = slot
        self._rounds = rounds
        self._save = save
        self.half = False

    def written(self, tree: Tree) -> Any:
        """None, which is null, for what PaddleAPEX has no form for."""
        if tree is None:
            return self._plain("NoneType", None)
        if isinstance(tree, Seen):
            return self._tensor(tree) if tree.type == "paddle.Tensor" else None
        if isinstance(tree, PlainEntry):
            if tree.type == "paddle.dtype":
                self.half |= tree.value in _HALF
                return f"paddle.{tree.value}"
            if tree.type in (*_BUILTINS, "slice"):
                return self._plain(tree.type, tree.value)
            return self._plain(f"numpy.{tree.type}", tree.value) if tree.type.startswith(_NUMPY) else None
        if isinstance(tree, (list, tuple)):
            return [self.written(item) for item in tree]
        if isinstance(tree, Mapping) and tree and not isinstance(tree.get("type"), str):
            return {key: self.written(item) for key, item in tree.items()}
        return None

    def _plain(self, kind: str, value: Any) -> dict[str, Any]:
        self.slot += 1
        return {"type": kind, "value": _number(value)}

    def _tensor(self, seen: Seen) -> dict[str, Any]:
        self.half |= seen.dtype in _HALF
        high, low = self._range(seen)
        row: dict[str, Any] = {"type": seen.type, "dtype": seen.dtype.upper(), "shape": list(seen.shape)}
        row |= {"Max": high, "Max_origin": high, "Min": low, "Min_origin": low, "stop_gradient": not seen.requires_grad}
        if seen.data is not UNSET:
            row["real_data_path"] = f"{self._key}.{self.slot}.pt"
            self._save(seen.data, row["real_data_path"])
            seen.data = UNSET
        self.slot += 1
        return row

    def _range(self, seen: Seen) -> tuple[Any, Any]:
        if seen.max is None or seen.dtype.startswith("complex"):
            return _UNKNOWN
        high, low = _number(seen.max), _number(seen.min)
        if seen.dtype == "bool":
            return int(high), int(low)
        if not self._rounds:
            return high, low
        top = _power_of_ten(high, up=True)
        return top, top if high == low else _power_of_ten(low, up=False)


def _power_of_ten(number: Any, up: bool) -> Any:
    """The next power of ten, outside the range that the number ends; 0 for a number that is almost 0."""
    if not math.isfinite(number):
        return number
    if abs(number) <= 1e-10:
        return 0
    exponent = math.log10(abs(number))
    power = 10 ** (math.ceil(exponent) if up == (number > 0) else math.floor(exponent))
    return power if number > 0 else -power


def _number(value: Any) -> Any:
    """The number of a statistic; one that is not finite is still raw JSON."""
    return float(bytes(value)) if isinstance(value, msgspec.Raw) else value
