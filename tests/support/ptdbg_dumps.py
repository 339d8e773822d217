"""Dumps of ptdbg_ascend and of the api_accuracy_checker of 2023 for tests: real ones, packed under tests/data/ptdbg,
and ones that tests write.

The real ones are one training step of a small network on a CPU, by ptdbg_ascend 2.3 and 4.0.T2 and by the checker of
December 2023; `compare-*` has two of them, the second with another factor in one product, and the tool's tables.
"""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent.parent / "data" / "ptdbg"
CHECKER = "checker-2023"
DUMPS = sorted(path.name.removesuffix(".tgz") for path in DATA.glob("v*.tgz"))


def unpack(name: str, folder: Path) -> Path:
    """Unpack one of DUMPS in a folder; the .pkl."""
    _extract(name, folder)
    return next(folder.rglob("*.pkl"))


def unpack_checker(folder: Path) -> Path:
    """Unpack the dumps of the api_accuracy_checker: random and real_data."""
    _extract(CHECKER, folder)
    return folder


def unpack_case(name: str, folder: Path) -> None:
    """Unpack two dumps, `dev` and `ref`, with what the tool's own compare() wrote of them."""
    _extract(name, folder)


def _extract(name: str, folder: Path) -> None:
    with tarfile.open(DATA / f"{name}.tgz") as archive:
        if sys.version_info >= (3, 12):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)


def line(name: str, value: Any) -> str:
    """A line as ptdbg 4 writes it, of a tensor or a number."""
    if not isinstance(value, np.ndarray):
        return json.dumps([name, 0, [], f"<class '{type(value).__name__}'>", "[]", [value] * 4])
    statistics: list[Any] = [[], [], [], "Nan"]
    if value.size and value.dtype != bool:
        wide = value.astype(np.float32)
        norm = float(np.linalg.norm(wide)) if value.dtype.kind == "f" and value.ndim else "Nan"
        statistics = [float(wide.max()), float(wide.min()), float(wide.mean()), norm]
    return json.dumps([name, 0, [], f"torch.{value.dtype.name}", list(value.shape), statistics])


def stack(name: str, *frames: tuple[str, int, str, str]) -> str:
    return json.dumps([f"{name}_stack_info", [[file, str(number), *rest] for file, number, *rest in frames]])


def values(call: str, inputs: Iterable[Any], outputs: Any) -> dict[str, Any]:
    """The values of a forward by their names; None is a value that was not recorded. outputs: one, or a tuple."""
    found: dict[str, Any] = {}
    trees = [(f"{call}_forward_input", list(inputs))]
    trees += [(f"{call}_forward_output", list(outputs) if isinstance(outputs, tuple) else outputs)]
    while trees:
        name, value = trees.pop(0)
        if isinstance(value, list):
            trees = [(f"{name}.{place}", item) for place, item in enumerate(value)] + trees
        elif value is not None:
            found[name] = value
    return found


def write(folder: Path, found: Mapping[str, Any], *others: str, name: str = "dump.pkl", stored: bool = True) -> Path:
    """A dump of these values, with other lines behind them."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("\n".join([*(line(key, value) for key, value in found.items()), *others]) + "\n")
    if stored:
        tensors = path.with_suffix("")
        tensors.mkdir()
        for key, value in found.items():
            np.save(tensors / f"{key}.npy", value)
    return path
