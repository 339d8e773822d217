"""Dumps of several ranks, written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray, dtype_name
from tests.acceptance.conftest import tensor

# One rank's call: the function, what it is given (tensors, or other arguments as JSON), and what it gave.
Call = tuple[str, Sequence[Any], Mapping[str, Any], Sequence[AnyArray] | None]


def write(folder: Path, ranks: Sequence[Sequence[Call]], *, group: Sequence[int] | None = None, **known: Any) -> Path:
    """A step of a dump: for each rank its calls. known: what the capture knows besides."""
    for rank, calls in enumerate(ranks):
        facts = {"ranks": list(range(len(ranks)) if group is None else group), "rank": rank, **known}
        _Rank(folder / "step0" / f"rank{rank}", facts).write(calls)
    return folder


class _Rank:
    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self._folder, self._facts = folder, facts
        self._files = 0
        (folder / "dump_tensor_data").mkdir(parents=True)

    def write(self, calls: Sequence[Call]) -> None:
        data: dict[str, Any] = {}
        numbers: dict[str, int] = {}
        for order, (api, args, kwargs, outputs) in enumerate(calls):
            number = numbers[api] = numbers.get(api, -1) + 1
            facts = {**self._facts, "order": order}
            data[f"Distributed.{api}.{number}.forward"] = {
                "input_args": [self._tree(each) for each in args],
                "input_kwargs": {key: self._tree(each) for key, each in kwargs.items()},
                "output": [None] if outputs is None else [self._tree(each) for each in outputs],
                "probe": {"collective": facts},
            }
        header = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
        (self._folder / "dump.json").write_text(json.dumps({**header, "probe": {}, "data": data}))

    def _tree(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._tree(each) for each in value]
        if isinstance(value, np.ndarray):
            name = f"tensor{self._files}.npy"
            self._files += 1
            np.save(self._folder / "dump_tensor_data" / name, value)
            entry = tensor(*value.shape, dtype=dtype_name(value.dtype), requires_grad=False)
            return {**entry, "data_name": name}
        if isinstance(value, (bool, int, str)):
            return {"type": type(value).__name__, "value": value}
        return value


def op(name: str) -> dict[str, Any]:
    return {"type": "torch.distributed.ReduceOp", "value": f"RedOpType.{name}"}
