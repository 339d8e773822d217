"""Files of named tensors: what a name tells, and that nothing of it is replayed."""

from __future__ import annotations

import gzip
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe.errors import DumpError
from pytest_probe.model.dump import Call, Dump, Lost, TensorSpec
from pytest_probe.records import find_dumps, is_part, read_dump
from tests.support.tensor_files import safetensors, torch_zip, with_header

X = np.arange(2, dtype=np.float32)


def _spec(key: str, file: str = "a.safetensors") -> TensorSpec:
    return TensorSpec("float32", (2,), data_name=file, data_key=key)


def _write(folder: Path, *names: str) -> Path:
    path = folder / "a.safetensors"
    path.write_bytes(safetensors(**dict.fromkeys(names, X)))
    return path


def _read(folder: Path, *names: str) -> Dump:
    return read_dump(_write(folder, *names))


def _found(dump: Dump) -> list[tuple[str, str, str, int]]:
    return [(each.name, each.namespace, each.api, each.number) for each in dump.compare_only]


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_a_dump_of_named_tensors_has_no_record_to_replay(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"step0.{suffix}"
    names = ["model.layers.0.mlp.output", "model.layers.0.mlp.input.0"]
    if suffix == "pt":
        torch.save({name: torch.ones(2) for name in names} | {"epoch": 3}, path)
    else:
        path.write_bytes(safetensors(**dict.fromkeys(names, X)))
    dump = read_dump(path)
    assert (dump.records, dump.task, dump.damage) == ((), "tensor", ())
    assert dump.skipped == {"entries of named tensors: compared and not replayed": 1}
    assert dump.notes == (("left out, since they are no tensors: epoch",) if suffix == "pt" else ())
    (record,) = dump.compare_only
    call = dump.decode(record)
    assert call == Call((_spec(names[1], path.name),), {}, (_spec(names[0], path.name),), None)
    assert (dump.gradients(record), dump.stack(f"{record.name}.forward")) == ({}, ())


@pytest.mark.parametrize(
    ("key", "call", "place"),
    [
        ("model.norm", ("model.norm", "Module", "model.norm", 0), "output.0"),
        ("model.norm.outputs.1.0", ("model.norm", "Module", "model.norm", 0), "output.1.0"),
        ("model.norm.output_2", ("model.norm", "Module", "model.norm", 0), "output.2"),
        ("l.0.output.dense", ("l.0.output.dense", "Module", "l.0.output.dense", 0), "output.0"),
        ("l.0.output.12345", ("l.0.output.12345", "Module", "l.0.output.12345", 0), "output.0"),
        ("output", ("output", "Module", "output", 0), "output.0"),
        ("a.output.0.output.1", ("a.output.0", "Module", "a.output.0", 0), "output.1"),
        ("a/b\0c.input_args.1", ("a/b\\x00c", "Module", "a/b\\x00c", 0), "input.1"),
        ("Functional.linear.0.forward.output.0", ("Functional.linear.0", "Functional", "linear", 0), "output.0"),
        ("Torch.add.0.forward.kwargs.other", ("Torch.add.0", "Torch", "add", 0), "kwargs.other"),
        ("Module.fc.Linear.forward.3.output.0", ("Module.fc.Linear.3", "Module", "fc.Linear", 3), "output.0"),
        ("model.layers.0.forward.output", ("model.layers.0", "Module", "model.layers.0", 0), "output.0"),
    ],
)
def test_the_forward_parts_of_a_name(tmp_path: Path, key: str, call: tuple[str, str, str, int], place: str) -> None:
    dump = _read(tmp_path, key)
    assert _found(dump) == [call]
    decoded = dump.decode(dump.compare_only[0])
    root, first, *rest = place.split(".")
    values: Any = {"output": decoded.outputs, "input": decoded.args, "kwargs": decoded.kwargs}[root]
    value = values[first] if root == "kwargs" else values[int(first)]
    for part in rest:
        value = value[part]
    assert value == _spec(key)
    assert decoded.gradients is None


@pytest.mark.parametrize(
    ("key", "name", "place"),
    [
        ("fc.weight.grad", "fc.weight", "input.0"),
        ("fc.grad_output.1", "fc", "input.1"),
        ("fc.grad_input.0", "fc", "output.0"),
        ("Functional.linear.0.backward.input.0", "Functional.linear.0", "input.0"),
        ("Module.fc.Linear.backward.0.input.1.0", "Module.fc.Linear.0", "input.1.0"),
    ],
)
def test_the_gradients_of_a_name(tmp_path: Path, key: str, name: str, place: str) -> None:
    dump = _read(tmp_path, key)
    (record,) = dump.compare_only
    assert (record.name, record.directions) == (name, ("backward",))
    assert dump.gradients(record) == {place: _spec(key)}
    call = dump.decode(record)
    half, _, number = place.partition(".")
    assert call.outgoing == ({number: _spec(key)} if half == "output" else None)
    plain = half == "input" and number.isdigit()
    assert (call.gradients or ())[-1:] == ((_spec(key),) if plain else (None,) if half == "input" else ())


def test_parts_of_one_name_are_one_call(tmp_path: Path) -> None:
    names = ["m.output.2", "m.input.1", "m.output.1.0", "m.output.1.1", "m.grad_output.1", "m.kwargs.mask"]
    dump = _read(tmp_path, *names)
    (record,) = dump.compare_only
    assert dump.decode(record) == Call(
        (Lost(), _spec("m.input.1")),
        {"mask": _spec("m.kwargs.mask")},
        (None, {"0": _spec("m.output.1.0"), "1": _spec("m.output.1.1")}, _spec("m.output.2")),
        (None, _spec("m.grad_output.1")),
    )
    assert [name for name, _ in dump.decode(record).returned()] == ["output.1.0", "output.1.1", "output.2"]


def test_layers_are_in_natural_order_where_the_file_has_none(tmp_path: Path) -> None:
    dump = _read(tmp_path, "layers.10.mlp", "layers.2.mlp", "layers.1.mlp")
    assert [record.name for record in dump.compare_only] == ["layers.1.mlp", "layers.2.mlp", "layers.10.mlp"]
    torch.save({f"layers.{number}": torch.ones(1) for number in (3, 1, 2)}, tmp_path / "a.pt")
    assert [record.number for record in read_dump(tmp_path / "a.pt").compare_only] == [0, 0, 0]
    assert [record.name[-1] for record in read_dump(tmp_path / "a.pt").compare_only] == ["3", "1", "2"]


def test_torch_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"a": torch.ones(1)}, tmp_path / "a.pt")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert len(read_dump(tmp_path / "a.pt").compare_only) == 1


