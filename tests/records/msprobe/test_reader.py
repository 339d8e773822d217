from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_probe.errors import DumpError, ProbeError, RecordError
from pytest_probe.model.dump import Dump
from pytest_probe.records import read_dump
from pytest_probe.records.msprobe import MsprobeReader
from tests.support.dumps import DUMPS, STATISTICS, TENSORS

_FORWARD: dict[str, Any] = {"input_args": [], "input_kwargs": {}, "output": []}
_BACKWARD: dict[str, Any] = {"input": [], "output": []}

# The rows that each version's own checker wrote for its dump.
_COUNTS = {
    "msprobe-1.0.4": {"amp_bf16": 115, "cnn": 64, "cplx": 43, "gpt": 304},
    "msprobe-1.2.2": {"cnn": 64},
    "msprobe-8.3.3": {"amp_bf16": 119, "cnn": 65, "gpt": 338},
    "msprobe-26.2.0": {"amp_bf16": 112, "cnn": 62, "cplx": 40, "gpt": 294},
}


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


@pytest.mark.parametrize(
    ("name", "count"), [(f"{version}/{model}", n) for version, models in _COUNTS.items() for model, n in models.items()]
)
def test_real_dumps_hold_as_many_records_as_the_checker_has_rows(
    unpacked: dict[str, Path], name: str, count: int
) -> None:
    assert len(read_dump(unpacked[name]).records) == count


@pytest.mark.parametrize("name", DUMPS)
def test_real_records_are_decoded_and_have_a_stack(unpacked: dict[str, Path], name: str) -> None:
    dump = read_dump(unpacked[name])
    for record in dump.records:
        call = dump.decode(record)
        assert call.outputs
        assert (call.gradients is None) == (record.backward is None)
        assert dump.stack(f"{record.name}.forward")


def test_there_is_a_real_dump_of_every_version() -> None:
    versions = Counter(name.partition("/")[0] for name in STATISTICS)
    assert versions == {"msprobe-1.0.4": 5, "msprobe-1.2.2": 4, "msprobe-26.2.0": 5, "msprobe-8.3.3": 5}
    assert TENSORS == ["msprobe-26.2.0/cplx_tensor"]


def test_tensor_files_lie_beside_the_dump(unpacked: dict[str, Path]) -> None:
    dump = read_dump(unpacked["msprobe-26.2.0/cplx_tensor"])
    call = dump.decode(dump.records[0])
    assert call.outputs is not None
    assert (dump.data_dirs[0] / call.outputs[0].data_name).is_file()
    assert dump.data_dirs == (dump.path.parent / "dump_tensor_data",)
    assert not dump.notes


