from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.errors import DumpError, LostArgument, NotRebuilt, RecordError
from pytest_probe.inputs import StoredTensors
from pytest_probe.model.dump import Call, DeviceSpec, DtypeSpec, TensorSpec
from pytest_probe.records import find_dumps, is_part, read_dump
from pytest_probe.records.paddleapex import has_gradient
from tests.support.paddle_dumps import LINES, STATISTICS, entry, tensor, unpack, unpack_real, value, write


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


@pytest.mark.parametrize("name", STATISTICS)
def test_real_records(tmp_path: Path, name: str) -> None:
    dump = read_dump(unpack(name, tmp_path))
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


@pytest.mark.parametrize(
    ("written", "name"),
    [
        *(("FP64", "float64"), ("FP32", "float32"), ("FP16", "float16"), ("BF16", "bfloat16"), ("BOOL", "bool")),
        *(("UINT8", "uint8"), ("INT8", "int8"), ("INT16", "int16"), ("INT32", "int32"), ("INT64", "int64")),
        *(("FLOAT64", "float64"), ("FLOAT32", "float32"), ("FLOAT16", "float16"), ("BFLOAT16", "bfloat16")),
        *(("COMPLEX64", "complex64"), ("COMPLEX128", "complex128")),
        *(("FLOAT8_E4M3FN", "float8_e4m3fn"), ("FLOAT8_E5M2", "float8_e5m2")),
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
        ("INT8", 1, 0, (None, None)),
        ("BFLOAT16", 1, 0, (None, None)),
        ("FLOAT32", 1, 1, (1, 1)),
        ("FLOAT32", 0, 0, (0, 0)),
        ("FLOAT32", None, None, (None, None)),
        # The bits of bfloat16 as integers, rounded or not.
        ("BFLOAT16", 49179.0, 15.0, (None, None)),
        ("BFLOAT16", 65535, 0, (None, None)),
        ("BFLOAT16", 100000, 0, (None, None)),
        ("BFLOAT16", 2.0, -2.0, (2.0, -2.0)),
        ("BFLOAT16", 49179.5, 15.0, (49179.5, 15.0)),
        ("BFLOAT16", 10, 1, (10, 1)),
        ("BF16", 49179.0, 15.0, (49179.0, 15.0)),
        ("FLOAT32", 49179.0, 15.0, (49179.0, 15.0)),
        # Rounded beyond what the dtype holds.
        ("FLOAT16", 1e5, -1e5, (65504.0, -65504.0)),
        ("FLOAT32", 1e39, 1.0, (3.4028234663852886e38, 1.0)),
        ("FLOAT32", "Infinity", 1.0, (float("inf"), 1.0)),
        # Of complex numbers there is no range.
        ("COMPLEX64", 3, 2, (None, None)),
        ("INT64", 100, 0, (100, 0)),
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
        (value(3), 3),
        (value(0.5), 0.5),
        (value("bilinear"), "bilinear"),
        (value("float16"), DtypeSpec("float16")),
        (value("paddle.int64"), DtypeSpec("int64")),
        ("paddle.float32", DtypeSpec("float32")),
        ("paddle.bool", DtypeSpec("bool")),
        ({"type": "slice", "value": [1, None, 2]}, slice(1, None, 2)),
        ({"type": "numpy.float32", "value": 2.5}, 2.5),
        ({"type": "numpy.int64", "value": 3}, 3),
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


BROKEN: Mapping[str, tuple[Any, str]] = {
    "null": (None, "found null, expected an object"),
    "list": ([], "found an empty list, expected an object"),
    "no args": ({"kwargs": {}}, "args: found nothing, expected a list of arguments"),
    "args": ({"args": {}, "kwargs": {}}, "args: found an empty object, expected a list of arguments"),
    "kwargs": ({"args": [], "kwargs": []}, "kwargs: found an empty list, expected an object of arguments"),
    "dout": (entry() | {"dout_list": None}, "dout_list: found null, expected a list of gradients"),
    "gradient": (
        entry(gradients=[value(1)]),
        "dout_list.0: found an object with the keys type, value, expected a tensor",
    ),
    "dtype": (entry(tensor("FLOAT33")), 'args.0.dtype: found the unknown dtype "FLOAT33", expected one of float16, '),
    "bare": (entry("paddle.x"), 'args.0: found the unknown dtype "paddle.x", expected one of float16, '),
    "text": (entry("x"), 'args.0: found "x", expected an object, a list or the name of a dtype'),
    "number": (entry(3), "args.0: found 3, expected an object, a list or the name of a dtype"),
    "shape": (entry(tensor(shape=[2, -3])), "args.0.shape.1: found -3, expected an integer from 0 on, below 2**63"),
    "sizes": (entry(tensor(shape=[0, 2**60])), "args.0.shape: found the sizes 0, 1152921504606846976, expected sizes"),
    "Max": (entry(tensor(high="x")), 'args.0.Max: found "x", expected a number, true, false or null'),
    "grad": (entry(tensor(stop_gradient=1)), "args.0.stop_gradient: found 1, expected true or false"),
    "type": (entry({"type": 3}), "args.0.type: found 3, expected the name of a type"),
    "int": (entry(value(1) | {"value": 1.5}), "args.0.value: found 1.5, expected an integer"),
    "slice": (entry({"type": "slice", "value": [1]}), "args.0.value: found a list of 1, expected three integers or"),
    "path": (
        entry(x=tensor(real_data_path="../a.pt")),
        'kwargs.x.real_data_path: found "../a.pt", expected the bare name of a file, without a folder',
    ),
    "nul": (entry(tensor(real_data_path="a\0")), 'args.0.real_data_path: found "a\\u0000", expected the bare name'),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_record_says_what_is_wrong(tmp_path: Path, name: str) -> None:
    body, message = BROKEN[name]
    assert _failure(tmp_path, body).startswith(message)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"type": "paddle.Place", "value": 1},
            'args.0.type: found "paddle.Place", expected a tensor, an array, a number',
        ),
        (tensor("UINT4"), "args.0.dtype: found the dtype uint4, which NumPy does not have, expected a tensor"),
    ],
)
def test_values_that_have_no_place(tmp_path: Path, given: Any, message: str) -> None:
    assert _failure(tmp_path, entry(given), NotRebuilt).startswith(message)


