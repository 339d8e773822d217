from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pytest_probe.errors import NotRebuilt, NotRecorded, RecordError
from pytest_probe.model.dump import (
    Call,
    DeviceSpec,
    DtypeSpec,
    Lost,
    MemoryFormatSpec,
    Record,
    SizeSpec,
    Surroundings,
    TensorSpec,
)
from pytest_probe.numerics.scaled import BlockStatistics
from pytest_probe.records import read_dump
from pytest_probe.records.msprobe.entries import decode
from pytest_probe.records.raw_json import quote_tokens
from tests.records.test_contract import WRONG, places, replaced

_PATH = Path("dump.json")
_REBUILT = "a tensor, an array, a number, text, a dtype, a range or slice, or lists, tuples and dicts of them"
_TENSOR = {
    "type": "torch.Tensor",
    "dtype": "torch.float32",
    "shape": [2, 3],
    "Max": 2.5,
    "Min": -1,
    "Mean": 0.5,
    "Norm": 4,
    "requires_grad": True,
}
_SPEC = TensorSpec("float32", (2, 3), max=2.5, min=-1, mean=0.5, norm=4.0, requires_grad=True)


def _raw(entry: Any) -> msgspec.Raw:
    data = bytearray(json.dumps(entry).encode())
    quote_tokens(data)
    return msgspec.Raw(bytes(data))


def _record(forward: Any, backward: Any = ...) -> Record:
    raw = None if backward is ... else _raw(backward)
    return Record("Torch.add.0", "Torch", "add", 0, _raw(forward), raw)


def _argument(value: Any) -> Any:
    """A value that was passed, as it is decoded."""
    return decode(_PATH, _record({"input_args": [value], "input_kwargs": {}, "output": []})).args[0]


def _refusal(value: Any) -> str:
    with pytest.raises(RecordError) as caught:
        _argument(value)
    return str(caught.value).removeprefix("dump.json: Torch.add.0.forward: input_args.0")


BLOCKS = {
    **{"blocks": 48, "binades": 2.5, "not_finite": 1},
    **{"clipped": 0.25, "clipped_in_a_block": 1, "flushed": 0.0, "flushed_in_a_block": 1e-05},
}
_INTEGERS = {"type": "torch.Tensor", "dtype": "torch.int8", "shape": [2], "values": [-128, 127]}
_NUMPYS = {"type": "numpy.ndarray", "dtype": "int64", "shape": [3], "Max": 2, "Min": 0, "Mean": 1.0, "Norm": 2.2}
_MASK = {"type": "torch.Tensor", "dtype": "torch.bool", "shape": [4], "Max": True, "Min": False, "True": 3}
_BARE = {"type": "torch.Tensor", "dtype": "torch.int64", "shape": [], "md5": "0f", "data_name": "a.pt"}
_LIES = {"stride": [1, 2], "address": 64, "NaN": 2, "Inf": 1}
_SHARES = {"zeros": 0, "mode": [0.5, 0.25], "constant_rows": [0.125, -math.inf], "Negative_inf": 3}
_UNKNOWN = {"Mean": None, "Norm": None}


def _with(**told: Any) -> TensorSpec:
    """The tensor with these statistics alone."""
    return TensorSpec("float32", (2, 3), requires_grad=True, **told)


