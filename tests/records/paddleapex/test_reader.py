from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_probe.errors import DumpError
from pytest_probe.frameworks.paddle.tensor_files import load
from pytest_probe.inputs import StoredTensors
from pytest_probe.records import find_dumps, is_part, read_dump
from tests.support.paddle_dumps import LINES, STATISTICS, entry, tensor, unpack, unpack_real, value, write

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
    files = StoredTensors(dump.path, dump.data_dirs, load)
    (record,) = (record for record in dump.records if record.name == "paddle.reshape.0")
    assert files.array(dump.decode(record).args[1][0], record.name, "args.1.0").tolist() == 3