def test_values_nested_too_deep(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(f'{{"paddle.add*7": {{"args": [{"[" * 700}{"]" * 700}]}}}}')
    dump = read_dump(path)
    with pytest.raises(
        RecordError, match=r"paddle\.add\.7: found values nested too deep, expected fewer than about 500"
    ):
        dump.decode(dump.records[0])


# Records of each dump, and those with a backward item.
COUNTS = {
    "cnn_random": (35, 24),
    "edge_random_default": (32, 16),
    "gpt_paddle262_random": (67, 48),
    "gpt_random": (62, 48),
    "gpt_random_nodedup": (72, 58),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_real_dumps(tmp_path: Path, name: str) -> None:
    path = unpack(name, tmp_path)
    dump = read_dump(path)
    backward = [record for record in dump.records if record.backward is not None]
    assert (len(dump.records), len(backward)) == COUNTS[name]
    assert (dump.framework, dump.task, dump.level) == ("paddle", "statistics", "")
    assert (dump.notes, dump.damage, dump.skipped, dump.data_dirs) == ((), (), {}, (tmp_path,))
    assert dump.stack(dump.records[0].name) == ()


def test_a_dump_with_tensors(tmp_path: Path) -> None:
    dump = read_dump(unpack_real(tmp_path))
    assert (len(dump.records), dump.task) == (31, "tensor")


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


def test_parts_count_where_the_whole_is_no_dump(tmp_path: Path) -> None:
    whole = unpack_real(tmp_path)
    whole.write_text("null")
    names = ["forward_rank0_half.json", "forward_rank0_other.json"]
    assert [path.name for path in find_dumps(tmp_path)] == names


def test_a_name_says_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, {"paddle.add*0": entry(tensor())}, "any name.json")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert find_dumps(tmp_path) == [path]
    assert len(read_dump(path).records) == 1


@pytest.mark.parametrize("text", ["{}", "null", "[]", '{"a.b": {"args": []}}', '{"*3": {"args": []}}'])
def test_what_is_no_such_dump(tmp_path: Path, text: str) -> None:
    (tmp_path / "forward_rank0_all.json").write_text(text)
    with pytest.raises(DumpError, match="the folder holds no dump"):
        find_dumps(tmp_path)


def test_bare_tokens(tmp_path: Path) -> None:
    entries = {
        "paddle.add*0": entry(tensor(high=float("nan"), low=float("-inf")), value(float("inf"))),
        "paddle.add*1": entry(tensor()),
    }
    dump = read_dump(write(tmp_path, entries))
    assert dump.damage == ()
    call = dump.decode(dump.records[0])
    assert repr((call.args[0].max, call.args[0].min, call.args[1])) == "(nan, -inf, inf)"


def test_every_cut_keeps_the_records_before_it(tmp_path: Path) -> None:
    path = write(tmp_path, {f"paddle.add*{number}": entry(tensor(high=float("nan"))) for number in range(4)})
    text = path.read_text()
    ends = [text.index("\n  }", text.index(f"add*{number}")) + 4 for number in range(4)]
    for cut in range(ends[0], len(text) - 1, 7):
        path.write_text(text[:cut])
        dump = read_dump(path)
        kept = sum(end <= cut for end in ends)
        assert [record.number for record in dump.records] == list(range(kept)), cut
        (damage,) = dump.damage
        assert damage.startswith(f"{path}: is damaged or cut off at byte "), cut
        assert damage.endswith(f"entries kept: {kept}; copy the file again, or repeat the capture"), cut
        assert all(dump.decode(record).args[0].shape == (2, 3) for record in dump.records)


def test_a_hole_costs_one_record(tmp_path: Path) -> None:
    path = write(tmp_path, {f"paddle.add*{number}": entry(tensor()) for number in range(3)})
    text = path.read_text()
    at = text.index("shape", text.index("add*1"))
    path.write_text(f"{text[:at]}\0\0{text[at:]}")
    dump = read_dump(path)
    assert [record.number for record in dump.records] == [0, 2]
    assert "in entry paddle.add*1; the last good entry before is paddle.add*0; entries kept: 2" in dump.damage[0]


def test_nothing_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text('{"paddle.add*0": {"args": [{"type": "paddle.T')
    with pytest.raises(DumpError, match=r"cut off at byte \d+ \(line 1\), in entry paddle.add\*0; no entry could be"):
        read_dump(path)


def test_keys_that_are_no_calls_are_counted(tmp_path: Path) -> None:
    good = entry(tensor())
    path = write(tmp_path, {"paddle.add*0": good, "paddle.add*00": good, "add*1": good, "paddle.*1": good, "x": good})
    dump = read_dump(path)
    assert [record.name for record in dump.records] == ["paddle.add.0"]
    assert dump.skipped == {"entries with a name that is no API call": 4}


def test_a_key_that_stands_twice(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(
        '{"paddle.add*0": {"args": [], "kwargs": {}}, "paddle.add*0": {"args": [null], "kwargs": {}},'
        ' "paddle.add*1": {"args": [], "kwargs": {}}}'
    )
    dump = read_dump(path)
    assert dump.notes == ("entry paddle.add*0 occurs 2 times, the last one counts",)
    assert len(dump.records) == 2


@pytest.mark.parametrize(
    ("given", "backward"),
    [
        (tensor(), True),
        (tensor("BF16"), True),
        (tensor("COMPLEX64"), True),
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
        ("Tensor.argmax", 'Tensor([2],"float32"), ', False),
        ("Tensor.__ne__", 'Tensor([2],"float32"), 1.0, ', False),
        ("Tensor.__setitem__", 'Tensor([2],"float32"), 0, 1.0, ', False),
        ("cast", 'Tensor([2],"float32"), "float64", ', True),
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
