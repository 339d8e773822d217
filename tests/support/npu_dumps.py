"""The dump of torch_npu's calls in tests/data/npu, with the tensors that its entries name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.support.npu_kernels import EXAMPLES, KERNELS, Example, mapped

DUMP = Path(__file__).parent.parent / "data/npu/dump.json"
ENTRIES: Mapping[str, Any] = json.loads(DUMP.read_text())["data"]
Kernel = Callable[..., Any]


def is_narrow(entry: str) -> bool:
    """Is it of 16 bit?"""
    first = ENTRIES[entry]["input_args"][0]
    return "bfloat16" in json.dumps(first if isinstance(first, dict) else ENTRIES[entry])


def example_of(entry: str) -> Example:
    """The call that an entry is of: the first one of its API with the same arguments."""
    found = ENTRIES[entry]
    _, api, *_ = entry.split(".")
    fitting = (each for each in EXAMPLES.values() if each.name == api and _is_like(found, each))
    return next(fitting)


def named(name: str, *, narrow: bool = False) -> str:
    """The entry of a call."""
    return next(entry for entry in ENTRIES if example_of(entry) is EXAMPLES[name] and is_narrow(entry) == narrow)


def _is_like(found: Mapping[str, Any], example: Example) -> bool:
    own = {"input_args": list(example.args), "input_kwargs": example.kwargs}
    return all(_plain(found[key]) == _plain(mapped(value, _spec)) for key, value in own.items())


def _spec(tensor: torch.Tensor) -> Any:
    return {"shape": list(tensor.shape)}


def _plain(value: Any) -> Any:
    """Arguments by shape and value, without dtypes and names of files."""
    if isinstance(value, dict) and "shape" in value:
        return "tensor", value["shape"]
    if isinstance(value, dict) and "value" in value:
        return value["value"]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def write(folder: Path, entries: Mapping[str, Kernel | None]) -> Path:
    """A dump of these entries with stored tensors; outputs are those of a kernel, None: of a healthy one."""
    files = folder / "dump_tensor_data"
    shutil.rmtree(folder, ignore_errors=True)
    files.mkdir(parents=True)
    top = json.loads(DUMP.read_text())
    top["data"] = {name: ENTRIES[name] for name in entries}
    for name, kernel in entries.items():
        _save(files, ENTRIES[name], example_of(name), kernel)
    (folder / "dump.json").write_text(json.dumps(top))
    return folder / "dump.json"


def _save(files: Path, entry: Mapping[str, Any], example: Example, kernel: Kernel | None) -> None:
    dtype = torch.bfloat16 if "bfloat16" in json.dumps(entry["input_args"] or entry) else torch.float32
    cast = mapped((example.args, example.kwargs), lambda each: each.to(dtype) if each.is_floating_point() else each)
    args, kwargs = mapped(cast, torch.clone)
    # Kernels get numbers of float32.
    args = tuple(float(np.float32(each)) if type(each) is float else each for each in args)
    for specs, values in ((entry["input_args"], args), (entry["input_kwargs"], kwargs)):
        for spec, tensor in _pairs(specs, values):
            torch.save(tensor, files / spec["data_name"])
    found = (kernel or KERNELS[example.name])(*args, **kwargs)
    outputs = list(found) if isinstance(found, (list, tuple)) else [found]
    for spec, tensor in _pairs(entry["output"], outputs):
        assert spec["shape"] == list(tensor.shape), (spec, tensor.shape)
        assert spec["dtype"] == str(tensor.dtype), (spec, tensor.dtype)
        torch.save(tensor.detach().clone(), files / spec["data_name"])


def _pairs(specs: Any, values: Any) -> Iterator[tuple[Any, torch.Tensor]]:
    """Entries of tensors, with the tensors."""
    if isinstance(values, torch.Tensor):
        yield specs, values
    elif isinstance(values, dict):
        for name, each in values.items():
            yield from _pairs(specs[name], each)
    elif isinstance(values, (list, tuple)) and isinstance(specs, list):
        for spec, each in zip(specs, values, strict=True):
            yield from _pairs(spec, each)
