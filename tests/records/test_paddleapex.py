from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.errors import LostArgument, NotRebuilt, RecordError
from pytest_probe.inputs import StoredTensors
from pytest_probe.model.dump import Call, DeviceSpec, DtypeSpec, TensorSpec
from pytest_probe.records import find_dumps, is_part, read_dump
from pytest_probe.records.paddleapex import has_gradient
from tests.support.paddle_dumps import LINES, entry, tensor, unpack, unpack_real, value, write


def _decoded(folder: Path, body: Any) -> Call:
    dump = read_dump(write(folder, {"paddle.add*7": body, "paddle.add*8": entry()}))
    return dump.decode(dump.records[0])


def _argument(folder: Path, given: Any) -> Any:
    return _decoded(folder, entry(given)).args[0]


def _failure(folder: Path, body: Any, kind: type[RecordError] = RecordError) -> str:
    with pytest.raises(RecordError) as caught:
        _decoded(folder, body)
    assert type(caught.value) is kind
    text, start = str(caught.value), f"{folder / 'forward_rank0_all.json'}: paddle.add.7.forward: "
    assert text.startswith(start)
    return text.removeprefix(start)


def test_a_real_call(tmp_path: Path) -> None:
    dump = read_dump(unpack("gpt_random_nodedup", tmp_path))
    (record,) = (record for record in dump.records if record.name == "paddle.Tensor.__add__.0")
    wide = TensorSpec("float32", (2, 16, 32), max=0.24891196191310883, min=-0.24971425533294678, requires_grad=True)
    row = TensorSpec("float32", (16, 32), max=0.3056228458881378, min=-0.30417400598526, requires_grad=True)
    grad = TensorSpec("float32", (2, 16, 32), max=0.12526896595954895, min=-0.12264207750558853, requires_grad=True)
    assert dump.decode(record) == Call((wide, row), {}, None, (grad,))


def test_a_size_that_was_stored(tmp_path: Path) -> None:
    dump = read_dump(unpack_real(tmp_path))
    (record,) = (record for record in dump.records if record.name == "paddle.reshape.0")
    size = TensorSpec("int64", (), max=3, min=3, data_name="paddle.reshape*0.1.pt")
    assert dump.decode(record).args[1] == [size, -1]
    assert (len(dump.records), dump.task) == (31, "tensor")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        *(("FP32", "float32"), ("BF16", "bfloat16"), ("BOOL", "bool"), ("UINT8", "uint8"), ("INT64", "int64")),
        *(("FLOAT64", "float64"), ("BFLOAT16", "bfloat16"), ("COMPLEX64", "complex64"), ("FLOAT8_E5M2", "float8_e5m2")),
    ],
)
def test_dtypes_of_paddle_2_and_3(tmp_path: Path, written: str, name: str) -> None:
    assert _argument(tmp_path, tensor(written)).dtype == name


@pytest.mark.parametrize(
    ("dtype", "high", "low", "found"),
    [
        ("FLOAT32", 2.5, -1.5, (2.5, -1.5)),
        # Where Paddle's kernel raised.
        ("FLOAT32", 1, 0, (None, None)),
        ("BFLOAT16", 1, 0, (None, None)),
        ("FLOAT32", 1, 1, (1, 1)),
        ("FLOAT32", None, None, (None, None)),
        # The bits of bfloat16 as integers, rounded or not.
        ("BFLOAT16", 49179.0, 15.0, (None, None)),
        ("BFLOAT16", 100000, 0, (None, None)),
        ("BFLOAT16", 49179.5, 15.0, (49179.5, 15.0)),
        ("BFLOAT16", 10, 1, (10, 1)),
        ("BF16", 49179.0, 15.0, (49179.0, 15.0)),
        # Rounded beyond what the dtype holds.
        ("FLOAT16", 1e5, -1e5, (65504.0, -65504.0)),
        ("FLOAT32", 1e39, 1.0, (3.4028234663852886e38, 1.0)),
        ("FLOAT32", "Infinity", 1.0, (float("inf"), 1.0)),
        # Of complex numbers there is no range.
        ("COMPLEX64", 3, 2, (None, None)),
        ("BOOL", True, False, (None, None)),
        ("BOOL", True, True, (True, True)),
    ],
)
def test_ranges(tmp_path: Path, dtype: str, high: Any, low: Any, found: tuple[Any, Any]) -> None:
    spec = _argument(tmp_path, tensor(dtype, high=high, low=low))
    assert (spec.max, spec.min) == found


