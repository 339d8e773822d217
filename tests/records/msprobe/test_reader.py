from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.errors import DumpError
from pytest_probe.model.dump import Dump
from pytest_probe.records import read_dump
from pytest_probe.records.msprobe import MsprobeReader
from tests.support.dumps import DUMPS, TENSORS

_FORWARD: dict[str, Any] = {"input_args": [], "input_kwargs": {}, "output": []}
_BACKWARD: dict[str, Any] = {"input": [], "output": []}

# The rows that each version's own checker wrote for its dump.
_ROWS = {
    "msprobe-1.0.4": {"amp_bf16": 115, "cnn": 64, "cplx": 43, "gpt": 304},
    "msprobe-1.2.2": {"cnn": 64},
    "msprobe-8.3.3": {"amp_bf16": 119, "cnn": 65, "gpt": 338},
    "msprobe-26.2.0": {"amp_bf16": 112, "cnn": 62, "cplx": 40, "gpt": 294},
}
_COUNTS = {f"{version}/{model}": count for version, models in _ROWS.items() for model, count in models.items()}


def _write(folder: Path, *names: str, text: str | None = None, **header: Any) -> Path:
    """A dump with an empty entry for each name; header values that are ... are left out."""
    data = {name: _BACKWARD if name.endswith(".backward") else _FORWARD for name in names}
    top = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, **header, "data": data}
    path = folder / "dump.json"
    path.write_text(text or json.dumps({key: value for key, value in top.items() if value is not ...}, indent=1))
    return path


def _read(folder: Path, *names: str, text: str | None = None, **header: Any) -> Dump:
    return MsprobeReader().read(_write(folder, *names, text=text, **header))


@pytest.mark.parametrize("name", DUMPS)
def test_real_dumps_are_read_whole(unpacked: dict[str, Path], name: str) -> None:
    path = unpacked[name]
    dump = read_dump(path)
    data = json.loads(path.read_text())["data"]
    directions = [f"{record.name}.{direction}" for record in dump.records for direction in record.directions]
    assert sorted(directions) == sorted(data)
    assert [record.name for record in dump.records] == list(dict.fromkeys(key.rpartition(".")[0] for key in data))
    assert (dump.notes, dump.damage, dump.skipped) == ((), (), {})
    assert (dump.framework, dump.level) == ("pytorch", "L1")
    assert dump.task == ("tensor" if name in TENSORS else "statistics")
    stored = [spec for record in dump.records[:1] for spec in dump.decode(record).outputs or ()]
    assert (dump.data_dirs[0] / (stored[0].data_name or "nothing")).is_file() == (name in TENSORS)
    assert len(dump.records) == _COUNTS.get(name, len(dump.records))
    for record in dump.records:
        call = dump.decode(record)
        assert call.outputs
        assert (call.gradients is None) == (record.backward is None)
        assert dump.stack(f"{record.name}.forward")


@pytest.mark.parametrize(
    ("entry", "parts"),
    [
        ("Functional.linear.0.forward", ("Functional.linear.0", "Functional", "linear", 0)),
        ("Torch.linalg.norm.12.forward", ("Torch.linalg.norm.12", "Torch", "linalg.norm", 12)),
        ("_C_ascend.backward.7.forward", ("_C_ascend.backward.7", "_C_ascend", "backward", 7)),
        ("my.ops.forward.forward.3.forward", ("my.ops.forward.forward.3", "my", "ops.forward.forward", 3)),
    ],
)
def test_only_the_last_two_parts_of_a_name_are_number_and_direction(
    tmp_path: Path, entry: str, parts: tuple[str, str, str, int]
) -> None:
    (record,) = _read(tmp_path, entry).records
    assert (record.name, record.namespace, record.api, record.number) == parts


def test_entries_of_one_call_are_one_record_in_the_order_of_the_first(tmp_path: Path) -> None:
    names = ["T.b.0.backward", "T.a.0.forward", "T.c.0.backward", "T.b.0.forward", "T.d.0.forward", "T.d.0.backward"]
    records = _read(tmp_path, *names).records
    assert [record.name for record in records] == ["T.b.0", "T.a.0", "T.c.0", "T.d.0"]
    both = ("forward", "backward")
    assert [record.directions for record in records] == [both, ("forward",), ("backward",), both]


