"""What a step would take with its statistics, or with its tensors, found from one that was recorded as structure.

Bytes are counted: of each tensor those of its elements, and of its file what files of the same framework have in
addition. Seconds are measured on a sample of the tensors, by the functions that a capture itself calls.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from msgspec import Struct

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.framework import recording
from pytest_probe.capture.writer import Outcome, free, in_bytes
from pytest_probe.numerics.dtypes import DTYPES, numpy_dtype

# Tensors that are measured, of all sizes that occur.
_SAMPLES = 48
# Bytes that statistics add to a tensor's entry in dump.json; measured on a GPT's, 71 to 72.
_STATISTICS_BYTES = 72
# And the bytes of the key that names its file.
_NAME_BYTES = len(', "data_name": ".pt"')
# The halves of an entry, and how the names of their files call them.
_HALVES = {"input_args": "input", "input_kwargs": "kwargs", "input": "input", "output": "output"}


class _Tensor(Struct, frozen=True):
    """A tensor that would be saved: its framework, its name without the ending, its dtype and shape, where it lay."""

    framework: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    address: int

    @property
    def size(self) -> int:
        return math.prod(self.shape) * numpy_dtype(self.dtype).itemsize


def _snapshot_seconds(tensor: _Tensor, file: Path | None) -> float:
    """What the statistics of such a tensor take; file: with its data, which are saved there."""
    config = CaptureConfig("", task="statistics" if file is None else "tensor")
    values, made = recording(tensor.framework).sample(config, tensor.dtype, tensor.shape)
    begin = time.perf_counter()
    seen = values.tensor(made)
    values.settle()
    if file is not None:
        values.save(seen.data, file)
    return time.perf_counter() - begin


class Cost(Struct, frozen=True):
    """Bytes and seconds of one step."""

    size: float
    seconds: float


def estimates(folder: Path, recorded: Outcome) -> dict[str, Cost]:
    """By task what a step takes; folder holds one that was recorded as structure, and recorded what that took. Raises
    OSError."""
    tensors = list(_tensors(folder))
    structure = Cost(recorded.size, recorded.seconds)
    found = {"structure": structure}
    entries = recorded.size + _STATISTICS_BYTES * len(tensors)
    names = sum(_NAME_BYTES + len(each.name) for each in tensors)
    with TemporaryDirectory(dir=folder) as place:
        # Statistics of a tensor that is seen again, and was not written to, are those of before.
        once = {(each.address, each.dtype, each.shape): each for each in tensors}
        found["statistics"] = Cost(entries, recorded.seconds + _measured(list(once.values()), None).seconds)
        saved = _measured(tensors, Path(place))
    found["tensor"] = Cost(entries + names + saved.size, recorded.seconds + saved.seconds)
    return found


def lines(found: Mapping[str, Cost], folder: Path) -> Iterator[str]:
    """What to say of it; folder is where a dump would go."""
    left = free(folder)
    for task, cost in found.items():
        steps = f", room for {left / cost.size:,.0f} steps" if task == "tensor" and cost.size else ""
        yield f"--task={task}: {Outcome(size=int(cost.size), steps=1, seconds=cost.seconds).cost()}{steps}"
    yield f"{in_bytes(left)} free"


def _measured(tensors: Sequence[_Tensor], place: Path | None) -> Cost:
    """What snapshots of all these tensors take; place: with their files, which go there."""
    ordered = sorted(tensors, key=lambda each: each.size)
    size = float(sum(each.size for each in ordered))
    seconds, first = 0.0, True
    parts = [part for part in np.array_split(np.arange(len(ordered)), min(_SAMPLES, len(ordered) or 1)) if part.size]
    # The first of all imports what the others need, and does not count.
    for part in [*parts[:1], *parts]:
        sample = ordered[part[part.size // 2]]
        file = None if place is None else place / f"sample{part[0]}"
        taken = part.size * _snapshot_seconds(sample, file)
        beside = 0 if file is None else part.size * (file.stat().st_size - sample.size)
        seconds, size, first = (seconds, size, False) if first else (seconds + taken, size + beside, False)
    return Cost(size, seconds)


def _tensors(folder: Path) -> Iterator[_Tensor]:
    """The tensors of all dumps below a folder."""
    for path in sorted(folder.rglob("dump.json")):
        content = json.loads(path.read_bytes())
        for entry, body in content["data"].items():
            for half, called in _HALVES.items():
                for place, spec in _specs(body.get(half), f"{entry}.{called}"):
                    dtype, shape = spec["dtype"].rpartition(".")[2], tuple(spec["shape"])
                    if dtype not in DTYPES:
                        continue  # of torch's own, which few programs have
                    yield _Tensor(content["framework"], place, dtype, shape, spec["address"])


def _specs(tree: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Entries of tensors that have values."""
    if isinstance(tree, dict) and "shape" in tree and "dtype" in tree:
        if "address" in tree and math.prod(tree["shape"]):
            yield place, tree
    elif isinstance(tree, dict):
        for name, each in tree.items():
            yield from _specs(each, f"{place}.{name}")
    elif isinstance(tree, list):
        for number, each in enumerate(tree):
            yield from _specs(each, f"{place}.{number}")
