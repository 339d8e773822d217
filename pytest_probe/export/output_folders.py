"""Folders of outputs that two devices left of the same calls: PaddleAPEX's, and those of --probe-out.

In: a folder. Out: the calls in it by one name ("paddle.add.0", whoever wrote them), and what each returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from pytest_probe.errors import SettingsError
from pytest_probe.inputs.build import stored_array
from pytest_probe.model.dump import Direction
from pytest_probe.model.result import OutputResult, Result
from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype
from pytest_probe.records.paddleapex import bare_dtype
from pytest_probe.reports.results_file import RESULTS, SAVED, read_results, saved_path
from pytest_probe.system.files import open_regular
from pytest_probe.system.tensor_files import torch_zip
from pytest_probe.system.tensor_files.paddle_pickle import load_named, load_outputs

COMMAND = "compare --direct"
_GIVE = "give a folder with output/, as PaddleAPEX's run_paddle.py writes it, or a --probe-out with --probe-save=all"
_FORWARD, _BACKWARD = "output", "output_backward"


class Tensor(Struct, frozen=True):
    """dtype is that of its numbers: those of bfloat16 may lie in float32."""

    array: AnyArray
    dtype: str


# A tensor, or what Python has for a value.
Value: TypeAlias = Any


class Returned(Struct, frozen=True):
    """What a call gave, or its gradients. several: a list."""

    values: tuple[Value, ...]
    several: bool


class OutputFolder(Struct, frozen=True):
    """calls: how the folder writes each call, by its name here. read gives what a call returned in a direction, None
    where the folder has nothing of it; it raises OSError, or ValueError for what cannot be read."""

    calls: Mapping[str, str]
    read: Callable[[str, Direction], Returned | None]


def output_folder(path: Path, dtype: str | None = None, option: str = COMMAND) -> OutputFolder:
    """Raises SettingsError, of this option. dtype: which of several runs is meant, where the folder has several."""
    if (path / RESULTS).is_file():
        return _saved(path, option, dtype)
    runs = [path] if (path / _FORWARD).is_dir() else sorted(found.parent for found in path.glob(f"*/{_FORWARD}"))
    if dtype is not None:
        runs = [run for run in runs if run == path or bare_dtype(run.name) == bare_dtype(dtype)]
    if not runs:
        of_dtype = f" of {dtype}" if dtype else ""
        raise SettingsError(option, str(path), f"it holds no {_FORWARD}/{of_dtype} and no {RESULTS}; {_GIVE}")
    if len(runs) > 1:
        names = "|".join(run.name for run in runs)
        wanted = f"say which with --dtype={names}" if option == COMMAND else f"give one of its folders, {names}"
        raise SettingsError(option, str(path), f"it holds {len(runs)} runs; {wanted}")
    return _of_paddleapex(runs[0])


def _of_paddleapex(folder: Path) -> OutputFolder:
    """`output/` and `output_backward/`, one pickle a record."""
    names = sorted({path.name for below in (_FORWARD, _BACKWARD) for path in (folder / below).glob("[!.]*")})
    calls = {name.replace("*", "."): name for name in names}

    def read(call: str, direction: Direction) -> Returned | None:
        path = folder / (_FORWARD if direction == "forward" else _BACKWARD) / calls.get(call, call)
        if not path.exists():
            return None
        found = load_outputs(path)
        dtype = "bfloat16" if found.bfloat16 else ""
        values = (Tensor(x, dtype or x.dtype.name) if isinstance(x, np.ndarray) else x for x in found.values)
        return Returned(tuple(values), found.several)

    return OutputFolder(calls, read)


def _saved(folder: Path, option: str, dtype: str | None) -> OutputFolder:
    """The device's side of what --probe-save=all wrote."""
    results = [result for result in read_results(folder / RESULTS) if result.portable_id.direction and result.api]
    if not (folder / SAVED).is_dir():
        raise SettingsError(option, str(folder), "it holds no tensors; run with --probe-save=all")
    by_call = {(name, result.direction): result for name, result in _called(results, dtype)}
    if results and not by_call:
        found = ", ".join(sorted({result.dtype for result in results}))
        raise SettingsError(option, str(folder), f"it holds no run in {dtype}, but in {found}")

    def read(call: str, direction: Direction) -> Returned | None:
        result = by_call.get((call, direction))
        if result is None:
            return None
        if not result.outputs:
            raise ValueError(f"{result.verdict}: {result.reason}")
        named = result.portable_id
        path = saved_path(folder, named.label, named.name)
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{named.label} leads out of the folder")
        with open_regular(path) as file:
            zipped = file.read(4) == torch_zip.HEADER
        saved = partial(stored_array, path) if zipped else load_named(path).__getitem__
        return Returned(tuple(_value(saved, output) for output in result.outputs), several=True)

    return OutputFolder({call: call for call, _ in by_call}, read)


def _called(results: Sequence[Result], dtype: str | None) -> Iterator[tuple[str, Result]]:
    """By the name of the call: behind the dump's label where there are several dumps, with the dtype where it ran in
    several and none was chosen. The other side may have run in another one."""
    several = len({result.portable_id.label for result in results}) > 1
    runs = Counter(result.portable_id.in_any_dtype for result in results)
    for result in results:
        named = result.portable_id
        alone = runs[named.in_any_dtype] == 1
        if dtype is not None and not alone and bare_dtype(result.dtype) != bare_dtype(dtype):
            continue
        label = f"{named.label}::" if several else ""
        suffix = f"[{named.dtype}]" if named.dtype and not alone and dtype is None else ""
        yield f"{label}{named.call}{suffix}", result


def _value(saved: Callable[[str], AnyArray], output: OutputResult) -> Tensor:
    try:
        array = saved(f"actual.{output.name}")
    except KeyError:
        raise ValueError(f"{output.name} was not saved") from None
    # Paddle's files have bfloat16 as integers.
    narrow = array.dtype == np.uint16 and output.dtype == "bfloat16"
    array = array.view(numpy_dtype(output.dtype)) if narrow else array
    return Tensor(array, array.dtype.name)
