"""What msprobe writes for MindSpore, as records and calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.errors import NotRebuilt, RecordError
from pytest_probe.model.dump import Call, DtypeSpec, Dump, TensorSpec
from pytest_probe.records import find_dumps, read_dump
from tests.support.mindspore_dumps import DUMPS, packed

_TENSOR = {"type": "mindspore.Tensor", "dtype": "Float32", "shape": [2, 3], "Max": 1.0, "Min": -1.0}
_SPEC = TensorSpec("float32", (2, 3), max=1.0, min=-1.0)


def _read(folder: Path, data: dict[str, Any], **header: Any) -> Dump:
    content = {"task": "tensor", "level": "L1", "framework": "mindspore", "dump_data_dir": None, **header, "data": data}
    path = folder / "dump.json"
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))
    return read_dump(path)


def _call(folder: Path, *args: Any, **entry: Any) -> Call:
    entry = {"input_args": list(args), "input_kwargs": {}, "output": [_TENSOR], **entry}
    dump = _read(folder, {"Mint.add.0.forward": entry})
    return dump.decode(dump.records[0])


def _with_backward(folder: Path, args: list[Any], outputs: list[Any], backward: dict[str, Any]) -> Call:
    forward = {"input_args": args, "input_kwargs": {}, "output": outputs}
    dump = _read(folder, {"Mint.gather.0.forward": forward, "Mint.gather.0.backward": backward})
    return dump.decode(dump.records[0])


@pytest.mark.parametrize("name", DUMPS)
def test_every_record_of_real_dumps_is_decoded(name: str) -> None:
    (path,) = find_dumps(packed(name))
    dump = read_dump(path)
    assert (dump.framework, dump.damage) == ("mindspore", ())
    for record in dump.records:
        if record.forward is None:
            with pytest.raises(RecordError, match="no forward entry"):
                dump.decode(record)
        else:
            dump.decode(record)
    assert [record.name for record in dump.records if record.forward is None] == ["Mint.add.9"] * (name == "edge")
    assert len(dump.records) == {"edge": 21, "cells": 21, "kwargs-bf16": 6}.get(name, 20)


def test_what_is_no_call_of_one_api_is_counted(tmp_path: Path) -> None:
    names = ("Cell.net.Net.forward.0", "Jit.step.0.forward", "Distributed.all_reduce.0.forward", "Mint.abs.0.forward")
    entry = {"input_args": [_TENSOR], "input_kwargs": {}, "output": [_TENSOR]}
    data = dict.fromkeys((*names, "MintDistributed.send.0.forward", "Mint.linalg.inv.0.forward"), entry)
    kinds = ("Cell", "Jit", "Distributed", "MintDistributed")
    # An old file names no framework: its types do.
    for header in ({}, {"framework": ...}):
        dump = _read(tmp_path, data, **header)
        assert (dump.framework, dump.skipped) == ("mindspore", {f"{kind} entries": 1 for kind in kinds})
        assert [(record.name, record.api) for record in dump.records] == [
            ("Mint.abs.0", "abs"),
            ("Mint.linalg.inv.0", "linalg.inv"),
        ]
        assert dump.decode(dump.records[0]).args == (_SPEC,)
    torch = _read(tmp_path, {"Distributed.all_reduce.0.forward": {}}, framework="pytorch")
    assert [record.name for record in torch.records] == ["Distributed.all_reduce.0"]


def test_dtypes(tmp_path: Path) -> None:
    names = {"Float16": "float16", "BFloat16": "bfloat16", "Bool": "bool", "UInt8": "uint8", "Complex64": "complex64"}
    for written, name in {**names, "Float8E4M3FN": "float8_e4m3fn", "Float8E5M2": "float8_e5m2"}.items():
        found = _call(tmp_path, {**_TENSOR, "dtype": written}, {"type": "mindspore.dtype", "value": written})
        assert found.args == (TensorSpec(name, (2, 3), max=1.0, min=-1.0), DtypeSpec(name))
    with pytest.raises(NotRebuilt, match="the dtype int4, which NumPy does not have"):
        _call(tmp_path, {**_TENSOR, "dtype": "Int4"})
    with pytest.raises(RecordError, match=r"Mint\.add\.0\.forward: input_args\.0\.dtype: found .*HiFloat8"):
        _call(tmp_path, {**_TENSOR, "dtype": "HiFloat8"})


def test_arguments(tmp_path: Path) -> None:
    found = _call(
        tmp_path,
        [_TENSOR, None],
        {"type": "slice", "value": [0, None, 2]},
        input_kwargs={"dtype": {"type": "mindspore.dtype", "value": "Float32"}, "other": None},
    )
    assert found.args == ([_SPEC, None], slice(0, None, 2))
    assert found.kwargs == {"dtype": DtypeSpec("float32"), "other": None}


def test_gradients_belong_to_positional_tensors(tmp_path: Path) -> None:
    integers = {**_TENSOR, "dtype": "Int64"}
    call = _with_backward(
        tmp_path,
        [_TENSOR, {"type": "int", "value": 1}, integers],
        [_TENSOR, integers],
        {"input": [_TENSOR, None], "output": [_TENSOR, None]},
    )
    assert (call.gradients, call.seeded) == ((_SPEC, None), ("output.0", "output.1"))
    assert call.outgoing == {"input.0": _SPEC, "input.2": None}


@pytest.mark.parametrize("outgoing", [[], [None]], ids=["26.2.0", "1.2.2"])
def test_tensors_in_a_list_have_no_gradient(tmp_path: Path, outgoing: list[Any]) -> None:
    call = _with_backward(tmp_path, [[_TENSOR, _TENSOR]], [_TENSOR], {"input": [_TENSOR], "output": outgoing})
    assert (call.gradients, call.outgoing, call.unrecorded) == ((_SPEC,), None, "")


def test_gradients_that_belong_to_nothing_leave_the_forward(tmp_path: Path) -> None:
    call = _with_backward(tmp_path, [_TENSOR], [_TENSOR], {"input": [_TENSOR, _TENSOR], "output": [_TENSOR]})
    assert (call.args, call.gradients, call.outgoing) == ((_SPEC,), (), None)
    assert call.unrecorded.endswith(
        "Mint.gather.0.backward: found 2 incoming gradients and 1 of arguments, expected one for each of 1 outputs and "
        "of 1 tensors among the arguments"
    )
