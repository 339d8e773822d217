"""The dumps that are mutated: real ones of the repository, a few calls at a time."""

from __future__ import annotations

import copy
import json
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, get_args

from msgspec import Struct

from pytest_probe.model.dump import Direction
from tests.support import paddle_dumps
from tests.support.dumps import unpack

Tree: TypeAlias = "dict[str, Any]"
ROOT = Path(__file__).parent.parent.parent
# Statistics of each kind of dump, and one with tensors; names as tests.support.dumps has them.
PACKED = ("msprobe-26.2.0/cnn", "msprobe-1.0.4/amp_bf16", "msprobe-8.3.3/cplx", "msprobe-26.2.0/cplx_tensor")
# Of Paddle's, by PaddleAPEX; the last has tensors.
PADDLE = ("gpt_random", "cnn_random", "edge_random_default")
FRAMEWORKS = ("torch", "paddle")
TENSORS = "dump_tensor_data"
LARGEST = 20_000  # elements of a tensor: calls with larger ones are left out, so that an item takes milliseconds


class Base(Struct, frozen=True):
    """A dump: its head without data, the entries of each call ("Functional.linear.0"), its stack.json, its tensors.

    PaddleAPEX's dumps have no head and no stack: all that they hold is entries, one for each call ("paddle.add*0").
    """

    name: str
    head: Mapping[str, Any]
    calls: Mapping[str, Mapping[str, Any]]
    stack: Mapping[str, Any]
    tensors: Mapping[str, bytes]
    framework: str = "torch"

    @property
    def folder(self) -> str:
        """Where its tensors lie, below the dump's folder."""
        return f"{TENSORS}/" if self.framework == "torch" else ""

    def cut(self, calls: Iterable[str]) -> tuple[Tree, Tree, dict[str, bytes]]:
        """dump.json and stack.json with these calls alone, and their tensors: copies, to be changed."""
        chosen = list(calls)
        data = {name: entry for call in chosen for name, entry in self.calls[call].items()}
        stack = {key: value for key, value in self.stack.items() if any(call in f"{key} {value}" for call in chosen)}
        tensors = {name: held for name, held in self.tensors.items() if name.startswith(tuple(f"{c}." for c in chosen))}
        tree = {**self.head, "data": data} if self.framework == "torch" else data
        return copy.deepcopy(tree), copy.deepcopy(stack), tensors


def bases(framework: str) -> Sequence[Base]:
    with tempfile.TemporaryDirectory() as folder:
        if framework == "paddle":
            statistics = [_paddle_base(name, paddle_dumps.unpack(name, Path(folder))) for name in PADDLE]
            return [*statistics, _paddle_base("edge_real_data", paddle_dumps.unpack_real(Path(folder)))]
        paths = {name: unpack(name, Path(folder)) for name in PACKED}
        return [_base("cases/gpt", ROOT / "cases/gpt/dump.json"), *(_base(name, path) for name, path in paths.items())]


def _base(name: str, path: Path) -> Base:
    head = json.loads(path.read_text("utf-8"))
    calls: dict[str, dict[str, Any]] = {}
    for entry, value in head.pop("data").items():
        call, _, direction = entry.rpartition(".")
        if direction in get_args(Direction) and not call.startswith("Module") and _elements(value) <= LARGEST:
            calls.setdefault(call, {})[entry] = value
    stack = json.loads(path.with_name("stack.json").read_text("utf-8"))
    tensors = {file.name: file.read_bytes() for file in sorted((path.parent / TENSORS).glob("*"))}
    head["dump_data_dir"] = None  # where the tool wrote it; the tensors lie beside the dump
    return Base(name, head, calls, stack, tensors)


def _paddle_base(name: str, path: Path) -> Base:
    entries = json.loads(path.read_text("utf-8"))
    calls = {call: {call: value} for call, value in entries.items() if _elements(value) <= LARGEST}
    tensors = {file.name: file.read_bytes() for file in sorted(path.parent.glob("*.pt"))}
    return Base(f"paddleapex/{name}", {}, calls, {}, tensors, "paddle")


def _elements(value: Any) -> int:
    """Those of the largest tensor in an entry."""
    if isinstance(value, list):
        return max(map(_elements, value), default=0)
    if not isinstance(value, dict):
        return 0
    lengths = value.get("shape") or ()
    size = math.prod(length for length in lengths if isinstance(length, int)) if isinstance(lengths, list) else 1
    return max([size, *map(_elements, value.values())])