def test_gradients(tmp_path: Path) -> None:
    spec = TensorSpec("float32", (2, 3), max=2.5, min=-1.5, requires_grad=True)
    assert _decoded(tmp_path, entry(tensor(), gradients=[tensor(), None])).gradients == (spec, None)
    assert _decoded(tmp_path, entry(tensor(), gradients=["Failed"])).gradients == ()
    assert _decoded(tmp_path, entry(tensor(), gradients=[tensor(), "Failed"])).gradients == ()
    assert _decoded(tmp_path, {"args": [tensor()], "kwargs": {}}).gradients == ()
    assert _decoded(tmp_path, entry(tensor("INT64"), gradients=[tensor()])).gradients is None


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"type": "NoneType", "value": None}, None),
        (value(True), True),
        (value(0.5), 0.5),
        (value("bilinear"), "bilinear"),
        (value("paddle.int64"), DtypeSpec("int64")),
        ("paddle.float32", DtypeSpec("float32")),
        ({"type": "slice", "value": [1, None, 2]}, slice(1, None, 2)),
        ({"type": "numpy.float32", "value": 2.5}, 2.5),
        ({"type": "numpy.bool_", "value": True}, True),
        ([value(1), [value(2)]], [1, [2]]),
        ({"a": value(1), "b": {"type": value(2)}}, {"a": 1, "b": {"type": 2}}),
    ],
)
def test_plain_values(tmp_path: Path, given: Any, found: Any) -> None:
    assert _argument(tmp_path, given) == found
    assert _decoded(tmp_path, entry(x=given)).kwargs == {"x": found}


def test_a_place_that_was_not_written(tmp_path: Path) -> None:
    assert _decoded(tmp_path, entry(place=None, device=None)).kwargs == dict.fromkeys(
        ("place", "device"), DeviceSpec("cpu")
    )


def test_what_was_not_written_is_lost(tmp_path: Path) -> None:
    found = "found null, which PaddleAPEX writes for what it has no form for (an array, a place, a group, a layer), "
    for body, field in (
        (entry(None), "args.0"),
        (entry([tensor(), None]), "args.0.1"),
        (entry(group=None), "kwargs.group"),
    ):
        assert _failure(tmp_path, body, LostArgument) == f"{field}: {found}expected the argument"
    assert LostArgument.kind == "lost argument"


@pytest.mark.parametrize(
    ("high", "low", "lost"), [(10, 10, True), (1, 0, True), (10, 1, True), (3, 3, False), (1, 1, False)]
)
def test_a_size_that_is_a_tensor(tmp_path: Path, high: int, low: int, lost: bool) -> None:
    size = tensor("INT64", (), high, low, stop_gradient=True)
    body = entry(tensor(), [size, value(-1)])
    if lost:
        assert _failure(tmp_path, body, LostArgument).startswith("args.1.0: found a tensor whose value was not stored")
    else:
        assert _decoded(tmp_path, body).args[1] == [TensorSpec("int64", (), max=high, min=low), -1]
    assert _decoded(tmp_path, entry([size, size])).args[0][0].dtype == "int64"


@pytest.mark.parametrize(
    ("name", "records", "gradients"),
    [
        ("cnn_random", 35, 24),
        ("edge_random_default", 32, 16),
        ("gpt_paddle262_random", 67, 48),
        ("gpt_random", 62, 48),
        ("gpt_random_nodedup", 72, 58),
    ],
)
def test_real_dumps(tmp_path: Path, name: str, records: int, gradients: int) -> None:
    path = unpack(name, tmp_path)
    dump = read_dump(path)
    backward = [record for record in dump.records if record.backward is not None]
    assert (len(dump.records), len(backward)) == (records, gradients)
    lost = []
    for record in dump.records:
        try:
            call = dump.decode(record)
        except LostArgument as error:
            lost.append(error.entry)
            continue
        assert call.outputs is None
        assert (call.gradients is None) == (record.backward is None)
    assert lost == (["paddle.reshape.0.forward"] if name == "edge_random_default" else [])
    assert (dump.framework, dump.task, dump.level) == ("paddle", "statistics", "")
    assert (dump.notes, dump.damage, dump.skipped, dump.data_dirs) == ((), (), {}, (tmp_path,))
    assert dump.stack(dump.records[0].name) == ()


def test_names_of_records(tmp_path: Path) -> None:
    path = write(tmp_path, {"paddle.Tensor.__add__*10": entry(tensor()), "paddle.add*2": entry(tensor("INT64"))})
    first, second = read_dump(path).records
    assert (first.name, first.namespace, first.api, first.number) == (
        "paddle.Tensor.__add__.10",
        "paddle",
        "Tensor.__add__",
        10,
    )
    assert (second.name, second.api, second.directions) == ("paddle.add.2", "add", ("forward",))
    assert first.directions == ("forward", "backward")