@pytest.mark.parametrize(
    ("value", "decoded"),
    [
        (None, None),
        ({}, Lost()),
        ([], []),
        ({"type": "bool", "value": True}, True),
        ({"type": "int", "value": -7}, -7),
        ({"type": "float", "value": -math.inf}, -math.inf),
        ({"type": "float", "value": math.nan}, math.nan),
        ({"type": "complex", "value": [1, -2.5]}, 1 - 2.5j),
        ({"type": "complex128", "value": [math.inf, 0.0]}, complex(math.inf, 0)),
        ({"type": "str", "value": "NaN"}, "NaN"),
        ({"type": "slice", "value": [None, 3, -1]}, slice(None, 3, -1)),
        ({"type": "range", "value": [5, -1, -2]}, range(5, -1, -2)),
        ({"type": "ellipsis", "value": "..."}, ...),
        ({"type": "torch.Size", "value": [-1, 0]}, SizeSpec((-1, 0))),
        ({"type": "torch.dtype", "value": "torch.bfloat16"}, DtypeSpec("bfloat16")),
        ({"type": "torch.device", "value": "cpu:None"}, DeviceSpec("cpu")),
        ({"type": "torch.layout", "layout": "torch.strided"}, None),
        ({"type": "torch.memory_format", "format": "channels_last"}, MemoryFormatSpec("channels_last")),
        ({"type": "torch.memory_format", "value": "torch.preserve_format"}, MemoryFormatSpec("preserve_format")),
        ({"type": "float32", "value": 0.25}, 0.25),
        ({"type": "numpy.int64", "value": 3}, 3),
        ({"type": "bool_", "value": False}, False),
        ({"type": "dict", "value": {}}, {}),
        ({"type": "torch._C.Generator"}, None),
        (_TENSOR, _SPEC),
        (_TENSOR | {"type": "torch.nn.parameter.Parameter"}, _SPEC),
        ([[_TENSOR, None], {"type": "int", "value": 1}], [[_SPEC, None], 1]),
        ({"a": _TENSOR, "b": {"c": {"type": "int", "value": 1}}}, {"a": _SPEC, "b": {"c": 1}}),
        ({"type": {"type": "str", "value": "x"}}, {"type": "x"}),
        (_BARE, TensorSpec("int64", (), data_name="a.pt", checksum="0f")),
        (_TENSOR | {"md5": "0x00000000deadbeef"}, replace(_SPEC, checksum="0x00000000deadbeef")),
        (_TENSOR | {"md5": None}, _SPEC),
        (_TENSOR | _LIES, replace(_SPEC, stride=(1, 2), address=64, nan=2, inf=1)),
        (_MASK, TensorSpec("bool", (4,), max=True, min=False, true=3)),
        (_NUMPYS, TensorSpec("int64", (3,), max=2, min=0, mean=1.0, norm=2.2, ndarray=True)),
        (_INTEGERS, TensorSpec("int8", (2,), values=(-128, 127))),
        (
            _INTEGERS | {"dtype": "torch.uint64", "values": [0, 2**64 - 1]},
            TensorSpec("uint64", (2,), values=(0, 2**64 - 1)),
        ),
        (
            _TENSOR | {"blocks": BLOCKS},
            replace(_SPEC, blocks=BlockStatistics(48, 2.5, 1, 0.25, 1.0, 0.0, 1e-05)),
        ),
        (
            _TENSOR | _SHARES,
            replace(_SPEC, zeros=0.0, mode=(0.5, 0.25), constant_rows=(0.125, -math.inf), negative_inf=3),
        ),
        (_TENSOR | {"zeros": 1, "constant_rows": [1, None]}, replace(_SPEC, zeros=1.0, constant_rows=(1.0, None))),
        (_TENSOR | {"Max": math.inf, "Min": None, **_UNKNOWN}, _with(max=math.inf)),
        (
            _TENSOR | {"Max": "Infinity", "Min": "-Infinity"},
            _with(max=math.inf, min=-math.inf, mean=0.5, norm=4.0),
        ),
        (
            _TENSOR | {"Max": True, "Min": False, "Mean": True, "Norm": 1},
            _with(max=True, min=False, mean=1.0, norm=1.0),
        ),
        (
            _TENSOR | {"Max": math.inf, "Max_except_inf_nan": 7.0, "Min": -2, **_UNKNOWN},
            _with(max=math.inf, min=-2, high=7.0),
        ),
        (_TENSOR | {"Max": math.inf, "Max_except_inf_nan": math.inf, **_UNKNOWN}, _with(max=math.inf, min=-1)),
        (
            _TENSOR | {"Max": 7, "Max_origin": math.inf, "Min": -2, "Min_origin": -math.inf, **_UNKNOWN},
            _with(max=math.inf, min=-math.inf, high=7.0, low=-2.0),
        ),
        (
            _TENSOR | {"Max": math.nan, "Mean": math.nan, "Max_except_inf_nan": 3, "Min_except_inf_nan": -1.5},
            _with(max=math.nan, min=-1, mean=math.nan, norm=4.0, high=3.0, low=-1.5),
        ),
    ],
)
def test_every_kind_of_argument_is_decoded(value: Any, decoded: Any) -> None:
    assert repr(_argument(value)) == repr(decoded)