def test_damage_names_the_tensor_and_leaves_the_others(tmp_path: Path) -> None:
    good = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    bad = {f"b{number:02}": good | {"dtype": "F\n"} for number in range(12)}
    (tmp_path / "a.safetensors").write_bytes(with_header({"a": good, **bad}, bytes(8)))
    dump = read_dump(tmp_path / "a.safetensors")
    assert [record.name for record in dump.compare_only] == ["a"]
    (damage,) = dump.damage
    assert damage.startswith(f"{dump.path}: b00: the dtype F\\n, expected one of BOOL")
    assert damage.endswith("; and 2 more; tensors kept: 1")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (with_header({}, length=2**31), "cannot be read: it says that its header has 2,147,483,648 bytes"),
        (with_header({}, length=200), "cannot be read: its header is cut off"),
        (with_header(b"{nothing"), "cannot be read: its header is no JSON object"),
        (None, "is a file of torch.save that holds no dictionary; known are"),
    ],
)
def test_a_file_without_named_tensors_is_an_error(tmp_path: Path, data: bytes | None, message: str) -> None:
    path = tmp_path / ("a.safetensors" if data else "a.pt")
    _make(tmp_path, {path.name: data or [torch.ones(1)]})
    with pytest.raises(DumpError) as caught:
        read_dump(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_code_in_a_pickle_is_an_error_and_does_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    pickled = b"\x80\x02}X\1\0\0\0acos\nmkdir\n(X%s%stRs." % (len(str(mark)).to_bytes(4, "little"), str(mark).encode())
    path = torch_zip(tmp_path / "a.pt", pickled)
    with pytest.raises(
        DumpError, match=r"a\.pt: cannot be read: it names os\.mkdir, which a stored tensor does not need"
    ):
        read_dump(path)
    assert not mark.exists()


def _make(folder: Path, names: Mapping[str, Any]) -> None:
    for name, value in names.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".pt":
            torch.save(value, path)
        else:
            path.write_bytes(value if isinstance(value, bytes) else value.encode())


def test_files_of_a_folder_are_dumps_of_their_own(tmp_path: Path) -> None:
    content, tensors = safetensors(a=X), {"a": torch.ones(1)}
    names = ["rank0/step2.safetensors", "rank0/step10.safetensors", "rank1/Pass00001.pt"]
    _make(tmp_path, {name: content if "safe" in name else tensors for name in names})
    _make(
        tmp_path, {"rank1/list.pt": [torch.ones(1)], "rank1/text.safetensors": "no", "dump_tensor_data/a.pt": tensors}
    )
    assert find_dumps(tmp_path) == [tmp_path / name for name in names]
    assert find_dumps(tmp_path / names[2]) == [tmp_path / names[2]]


def test_tensors_beside_a_dump_are_none_and_those_of_a_dump_neither(tmp_path: Path) -> None:
    empty = '{"task": "statistics", "level": "L1", "data": {}}'
    names = {"dump.json": empty, "checkpoint.pt": {"a": torch.ones(1)}, "model.safetensors": safetensors(a=X)}
    _make(tmp_path, {**names, "dump_tensor_data/a.pt": {"a": torch.ones(1)}})
    assert find_dumps(tmp_path) == [tmp_path / "dump.json"]
    assert [is_part(tmp_path / name) for name in ("checkpoint.pt", "dump.json")] == [True, False]
    with pytest.raises(DumpError, match="is a file of torch"):
        read_dump(tmp_path / "dump_tensor_data" / "a.pt")
    with pytest.raises(DumpError, match="the folder holds no dump"):
        find_dumps(tmp_path / "dump_tensor_data")


def test_tensors_in_an_archive_are_refused(tmp_path: Path) -> None:
    content = safetensors(a=X)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("step0/a.safetensors", content)
    with pytest.raises(
        DumpError, match=r"a\.zip: the archive holds no dump, and tensors are not read from it; unpack it"
    ):
        find_dumps(tmp_path / "a.zip")
    (tmp_path / "a.safetensors.gz").write_bytes(gzip.compress(content))
    for path in (tmp_path / "a.zip/step0/a.safetensors", tmp_path / "a.safetensors.gz"):
        with pytest.raises(DumpError, match="is packed, and its tensors are read where they lie; unpack it"):
            read_dump(path)