def test_a_folder_with_all_records_in_one_file_gives_that_one(tmp_path: Path) -> None:
    whole = unpack_real(tmp_path)
    half, other = (whole.with_name(f"forward_rank0_{part}.json") for part in ("half", "other"))
    old = write(tmp_path / "old", {"paddle.add*0": entry(tensor())}, "forward_rank0.json")
    lone = write(tmp_path / "parts", {"paddle.add*0": entry(tensor())}, "forward_rank1_half.json")
    assert find_dumps(tmp_path) == [old, lone, whole]
    assert find_dumps(half) == [half]
    assert [is_part(path) for path in (whole, half, other, lone, old)] == [False, True, True, False, False]
    assert len(read_dump(half).records) == 1
    whole.write_text("null")  # which is no dump
    assert find_dumps(whole.parent) == [half, other]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (None, "found null, expected an object"),
        ({"kwargs": {}}, "args: found nothing, expected a list of arguments"),
        ({"args": {}, "kwargs": {}}, "args: found an empty object, expected a list of arguments"),
        ({"args": [], "kwargs": []}, "kwargs: found an empty list, expected an object of arguments"),
        (entry() | {"dout_list": None}, "dout_list: found null, expected a list of gradients"),
        (entry(gradients=[value(1)]), "dout_list.0: found an object with the keys type, value, expected a tensor"),
        (entry(tensor("FLOAT33")), 'args.0.dtype: found the unknown dtype "FLOAT33", expected one of float16, '),
        (entry("paddle.x"), 'args.0: found the unknown dtype "paddle.x", expected one of float16, '),
        (entry("x"), 'args.0: found "x", expected an object, a list or the name of a dtype'),
        (entry(tensor(shape=[0, 2**60])), "args.0.shape: found the sizes 0, 1152921504606846976, expected sizes"),
        (entry(tensor(high="x")), 'args.0.Max: found "x", expected a number, true, false or null'),
        (entry(tensor(stop_gradient=1)), "args.0.stop_gradient: found 1, expected true or false"),
        (entry({"type": "slice", "value": [1]}), "args.0.value: found a list of 1, expected three integers or"),
        (entry(x=tensor(real_data_path="../a.pt")), 'kwargs.x.real_data_path: found "../a.pt", expected the bare name'),
        (entry({"type": "paddle.Place", "value": 1}), 'args.0.type: found "paddle.Place", expected a tensor, an array'),
        (entry(tensor("UINT4")), "args.0.dtype: found the dtype uint4, which NumPy does not have, expected a tensor"),
    ],
)
def test_a_broken_record_says_what_is_wrong(tmp_path: Path, body: Any, message: str) -> None:
    rebuilt = "Place" not in message and "NumPy" not in message
    assert _failure(tmp_path, body, RecordError if rebuilt else NotRebuilt).startswith(message)


@pytest.mark.parametrize(
    ("given", "backward"),
    [
        (tensor(), True),
        (tensor("BF16"), True),
        (tensor("INT64"), False),
        (tensor(stop_gradient=True), False),
        ([value(1), {"mask": tensor()}], True),
        (tensor("FLOAT4"), False),
        (value('"stop_gradient": false'), False),
    ],
)
def test_which_records_have_a_backward(tmp_path: Path, given: object, backward: bool) -> None:
    named = [tensor(stop_gradient=False)]
    entries = {"paddle.add*0": entry(given, gradients=named), "paddle.add*1": entry(value(1), x=given, gradients=named)}
    for record in read_dump(write(tmp_path, entries)).records:
        assert (record.backward is not None) == backward


def test_an_archive_of_a_folder(tmp_path: Path) -> None:
    folder = unpack_real(tmp_path / "run").parent
    shutil.copy(LINES, folder / "lines.txt")
    packed = Path(shutil.make_archive(str(tmp_path / "run"), "zip", tmp_path / "run"))
    whole, lines = find_dumps(packed)
    assert [path.relative_to(packed).as_posix() for path in (whole, lines)] == [
        "rank0_step0/forward_rank0_all.json",
        "rank0_step0/lines.txt",
    ]
    assert len(read_dump(lines).records) == 40
    dump = read_dump(whole)
    files = StoredTensors.of(dump)
    (record,) = (record for record in dump.records if record.name == "paddle.reshape.0")
    assert files.array(dump.decode(record).args[1][0], record.name, "args.1.0").tolist() == 3


@pytest.mark.parametrize(
    ("api", "line", "gradient"),
    [
        ("add", 'Tensor([2],"float32"), 1, ', True),
        ("argmax", 'Tensor([2],"float32"), axis=0, ', False),
        ("Tensor.__setitem__", 'Tensor([2],"float32"), 0, 1.0, ', False),
        ("cast", 'Tensor([2],"float32"), "int64", ', False),
        ("Tensor.astype", 'Tensor([2],"float32"), Dtype(bool), ', False),
        ("Tensor.astype", 'Tensor([2],"float32"), Dtype(paddle.uint8), ', False),
        ("Tensor.astype", '"args": [{"dtype": "FLOAT32"}, "paddle.int32"]', False),
        ("Tensor.astype", '"args": [{"dtype": "FLOAT32"}, {"type": "str", "value": "int32"}]', False),
        ("Tensor.astype", '"args": [{"dtype": "FLOAT32"}, {"type": "str", "value": "float16"}]', True),
        ("sum", 'Tensor([2],"float32"), dtype="int64", ', True),
    ],
)
def test_which_calls_may_have_a_gradient(api: str, line: str, gradient: bool) -> None:
    assert has_gradient(api, line.encode()) == gradient