def _scalar(kind: str, value: float = 2) -> dict[str, Any]:
    return {"type": kind, "value": value}


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "made", "dtype"),
    [
        ("Torch.tensor.0", [_scalar("float64")], {}, "float64", DtypeSpec("float64")),
        ("Torch.as_tensor.0", [[_scalar("numpy.int32")] * 2], {}, "int32", DtypeSpec("int32")),
        ("Torch.tensor.0", [[_scalar("float32"), _scalar("float")]], {"dtype": None}, "float32", DtypeSpec("float32")),
        ("Torch.tensor.0", [[_scalar("int32"), _scalar("int")]], {}, "int64", DtypeSpec("int64")),
        ("Torch.tensor.0", [_scalar("float")], {}, "float32", None),
        (
            *("Torch.tensor.0", [_scalar("float64")], {"dtype": {"type": "torch.dtype", "value": "torch.int8"}}),
            *("int8", DtypeSpec("int8")),
        ),
        ("Torch.full.0", [[_scalar("int")], _scalar("float64")], {}, "float32", None),
        ("Torch.tensor.0", [_scalar("float64")], {}, None, None),
    ],
)
def test_numpys_scalars_give_their_dtype(
    name: str, args: list[Any], kwargs: dict[str, Any], made: str | None, dtype: Any
) -> None:
    output = None if made is None else [{"type": "torch.Tensor", "dtype": f"torch.{made}", "shape": []}]
    record = replace(_record({"input_args": args, "input_kwargs": kwargs, "output": output}), name=name)
    assert decode(Path("d.json"), record).kwargs.get("dtype") == dtype


def test_a_call_is_decoded_whole() -> None:
    forward = {"input_args": [_TENSOR], "input_kwargs": {"p": {"type": "int", "value": 1}}, "output": [_TENSOR, None]}
    call = decode(_PATH, _record(forward, {"input": [None, _TENSOR], "output": []}))
    assert call == Call((_SPEC,), {"p": 1}, (_SPEC, None), (None, _SPEC))