@pytest.mark.parametrize(
    ("entry", "parts"),
    [
        ("Functional.linear.0.forward", ("Functional.linear.0", "Functional", "linear", 0)),
        ("Torch.linalg.norm.12.forward", ("Torch.linalg.norm.12", "Torch", "linalg.norm", 12)),
        (
            "Functional.multi_head_attention_forward.0.backward",
            ("Functional.multi_head_attention_forward.0", "Functional", "multi_head_attention_forward", 0),
        ),
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


def test_modules_are_counted_by_kind(tmp_path: Path) -> None:
    names = [
        *("Module.a.Linear.forward.0", "Module.a.Linear.backward.0", "Module.a.Linear.forward.1"),
        *("Module.a.Linear.parameters_grad", "Module.a.Linear.parameters_grad.0", "Cell.net.Net.forward.0"),
        "Torch.add.0.forward",
    ]
    dump = _read(tmp_path, *names, level="mix")
    assert dump.skipped == {"Module entries": 3, "parameters_grad entries": 2, "Cell entries": 1}
    assert [record.name for record in dump.records] == ["Torch.add.0"]
    assert dump.notes == ()


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


def test_the_header_may_lack_what_old_versions_did_not_write(tmp_path: Path) -> None:
    dump = _read(tmp_path, "Torch.add.0.forward", framework=...)
    assert (dump.framework, dump.notes) == ("pytorch", ())


def test_other_frameworks_are_told(tmp_path: Path) -> None:
    dump = _read(tmp_path, "Mint.add.0.forward", framework="mindspore")
    assert (dump.framework, len(dump.records)) == ("mindspore", 1)


@pytest.mark.parametrize(
    ("header", "note"),
    [
        ({"task": "dance"}, "unknown task 'dance', known are statistics, tensor, structure, overflow_check, acc_check"),
        ({"level": "L7"}, "unknown level 'L7', known are L0, L1, L2, mix, debug"),
        ({"task": ...}, "task is missing"),
        ({"task": 3}, "task is 3, expected a string"),
        ({"framework": None}, "framework is null, expected a string; taken as pytorch"),
        ({"color": "red"}, "unknown top-level key 'color'"),
        ({"probe": {"modes": "tf32 in convolution, quick"}}, 'probe.modes: no device mode is called "quick"'),
    ],
)
def test_what_is_odd_in_the_header_is_noted(tmp_path: Path, header: dict[str, Any], note: str) -> None:
    dump = _read(tmp_path, "Torch.add.0.forward", **header)
    assert dump.notes == (note,)
    assert len(dump.records) == 1


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


@pytest.mark.parametrize("indent", [None, 1])
def test_an_entry_that_occurs_twice_is_noted(tmp_path: Path, indent: int | None) -> None:
    first, second = ({**_FORWARD, "output": [{"type": "int", "value": value}]} for value in (1, 2))
    text = json.dumps({"task": "statistics", "level": "L1", "data": {"T.a.0.forward": first, "T.b.0.forward": second}})
    text = json.dumps(json.loads(text), indent=indent).replace("T.b", "T.a")
    dump = _read(tmp_path, text=text)
    assert dump.notes == ("entry T.a.0.forward occurs 2 times, the last one counts",)
    assert dump.decode(dump.records[0]).outputs == (2,)


def test_a_cut_dump_gives_the_records_before_the_cut_and_says_where(tmp_path: Path) -> None:
    path = _write(tmp_path, *(f"Torch.add.{number}.forward" for number in range(5)))
    text = path.read_text()
    cut = text.index("output", text.index("add.3"))
    path.write_text(text[: cut + 3])
    dump = read_dump(path)
    assert [record.number for record in dump.records] == [0, 1, 2]
    line = text[:cut].count("\n") + 1
    assert dump.damage == (
        f"{path}: is damaged or cut off at byte {cut - 1} (line {line}), in entry Torch.add.3.forward; the last good "
        "entry before is Torch.add.2.forward; entries kept: 3; copy the file again, or repeat the capture",
    )


def test_a_damaged_dump_goes_on_behind_the_damage(tmp_path: Path) -> None:
    path = _write(tmp_path, *(f"Torch.add.{number}.forward" for number in range(5)))
    path.write_text(path.read_text().replace('"Torch.add.1.forward": {', '"Torch.add.1.forward": {{'))
    dump = read_dump(path)
    assert [record.number for record in dump.records] == [0, 2, 3, 4]
    assert len(dump.damage) == 1
    assert "entries kept: 4" in dump.damage[0]
    assert all(dump.decode(record).args == () for record in dump.records)


def test_garbage_behind_a_dump_is_damage(tmp_path: Path) -> None:
    path = _write(tmp_path, "Torch.add.0.forward")
    size = path.stat().st_size
    path.write_text(path.read_text() + "oops")
    dump = read_dump(path)
    assert len(dump.records) == 1
    assert f"byte {size} " in dump.damage[0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"task": "statistics", "level": "L1"}', "the key 'data' is missing"),
        ('{"task": "statistics", "level": "L1", "data": []}', "no entry could be read"),
        ('{"task": "statistics", "level": "L1", "data": {"Torch.add.0.forward": {"inp', "no entry could be read"),
    ],
)
def test_a_dump_without_entries_is_an_error(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(DumpError, match=found):
        _read(tmp_path, text=text)


@pytest.fixture(scope="module")
def small(unpacked: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real dump of few records, with a stack beside it."""
    top = json.loads(unpacked["msprobe-26.2.0/gpt"].read_text())
    top["data"] = dict(list(top["data"].items())[:4])
    path = tmp_path_factory.mktemp("small") / "dump.json"
    path.write_text(json.dumps(top, indent=1))
    return path


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_happens_to_a_file_it_is_a_dump_or_a_probe_error(small: Path, data: st.DataObject) -> None:
    content = small.read_bytes()
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 40)) | st.just(len(content)))
    noise = data.draw(st.binary(max_size=3) | st.sampled_from([b'"', b"\\", b"{", b"}", b"]", b",", b"NaN", b"1e999"]))
    path = small.with_name("mutated.json")
    path.write_bytes(content[:start] + noise + content[end:])
    with suppress(ProbeError):
        for record in (dump := read_dump(path)).records:
            with suppress(RecordError):
                dump.decode(record)


def test_an_empty_dump_has_no_records(tmp_path: Path) -> None:
    dump = read_dump(_write(tmp_path))
    assert (dump.records, dump.notes, dump.damage) == ((), (), ())


def test_one_entry_nested_too_deep_does_not_cost_the_others(tmp_path: Path) -> None:
    path = _write(tmp_path, "Torch.add.0.forward", "Torch.add.1.forward")
    deep = "[" * 50_000 + "]" * 50_000
    path.write_text(path.read_text().replace('"input_args": []', f'"input_args": {deep}', 1))
    dump = read_dump(path)
    assert [record.number for record in dump.records] == [1]
    assert "in entry Torch.add.0.forward" in dump.damage[0]


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