@pytest.mark.parametrize(
    "name",
    [
        *("linear", "", "...", "linear.0.forward", "Torch.add.x.forward", "Torch.add.0.sideways", "Torch..0.forward"),
        *("Torch.add.forward", "Torch.add.-1.forward", "Torch.add.²3.forward", f"Torch.add.{'9' * 5000}.forward"),
    ],
)
def test_a_name_that_fits_nothing_is_counted_and_named(tmp_path: Path, name: str) -> None:
    dump = _read(tmp_path, "Torch.add.0.forward", name)
    assert len(dump.records) == 1
    assert dump.skipped == {"entries with a name that is no API call": 1}
    assert dump.notes == (f"entries with a name that is no API call: 1, the first is {name!r}",)


@pytest.mark.parametrize(
    ("header", "note"),
    [
        ({"task": "dance"}, "unknown task 'dance', known are statistics, tensor, structure, overflow_check, acc_check"),
        ({"level": "L7"}, "unknown level 'L7', known are L0, L1, L2, mix, debug"),
        ({"task": ...}, "task is missing"),
        ({"task": 3}, "task is 3, expected a string"),
        ({"framework": None}, "framework is null, expected a string; taken as pytorch"),
        ({"color": "red"}, "unknown top-level key 'color'"),
        ({"framework": ...}, None),  # as old versions did not write it
        ({"framework": "mindspore"}, None),
        ({"probe": {"modes": "tf32 in convolution, quick"}}, 'probe.modes: no device mode is called "quick"'),
    ],
)
def test_what_is_odd_in_the_header_is_noted(tmp_path: Path, header: dict[str, Any], note: str | None) -> None:
    dump = _read(tmp_path, "Torch.add.0.forward", **header)
    assert dump.notes == (() if note is None else (note,))
    assert len(dump.records) == 1
    assert dump.framework == ("mindspore" if header == {"framework": "mindspore"} else "pytorch")


@pytest.mark.parametrize(
    ("recorded", "folders"),
    [
        (None, ["dump_tensor_data"]),
        ("", ["dump_tensor_data"]),
        (5, ["dump_tensor_data"]),
        ("/a\0b", ["dump_tensor_data"]),
        ("../elsewhere", ["dump_tensor_data"]),
        ("elsewhere", ["dump_tensor_data", "elsewhere"]),
        ("dump_tensor_data", ["dump_tensor_data"]),
    ],
)
def test_tensors_are_looked_up_beside_the_dump_first(tmp_path: Path, recorded: object, folders: list[str]) -> None:
    if isinstance(recorded, str) and recorded.isidentifier():
        recorded = str(tmp_path / recorded)
    dump = _read(tmp_path, "Torch.add.0.forward", dump_data_dir=recorded)
    assert dump.data_dirs == tuple(tmp_path / folder for folder in folders)


@pytest.mark.parametrize(
    ("head", "is_dump"),
    [
        ('{"task": "tensor", "level": "L1", "data": {}}', True),
        ('\ufeff\n{"data":{"Torch.add.0.forward":{', True),
        ('{"data": {"Module.a.Linear.forward.0": {"in', True),
        ('{"task": "statistics", "level": "L0", "framework": "pytorch", "dump_data_dir": null, "data": {"x"', True),
        ('{"data": {"rows": 1}, "level": 3}', False),
        ('{"Torch.add.0.forward": ["File x, line 1, in f, \\n y"]}', False),
        ('[{"task": "tensor", "level": "L1", "data": {}}]', False),
        ("", False),
    ],
)
def test_dumps_are_recognised_by_content(head: str, is_dump: bool) -> None:
    assert MsprobeReader().sniff(Path("anything.txt"), head.encode()) == is_dump


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"task": "statistics", "level": "L1"}', "the key 'data' is missing"),
        ('{"task": "statistics", "level": "L1", "data": []}', "no entry could be read"),
    ],
)
def test_a_dump_without_entries_is_an_error(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(DumpError, match=found):
        _read(tmp_path, text=text)
