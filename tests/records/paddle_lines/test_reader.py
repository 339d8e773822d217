from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_probe.errors import DumpError, LostArgument, ProbeError, RecordError
from pytest_probe.model.dump import Call, Dump, Record, Surroundings, TensorSpec
from pytest_probe.records import find_dumps, read_dump
from tests.support.paddle_dumps import LINES, TRACER

GOOD = 'paddle.add(Tensor([2, 3],"float32"), 1.0, )'
SPEC = TensorSpec("float32", (2, 3), requires_grad=True)


def _file(folder: Path, *lines: str, name: str = "lines.txt") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_public_lines() -> None:
    dump = read_dump(LINES)
    assert (len(dump.records), dump.framework, dump.task) == (40, "paddle", "configurations")
    assert sum(record.backward is not None for record in dump.records) == 30
    for record in dump.records:
        dump.decode(record)


def test_lines_of_paddles_own_tracer() -> None:
    dump = read_dump(TRACER)
    assert [record.number for record in dump.records] == list(range(1, 28))
    for record in dump.records[:-1]:
        dump.decode(record)
    with pytest.raises(LostArgument) as caught:
        dump.decode(dump.records[-1])
    found = "found a tensor without its value, expected the integer that it held"
    assert str(caught.value) == f"{TRACER}: paddle.full.27.forward: line 27, args.0.0: {found}"


def test_a_line_is_a_record_with_its_number(tmp_path: Path) -> None:
    integers = 'paddle.nn.functional.one_hot(Tensor([4],"int64"), num_classes=3, )'
    dump = read_dump(_file(tmp_path, "", GOOD, "  ", integers, 'paddle.zeros(list[2,3,], "float32", )'))
    assert [(record.name, record.directions) for record in dump.records] == [
        ("paddle.add.2", ("forward", "backward")),
        ("paddle.nn.functional.one_hot.4", ("forward",)),
        ("paddle.zeros.5", ("forward",)),
    ]
    first, second, _ = dump.records
    assert (second.namespace, second.api) == ("paddle", "nn.functional.one_hot")
    assert dump.decode(first) == Call((SPEC, 1.0), {}, None, (), surroundings=Surroundings())
    assert dump.decode(second).gradients is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64", "float8_e4m3fn"])
def test_floating_tensors_have_a_backward(tmp_path: Path, dtype: str) -> None:
    path = _file(tmp_path, f'paddle.x(1, list[Tensor(paddle.Size([2, 3]),"{dtype}"),], )')
    assert read_dump(path).records[0].directions == ("forward", "backward")


def test_a_bad_line_costs_its_own_record(tmp_path: Path) -> None:
    path = _file(tmp_path, GOOD, "paddle.add(Tensor([2,", "# a remark", "torch.add(1, )", "os.system(x, )")
    dump = read_dump(path)
    names = ["paddle.add.1", "paddle.add.2", "line.unparsed.3", "torch.add.4", "os.system.5"]
    assert [record.name for record in dump.records] == names
    texts = []
    for record in (dump.records[1], dump.records[2], dump.records[4]):
        with pytest.raises(RecordError) as caught:
            dump.decode(record)
        texts.append(str(caught.value))
    assert texts[0].startswith(f"{path}: paddle.add.2.forward: line 2, column 12: found 'Tensor([2,', expected an arg")
    call = "found '# a remark', expected a call, as paddle.add(...)"
    assert texts[1] == f"{path}: line.unparsed.3.forward: line 3, column 1: {call}"
    assert texts[2].startswith(f"{path}: os.system.5.forward: line 5, column 11: found 'x, )', expected an argument")
    assert dump.decode(dump.records[3]).args == (1,)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = _file(tmp_path, GOOD)
    path.write_bytes(path.read_bytes() + 'paddle.x("é'.encode() + b'\xff", )\n')
    dump = read_dump(path)
    with pytest.raises(RecordError, match=r"line 2, column 12: found the byte 0xff, expected UTF-8"):
        dump.decode(dump.records[1])


def test_lists_that_stand_in_each_other_too_deep(tmp_path: Path) -> None:
    dump = read_dump(_file(tmp_path, GOOD, f"paddle.x({'list[' * 2000}"))
    with pytest.raises(RecordError, match="line 2, column 1: found lists that stand in each other too deep"):
        dump.decode(dump.records[1])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("paddle.add(Tensor([2,\npaddle.x(", "holds no call that can be read: line 1, column 12: found 'Tensor([2,'"),
        ("x\npaddle.add(y, )", "holds no call that can be read: line 2, column 12: found 'y, )', expected an argument"),
        ("paddle.add(x, y)", "holds no call that can be read: line 1, column 12: found 'x, y)'"),
        ("torch.add(1, )", "is not a dump: it begins with 'torch.add(1, )"),
    ],
)
def test_a_file_without_a_good_line_is_refused(tmp_path: Path, text: str, found: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(DumpError) as caught:
        read_dump(path)
    assert str(caught.value).startswith(f"{path}: {found}")
    with pytest.raises(DumpError, match="the folder holds no dump"):
        find_dumps(tmp_path)


def test_one_good_line_is_enough_wherever_it_stands(tmp_path: Path) -> None:
    path = _file(tmp_path, *["paddle.add(x, )"] * 10_000, GOOD)
    assert find_dumps(tmp_path) == [path]
    assert len(read_dump(path).records) == 10_001


def test_a_line_longer_than_what_is_looked_at_first(tmp_path: Path) -> None:
    many = 'Tensor([2, 3],"float32"),' * 5000
    path = _file(tmp_path, f"paddle.concat(list[{many}], )")
    dump = read_dump(path)
    assert len(dump.decode(dump.records[0]).args[0]) == 5000


def test_files_are_found_by_what_they_hold(tmp_path: Path) -> None:
    found = [_file(tmp_path, GOOD, name="a.json"), _file(tmp_path, "\ufeff" + GOOD, name="b.txt")]
    _file(tmp_path, GOOD, name="c.py")
    _file(tmp_path, "paddle.seed(42)", "x = paddle.ones([2, 3])", name="notes.txt")
    _file(tmp_path, "numpy==2.4.6", name="requirements.txt")
    assert find_dumps(tmp_path) == found
    assert [len(read_dump(path).records) for path in found] == [1, 1]
    first = read_dump(found[1]).records[0]
    assert read_dump(found[1]).decode(first).args == (SPEC, 1.0)


def test_windows_ends_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(f"{GOOD}\r\n\r\n{GOOD}\r\n".encode())
    dump = read_dump(path)
    assert [record.number for record in dump.records] == [1, 3]
    assert dump.decode(dump.records[1]).args == (SPEC, 1.0)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from([GOOD[:n] for n in range(len(GOOD))])).map("\n".join).map(str.encode)
)
def test_any_bytes_end_in_calls_or_in_our_own_errors(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(GOOD.encode() + b"\n" + content)
    dump = read_dump(path)
    assert dump.decode(dump.records[0]).args == (SPEC, 1.0)
    for record in dump.records:
        assert _place(dump, record) in ("", f"line {record.number}")
    path.write_bytes(content)
    with suppress(ProbeError):
        read_dump(path)


def _place(dump: Dump, record: Record) -> str:
    """The line that a record's error names; "" where it is a call."""
    try:
        dump.decode(record)
    except RecordError as error:
        return error.field.partition(",")[0]
    return ""