@pytest.mark.parametrize(
    ("forward", "backward", "call"),
    [
        ({"input_args": []}, ..., Call((), {}, None, None)),
        ({"input_args": [], "is_recompute": False, "output": []}, ..., Call((), {}, (), None)),
        ({"input_args": [], "output": None}, {"output": []}, Call((), {}, None, ())),
    ],
)
def test_what_data_mode_left_out_is_missing_without_harm(forward: Any, backward: Any, call: Call) -> None:
    assert decode(_PATH, _record(forward, backward)) == call


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"type": 3}, ".type: found 3, expected the name of a type"),
        ({"a": True}, ".a: found true, expected an object, a list or null"),
        ({"type": "int"}, ".value: found nothing, expected an integer"),
        ({"type": "bool", "value": 1}, ".value: found 1, expected true or false"),
        ({"type": "float"}, ".value: found nothing, expected a number"),
        ({"type": "float", "value": 10**400}, f".value: found 1{'0' * 56}..., expected a number that float64 holds"),
        ({"type": "str", "value": 0.5}, ".value: found 0.5, expected a string"),
        ({"type": "slice", "value": [1, 2, "x"]}, ".value: found a list of 3, expected three integers or nulls"),
        ({"type": "torch.Size", "value": [-2]}, ".value.0: found -2, expected an integer from -1 on, below 2**63"),
        ({"type": "torch.dtype", "value": "torch.real"}, '.value: found the unknown dtype "torch.real", expected one'),
        ({"type": "torch.device", "value": 3}, ".value: found 3, expected the name of a device"),
        ({"type": "torch.memory_format", "format": "x"}, '.format: found "x", expected one of preserve_format, '),
        (_TENSOR | {"dtype": "torch.float23"}, '.dtype: found the unknown dtype "torch.float23", expected one of'),
        (_TENSOR | {"shape": [2, -3]}, ".shape.1: found -3, expected an integer from 0 on, below 2**63"),
        (_TENSOR | {"shape": [2**63]}, ".shape.0: found 9223372036854775808, expected an integer from 0 on"),
        (_TENSOR | {"shape": [1] * 65}, ".shape: found 65 dimensions, expected at most 64"),
        (_TENSOR | {"shape": "x"}, '.shape: found "x", expected a list of sizes'),
        (_TENSOR | {"Max": "high"}, '.Max: found "high", expected a number, true, false or null'),
        (_TENSOR | {"Max_origin": {}}, ".Max_origin: found an empty object, expected a number"),
        (_TENSOR | {"md5": "0" * 129}, f'.md5: found "{"0" * 56}..., expected at most 128 letters and digits'),
        (_TENSOR | {"md5": "0\n"}, '.md5: found "0\\n", expected at most 128 letters and digits'),
        (_TENSOR | {"requires_grad": "yes"}, '.requires_grad: found "yes", expected true or false'),
        ([None, {"type": "int"}], ".1.value: found nothing, expected an integer"),
        ({"type": "torch.ProcessGroup"}, ".group_ranks: found nothing, expected a list of ranks"),
        ({"type": "torch.ProcessGroup", "group_ranks": [0, 0]}, ".group_ranks: found a list of 2, expected numbers of"),
        ({"type": "torch.distributed.ReduceOp", "value": 3}, ".value: found 3, expected a string"),
        ({k: v for k, v in _TENSOR.items() if k != "dtype"}, ".dtype: found nothing, expected the name of a dtype"),
        (
            {"type": "complex", "value": [1.0]},
            ".value: found a list of 1, expected two numbers: real and",
        ),
        ({"type": "complex", "value": 2.0}, ".value: found 2.0, expected a list of real and imaginary part"),
        *(
            ({"type": "range", "value": value}, f".value: found a list of {len(value)}, expected three integers: start")
            for value in ([1, 2], [1, 2, 0], [1, 2, None], [1, True, 1])
        ),
        (_TENSOR | {"stride": [1]}, ".stride: found 1 strides, expected one for each of 2 dimensions"),
        (_TENSOR | {"NaN": -1}, ".NaN: found -1, expected a number of elements, 0 or more"),
        (_TENSOR | {"address": "x"}, '.address: found "x", expected a number of elements'),
        (_TENSOR | {"zeros": 1.5}, ".zeros: found 1.5, expected a share, from 0 to 1"),
        (_TENSOR | {"zeros": 0, "mode": [1.0]}, ".mode: found a list of 1, expected a list of two numbers"),
        (_TENSOR | {"zeros": 0, "mode": [math.inf, 0.5]}, ".mode.0: found inf, expected a finite number"),
        (_TENSOR | {"zeros": 0, "constant_rows": [None, 0.0]}, ".constant_rows.0: found null, expected a share"),
        (
            _TENSOR | {"blocks": BLOCKS | {"blocks": -1}},
            ".blocks.blocks: found -1, expected a number of elements",
        ),
        (_TENSOR | {"blocks": BLOCKS | {"binades": math.inf}}, ".blocks: found an object with the keys"),
        (_TENSOR | {"blocks": BLOCKS | {"clipped": 1.5}}, ".blocks.clipped: found 1.5, expected a share, from 0 to 1"),
        (
            _INTEGERS | {"values": [1]},
            ".values: found 1 values of int8, expected one for each of 2 elements",
        ),
        (_INTEGERS | {"values": [1, 128]}, ".values.1: found 128, expected an integer that int8 holds"),
        (
            _INTEGERS | {"values": [-1, 1], "dtype": "torch.uint8"},
            ".values.0: found -1, expected an integer that",
        ),
        (_INTEGERS | {"values": [True, 1]}, ".values.0: found true, expected an integer that int8 holds"),
        (_INTEGERS | {"dtype": "torch.float32"}, ".values: found 2 values of float32, expected one for each of 2 ele"),
        *(
            (_TENSOR | {"data_name": name}, ".data_name: found ")
            for name in ("../a.pt", "/etc/passwd", "a\\b.pt", "C:a.pt", "", ".", "..", "a\0.pt", "a" * 256, 7)
        ),
    ],
)
def test_what_is_malformed_is_named_with_its_field(value: Any, message: str) -> None:
    assert _refusal(value).startswith(message)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"type": "Wizard", "dtype": "torch.float32", "shape": [1]}, f'.type: found "Wizard", expected {_REBUILT}'),
        ({"class_type": "my.Class", "op": "isend"}, f'.type: found "my.Class", expected {_REBUILT}'),
        (
            {"type": "torch.layout", "layout": "torch.sparse_csr"},
            ".layout: found the layout torch.sparse_csr, ",
        ),
        *(
            (
                _TENSOR | {"dtype": f"torch.{dtype}"},
                f".dtype: found the dtype {dtype}, which NumPy does not have",
            )
            for dtype in ("qint32", "quint4x2", "complex32", "bits8", "uint4")
        ),
    ],
)
def test_what_cannot_be_rebuilt_is_named(value: Any, message: str) -> None:
    with pytest.raises(NotRebuilt) as caught:
        _argument(value)
    assert str(caught.value).startswith(f"dump.json: Torch.add.0.forward: input_args.0{message}")


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        ([], "found an empty list, expected an object"),
        (None, "found null, expected an object"),
        ({"output": []}, "input_args: found nothing, expected a list of arguments"),
        ({"input_args": {}}, "input_args: found an empty object, expected a list of arguments"),
        ({"input_args": [], "input_kwargs": []}, "input_kwargs: found an empty list, expected an object of arguments"),
        ({"input_args": [], "output": [3]}, "output.0: found 3, expected an object, a list or null"),
        ({"input_args": [], "input_kwargs": {"p": 3}}, "input_kwargs.p: found 3, expected an object, a list or null"),
    ],
)
def test_a_malformed_forward_entry_is_named(forward: Any, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        decode(_PATH, _record(forward))
    assert str(caught.value) == f"dump.json: Torch.add.0.forward: {message}"


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (3, "found 3, expected an object"),
        ({"input": {}}, "input: found an empty object, expected a list of gradients"),
        ({"input": [None, {"type": "int", "value": 3}]}, "input.1: found an object with the keys type, value, expec"),
    ],
)
def test_a_malformed_backward_entry_is_named(backward: Any, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        decode(_PATH, _record({"input_args": []}, backward))
    assert str(caught.value).startswith(f"dump.json: Torch.add.0.backward: {message}")


@pytest.mark.parametrize("text", ['{"input_args": [1e999]}', '{"input_args": "\\ud800"}', '{"input_args": "\udc80"}'])
def test_an_entry_that_python_cannot_hold_is_refused(text: str) -> None:
    raw = msgspec.Raw(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(RecordError, match="a value that cannot be decoded"):
        decode(_PATH, Record("Torch.add.0", "Torch", "add", 0, raw))


def test_a_wrong_value_anywhere_in_a_record_of_ours_is_a_call_or_a_record_error() -> None:
    tensor = _TENSOR | _LIES | {"True": 2, "blocks": BLOCKS}
    arguments = [tensor, [{"type": "complex", "value": [1.0, 2.0]}], {"type": "dict", "value": {}}]
    probe = {"autocast": {"cpu": "bfloat16"}, "default_dtype": "torch.float64", "tuples": ["input.1"], "rng": "AA=="}
    entry: dict[str, Any] = {
        "forward": {"input_args": arguments, "input_kwargs": {}, "output": [tensor], "probe": probe},
        "backward": {"input": [tensor], "output": [None], "probe": {"outputs": ["output.0"], "inputs": ["input.0"]}},
    }
    assert isinstance(decode(_PATH, _record(entry["forward"], entry["backward"]), ours=True), Call)
    refused = 0
    for place in list(places(entry))[1:]:
        for wrong in WRONG:
            changed = replaced(entry, place, wrong)
            try:
                assert isinstance(decode(_PATH, _record(changed["forward"], changed["backward"]), ours=True), Call)
            except RecordError:
                refused += 1
    assert refused > 300


def test_real_statistics_arrive_unchanged(unpacked: dict[str, Path]) -> None:
    dump = read_dump(unpacked["msprobe-26.2.0/gpt"])
    record = next(record for record in dump.records if record.name == "Functional.embedding.0")
    call = dump.decode(record)
    assert call.args == (
        TensorSpec("int64", (2, 16), max=63, min=3),
        TensorSpec(
            *("float32", (64, 32), 3.6555705070495605, -4.068782329559326, -0.043692365288734436, 46.73372268676758),
            requires_grad=True,
        ),
        *(None, None, 2.0, False, False),
    )
    assert call.kwargs == {}
    assert call.outputs is not None
    assert call.outputs[0].shape == (2, 16, 32)


def _ours(forward: dict[str, Any], backward: Any = ...) -> Call:
    """A call as our own capture describes it."""
    return decode(_PATH, _record({"input_args": [], "input_kwargs": {}, **forward}, backward), ours=True)


def test_tuples_are_told_from_lists() -> None:
    one = {"type": "int", "value": 1}
    args = [[one, [one]], [[one], one], []]
    kwargs = {"size": [one], "others": {"a": [one]}}
    found = _ours(
        {
            "input_args": args,
            "input_kwargs": kwargs,
            "probe": {"tuples": ["input.0", "input.1.0", "input.2", "kwargs.size", "kwargs.others.a"]},
        }
    )
    assert found.args == ((1, [1]), [(1,), 1], ())
    assert found.kwargs == {"size": (1,), "others": {"a": (1,)}}


def test_what_surrounds_a_call() -> None:
    assert _ours({"probe": {"autocast": {"cpu": "bfloat16"}}}).surroundings == Surroundings({"cpu": "bfloat16"})
    assert _ours({"probe": {"default_dtype": "torch.bfloat16"}}).surroundings == Surroundings({}, "bfloat16")
    assert _ours({}).surroundings == Surroundings({})
    assert decode(_PATH, _record({"input_args": []})).surroundings is None


def test_a_call_that_the_capture_could_not_record() -> None:
    with pytest.raises(NotRecorded) as caught:
        _ours({"probe": {"failed": "ValueError: too odd"}})
    assert str(caught.value) == (
        "dump.json: Torch.add.0.forward: found that the capture could not record it (ValueError: too odd), "
        "expected what was called"
    )


def test_gradients_that_the_capture_could_not_record_leave_the_forward() -> None:
    found = _ours({"input_args": [_TENSOR]}, {"probe": {"failed": "ValueError: too odd"}})
    assert (found.args, found.gradients) == ((_SPEC,), ())
    assert found.unrecorded.startswith("dump.json: Torch.add.0.backward: found that the capture could not record it")


def test_gradients_have_their_places() -> None:
    probe = {"outputs": ["output.0", "output.2"], "inputs": ["input.0", "kwargs.weight"]}
    found = _ours({}, {"input": [_TENSOR, None], "output": [None, _TENSOR], "probe": probe})
    assert (found.gradients, found.seeded) == ((_SPEC, None), ("output.0", "output.2"))
    assert found.outgoing == {"input.0": None, "kwargs.weight": _SPEC}


@pytest.mark.parametrize(
    ("forward", "backward", "message"),
    [
        ({"probe": 1}, None, "forward: probe: found 1, expected an object of what the capture knows"),
        ({"probe": {"tuples": 1}}, None, "forward: probe.tuples: found 1, expected a list of places"),
        ({"probe": {"failed": 1}}, None, "forward: probe.failed: found 1, expected the reason why"),
        ({"probe": {"autocast": []}}, None, "forward: probe.autocast: found an empty list, expected an object"),
        ({"probe": {"default_dtype": 1}}, None, "forward: probe.default_dtype: found 1, expected the name of a dtype"),
        ({"probe": {"default_dtype": "int8"}}, None, 'forward: probe.default_dtype: found "int8", expected one of'),
        ({"probe": {"autocast": {"cpu": "x"}}}, None, 'forward: probe.autocast.cpu: found the unknown dtype "x"'),
        ({}, {"input": [None], "probe": {"inputs": []}}, "backward: probe.outputs: found nothing, expected a list"),
        (
            {},
            {"input": [None], "probe": {"inputs": [], "outputs": []}},
            "backward: probe.outputs: found an empty list, expected as many places as there are gradients, 1",
        ),
    ],
)
def test_what_the_capture_cannot_know(forward: dict[str, Any], backward: Any, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        _ours(forward, ... if backward is None else backward)
    assert str(caught.value).startswith(f"dump.json: Torch.add.0.{message}")
