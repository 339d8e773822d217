"""Which files are dumps, and what they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_probe.errors import DumpError
from pytest_probe.model.dump import Dump
from pytest_probe.records import READERS, find_dumps, labels, read_dump

_EMPTY = '{"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null, "data": {}}'


def _make(folder: Path, *names: str, text: str = _EMPTY) -> list[Path]:
    paths = [folder / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return paths


def test_dumps_in_a_folder_are_in_natural_order(tmp_path: Path) -> None:
    names = ["step0/rank0/dump.json", "step0/rank2/dump.json", "step0/rank10/dump.json", "step10/rank0/dump.json"]
    paths = _make(tmp_path, *names)
    assert find_dumps(tmp_path) == paths


def test_only_dumps_are_found(tmp_path: Path) -> None:
    expected = _make(tmp_path, "a/any_name.json", "a/dump.txt")
    _make(tmp_path, "a/dump_tensor_data/dump.json", "a/dump.bin")
    _make(tmp_path, "a/notes.txt", text="paddle.seed(42)\nThe seed of all runs.\n")
    _make(tmp_path, "a/construct.json", "b/results.json", text="{}")
    for number, text in enumerate(("null", "[]", '{"a.b": {"args": []}}', '{"*3": {"args": []}}')):
        _make(tmp_path, f"b/forward_rank{number}_all.json", text=text)
    _make(tmp_path, "a/stack.json", text='{"0": [["T.a.0.forward"], []]}')
    (tmp_path / "b" / "gone.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.json").mkdir()
    assert find_dumps(tmp_path) == expected
    with pytest.raises(DumpError, match="b: the folder holds no dump; give one"):
        find_dumps(tmp_path / "b")


def test_real_dumps_are_found(unpacked: dict[str, Path]) -> None:
    root = unpacked["msprobe-26.2.0/gpt"].parents[2]
    assert sorted(find_dumps(root)) == sorted(unpacked.values())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "is empty; repeat the capture"),
        ("\ufeff  \n", "is empty; repeat the capture"),
        ("hello", "is not a dump: it begins with 'hello'; known are dumps of msprobe"),
        ("{}", "is not a dump: it is a JSON object without keys; known are"),
        ('{"name": 1, "version": [2]}', "is not a dump: it is JSON with the keys name, version; known are"),
        (
            '{"task": "tensor", "level": "L1", "data": null}',
            "has the header of a dump but no entries: the key 'data' is missing or is not an object; repeat",
        ),
        ('{"task": "tensor", "lev', "is not a dump: it is JSON with the keys task; known are"),
        (
            '{"Functional*conv2d*0": {"args": [',
            "is damaged or cut off at byte 34 (line 1), in entry Functional*conv2d*0; no entry could be read; copy",
        ),
        (
            '{\n"Tensor*__add__*1": [{"type": "torch.Tensor"',
            "is the backward_info file of an api_accuracy_checker dump, which belongs to another file; give the",
        ),
        (
            '{"Functional*conv2d*0": ["File x',
            "is the stack file of an api_accuracy_checker dump, not the dump; give the forward_info file next to it",
        ),
        (
            'paddle.add(Tensor([2, 3],"float32"), 1)\n',
            "holds no call that can be read: line 1: a call without a comma behind its last argument; ",
        ),
        ('{"T.a.0.forward": ["File x', "is the stack file of a dump, not the dump; give the dump.json next to it"),
        ('{"0": [["T.a.0.forward"], [', "is the stack file of a dump, not the dump; give the dump.json next to it"),
    ],
)
def test_what_is_no_dump_is_described(tmp_path: Path, text: str, found: str) -> None:
    (path,) = _make(tmp_path, "x.json", text=text)
    with pytest.raises(DumpError) as caught:
        read_dump(path)
    assert str(caught.value).startswith(f"{path}: {found}")


def test_what_is_no_text_or_no_file_is_an_error(tmp_path: Path) -> None:
    path, long = tmp_path / "x.json", tmp_path / ("x" * 300)
    path.write_bytes(bytes(range(256)) * 1000)
    with pytest.raises(DumpError, match="is not a dump: it is binary; known are"):
        read_dump(path)
    path.write_text(_EMPTY, encoding="utf-16")
    for given, message in (
        (path, "is in UTF-16; save it as UTF-8"),
        (tmp_path, "is a folder; give a file in it"),
        (long, r"cannot be read \(File name too long\)"),
        (tmp_path / "nowhere", "nowhere: there is no such file or folder"),
    ):
        with pytest.raises(DumpError, match=message):
            read_dump(given)
    for missing in (long, tmp_path / "nowhere"):
        with pytest.raises(DumpError, match="there is no such file or folder"):
            find_dumps(missing)


class _Lines:
    """A reader of another format."""

    name = "lines"

    def sniff(self, path: Path, head: bytes) -> bool:
        return head.startswith(b"lines")

    def read(self, path: Path) -> Dump:
        raise DumpError(path, "was given to the second reader")


def test_readers_are_asked_in_their_order(tmp_path: Path) -> None:
    lines, dump = _make(tmp_path, "a.json", text="lines"), _make(tmp_path, "b.json")
    readers = (*READERS, _Lines())
    assert find_dumps(tmp_path, readers) == [*lines, *dump]
    assert read_dump(dump[0], readers).records == ()
    with pytest.raises(DumpError, match="was given to the second reader"):
        read_dump(lines[0], readers)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["/a/b/dump.json"], ["dump.json"]),
        (["/a/one.json", "/a/two.json"], ["one.json", "two.json"]),
        (["/a/dump.json", "/b/dump.json"], ["a/dump.json", "b/dump.json"]),
        (
            ["/a/step0/dump.json", "/b/step0/dump.json", "/b/x.json"],
            ["a/step0/dump.json", "b/step0/dump.json", "x.json"],
        ),
        (["/x/dump.json", "/y/x/dump.json"], ["x/dump.json", "y/x/dump.json"]),
        (
            ["/a/step0/proc77/dump.json", "/a/step1/proc77/dump.json"],
            ["step0/rank0/dump.json", "step1/rank0/dump.json"],
        ),
        (["/a/proc77/dump.json"], ["dump.json"]),
        (["/a/proc100/dump.json", "/a/proc9/dump.json"], ["proc1/dump.json", "proc0/dump.json"]),
        (["/a/rank0/dump.json", "/a/rank1/dump.json"], ["rank0/dump.json", "rank1/dump.json"]),
        ([], []),
    ],
)
def test_a_label_is_the_shortest_tail_that_no_other_has(paths: list[str], expected: list[str]) -> None:
    assert labels([Path(path) for path in paths]) == dict(zip(map(Path, paths), expected, strict=True))


def test_two_ways_to_one_file_have_one_label() -> None:
    assert labels([Path("a/dump.json"), Path("a/../a/dump.json")]) == {
        Path("a/dump.json"): "dump.json",
        Path("a/../a/dump.json"): "dump.json",
    }
