from __future__ import annotations

from pathlib import Path

import pytest

from pytest_probe.errors import DumpError, LostArgument, RecordError
from pytest_probe.model.dump import Call, Surroundings, TensorSpec
from pytest_probe.records import find_dumps, read_dump
from tests.support.paddle_dumps import LINES, TRACER

GOOD = 'paddle.add(Tensor([2, 3],"float32"), 1.0, )'
SPEC = TensorSpec("float32", (2, 3), requires_grad=True)


def _file(folder: Path, *lines: str, name: str = "lines.txt") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_real_lines() -> None:
    """Public ones, and those of Paddle's own tracer."""
    dump = read_dump(LINES)
    assert (len(dump.records), dump.framework, dump.task) == (40, "paddle", "configurations")
    assert sum(record.backward is not None for record in dump.records) == 30
    for record in dump.records:
        dump.decode(record)
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
    narrow = 'paddle.x(1, list[Tensor(paddle.Size([2, 3]),"float8_e4m3fn"),], )'
    dump = read_dump(_file(tmp_path, "", GOOD, "  ", integers, 'paddle.zeros(list[2,3,], "float32", )', narrow))
    assert [(record.name, record.directions) for record in dump.records] == [
        ("paddle.add.2", ("forward", "backward")),
        ("paddle.nn.functional.one_hot.4", ("forward",)),
        ("paddle.zeros.5", ("forward",)),
        ("paddle.x.6", ("forward", "backward")),
    ]
    first, second, *_ = dump.records
    assert (second.namespace, second.api) == ("paddle", "nn.functional.one_hot")
    assert dump.decode(first) == Call((SPEC, 1.0), {}, None, (), surroundings=Surroundings())
    assert dump.decode(second).gradients is None


def test_a_bad_line_costs_its_own_record(tmp_path: Path) -> None:
    many = 'Tensor([2, 3],"float32"),' * 5000  # longer than what is looked at first
    lines = ["paddle.add(Tensor([2,", "# a remark", "torch.add(1, )", "os.system(x, )", f"paddle.x({'list[' * 2000}"]
    path = _file(tmp_path, *lines, f"paddle.concat(list[{many}], )")
    path.write_bytes(path.read_bytes() + 'paddle.x("é'.encode() + b'\xff", )\n')
    dump = read_dump(path)
    names = ["paddle.add.1", "line.unparsed.2", "torch.add.3", "os.system.4", "paddle.x.5", "paddle.concat.6"]
    assert [record.name for record in dump.records] == [*names, "paddle.x.7"]
    wrong = {
        0: "column 12: found 'Tensor([2,', expected an argument",
        1: "column 1: found '# a remark', expected a call, as paddle.add(...)",
        3: "column 11: found 'x, )', expected an argument",
        4: "column 1: found lists that stand in each other too deep",
        6: "column 12: found the byte 0xff, expected UTF-8",
    }
    for place, message in wrong.items():
        record = dump.records[place]
        with pytest.raises(RecordError) as caught:
            dump.decode(record)
        assert str(caught.value).startswith(f"{path}: {record.name}.forward: line {place + 1}, {message}")
    assert dump.decode(dump.records[2]).args == (1,)
    assert len(dump.decode(dump.records[5]).args[0]) == 5000
    assert find_dumps(tmp_path) == [path]


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


def test_files_are_found_by_what_they_hold(tmp_path: Path) -> None:
    found = [_file(tmp_path, GOOD, name="a.json"), _file(tmp_path, "\ufeff" + GOOD, name="b.txt")]
    _file(tmp_path, GOOD, name="c.py")
    _file(tmp_path, "paddle.seed(42)", "x = paddle.ones([2, 3])", name="notes.txt")
    _file(tmp_path, "numpy==2.4.6", name="requirements.txt")
    assert find_dumps(tmp_path) == found
    assert [len(read_dump(path).records) for path in found] == [1, 1]
    first = read_dump(found[1]).records[0]
    assert read_dump(found[1]).decode(first).args == (SPEC, 1.0)
