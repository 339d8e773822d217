from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_probe.errors import DumpError, RecordError
from pytest_probe.model.dump import Call
from pytest_probe.records import find_dumps, read_dump, user_frame
from tests.support.checking import verdicts
from tests.support.ptdbg_dumps import unpack_checker
from tests.support.tensor_files import torch_zip

RELU = "Functional*relu*0"
TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "Max": 2.0, "Min": -1.0}


def write(
    folder: Path,
    forward: Mapping[str, Any],
    backward: Mapping[str, Any] | None = None,
    stack: Mapping[str, Any] | None = None,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for kind, content in (("forward", forward), ("backward", backward), ("stack", stack)):
        if content is not None:
            (folder / f"{kind}_info_0.json").write_text(json.dumps(content))
    return folder / "forward_info_0.json"


def entry(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"args": list(args), "kwargs": kwargs}


def stored(folder: Path, name: str, value: torch.Tensor, part: str = "forward", rank: str = "rank7") -> dict[str, Any]:
    """A tensor whose dtype and shape are in its file alone."""
    place = folder / f"{part}_real_data" / rank
    place.mkdir(parents=True, exist_ok=True)
    torch.save(value, place / name)
    path = f"/home/someone/dump/step0/{part}_real_data/{rank}/{name}"
    return {"type": "torch.Tensor", "datapath": path, "requires_grad": False}


def decoded(path: Path, number: int = 0) -> Call:
    dump = read_dump(path)
    return dump.decode(dump.records[number])


def trouble(path: Path, number: int = 0) -> str:
    with pytest.raises(RecordError) as error:
        decoded(path, number)
    return str(error.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(("name", "task"), [("random", "statistics"), ("real_data", "tensor")])
def test_real_dumps(tmp_path: Path, name: str, task: str) -> None:
    (path,) = find_dumps(unpack_checker(tmp_path) / name)
    assert path.name == "forward_info_0.json"
    dump = read_dump(path)
    wanted = {kind: json.loads(path.with_name(f"{kind}_info_0.json").read_text()) for kind in ("forward", "backward")}
    names = [record.name.split(".") for record in dump.records]
    assert ["*".join(parts) for parts in names] == list(wanted["forward"])
    assert sum(record.backward is not None for record in dump.records) == len(wanted["backward"]) == 14
    assert (dump.framework, dump.task, dump.notes, dump.damage, dump.skipped) == ("pytorch", task, (), (), {})
    conv = dump.decode(dump.records[0])
    assert [spec.shape for spec in conv.args[:3]] == [(2, 3, 8, 8), (4, 3, 3, 3), (4,)]
    assert conv.args[3:] == ([1, 1], [1, 1], [1, 1], 1)
    softmax = next(record for record in dump.records if record.api == "softmax")
    assert dump.decode(softmax).kwargs == {"dim": -1}
    frame = user_frame(dump.stack("Functional.conv2d.0.backward"))
    assert frame is not None
    assert frame.code.startswith("h=F.relu(s.bn(s.c(x)))")


@pytest.mark.parametrize("name", ["random", "real_data"])
def test_real_dumps_pass(tmp_path: Path, name: str) -> None:
    (path,) = find_dumps(unpack_checker(tmp_path) / name)
    told = {case: (verdict.verdict, verdict.reason) for case, verdict in verdicts(path).items()}
    assert told == dict.fromkeys(told, ("pass", ""))
    assert len(told) == 29


def test_arguments_and_gradients_lie_in_folders_of_their_own(tmp_path: Path) -> None:
    """Files of the same name, which hold different tensors."""
    x, gradient = torch.ones(2, 3), torch.full((2, 3), 2.0)
    given = {RELU: entry(stored(tmp_path, "Functional*relu*0.0.pt", x))}
    seed = {RELU: [stored(tmp_path, "Functional*relu*0.0.pt", gradient, "backward")]}
    path = write(tmp_path, given, seed)
    dump = read_dump(path)
    assert dump.data_dirs == (tmp_path / "forward_real_data/rank7",)
    assert dump.gradient_dirs == (tmp_path / "backward_real_data/rank7",)
    told = verdicts(path)
    assert [verdict.verdict for verdict in told.values()] == ["pass", "pass"]
    (output,) = told["Functional.relu.0.backward"].outputs
    assert output.metrics["max_ulp"] == 0


def test_a_parameter_and_another_folder_of_a_process(tmp_path: Path) -> None:
    value = stored(tmp_path, "x.pt", torch.nn.Parameter(torch.ones(3)))
    (tmp_path / "forward_real_data/rank7").rename(tmp_path / "forward_real_data/rank8")
    path = write(tmp_path, {RELU: entry(value)})
    assert decoded(path).args[0].shape == (3,)


def test_without_backward_info_there_are_forward_items_alone(tmp_path: Path) -> None:
    dump = read_dump(write(tmp_path, {RELU: entry(TENSOR)}))
    assert [record.directions for record in dump.records] == [("forward",)]
    assert dump.damage == ()
    assert dump.stack("Functional.relu.0.forward") == ()
    renamed = write(tmp_path, {RELU: entry(TENSOR)}, {RELU: [TENSOR]}).rename(tmp_path / "mine.json")
    assert [record.directions for record in read_dump(renamed).records] == [("forward",)]


def test_a_backward_without_a_forward(tmp_path: Path) -> None:
    path = write(tmp_path, {RELU: entry(TENSOR)}, {"Torch*cat*0": [TENSOR]})
    assert (
        trouble(path, 1) == "Torch.cat.0.backward: found no forward entry, expected the forward entry of the same call"
    )


@pytest.mark.parametrize(
    ("kind", "advice"), [("backward", "is the backward_info file of an"), ("stack", "is the stack file of an")]
)
def test_the_other_files_are_no_dumps(tmp_path: Path, kind: str, advice: str) -> None:
    write(tmp_path, {RELU: entry(TENSOR)}, {RELU: [TENSOR]}, {RELU: ["File /a.py, line 1, in f, \n x"]})
    with pytest.raises(DumpError, match=f"{advice} api_accuracy_checker.*; give the forward_info file next to it"):
        read_dump(tmp_path / f"{kind}_info_0.json")


@pytest.mark.parametrize("kind", ["forward", "backward"])
def test_files_that_are_cut(tmp_path: Path, kind: str) -> None:
    many = {f"Functional*relu*{n}": entry(TENSOR) for n in range(9)}
    path = write(tmp_path, many, {key: [TENSOR] for key in many})
    cut = tmp_path / f"{kind}_info_0.json"
    cut.write_bytes(cut.read_bytes()[:-100])
    dump = read_dump(path)
    assert len(dump.damage) == 1
    assert dump.damage[0].startswith(f"{cut}: is damaged or cut off at byte")
    assert sum(getattr(record, kind) is not None for record in dump.records) == 8
    cut.write_text("{")
    if kind == "backward":
        assert "no entry could be read" in read_dump(path).damage[0]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"datapath": "/a/forward_real_data/rank7/../../x.pt"}, 'args.0.datapath: found "/a/forward_real_data'),
        ({"datapath": "..\\x.pt"}, "the path of a file, without '..'"),
        ({"datapath": ""}, 'found ""'),
        ({"datapath": 7}, "found 7, expected the path of a file"),
        ({"datapath": "/a/forward_real_data/rank7/missing.pt"}, "found no file 'missing.pt' in"),
        ({"datapath": "/a/forward_real_data/rank7/" + "x" * 300}, "the bare name of a file"),
        ({"datapath": "/a/forward_real_data/rank7/text.pt"}, "text.pt, which cannot be read"),
        ({"datapath": "/a/forward_real_data/rank7/code.pt"}, "which a stored tensor does not need"),
        ({"datapath": "/a/forward_real_data/rank7/link.pt"}, "found no file 'link.pt'"),
        ({"shape": [-1]}, "found nothing, expected the name of a dtype"),
        ({"dtype": "torch.float32", "shape": [-1]}, "args.0.shape.0: found -1"),
    ],
)
def test_tensors_that_cannot_be_had(tmp_path: Path, value: Mapping[str, Any], found: str) -> None:
    folder = tmp_path / "dump"
    good = stored(folder, "good.pt", torch.ones(3))
    tensors = folder / "forward_real_data/rank7"
    (tensors / "text.pt").write_text("hello")
    torch.save(torch.ones(3), tmp_path / "outside.pt")
    (tensors / "link.pt").symlink_to(tmp_path / "outside.pt")
    torch_zip(tensors / "code.pt", b"cos\nsystem\n(X\x02\x00\x00\x00lstR.")
    path = write(folder, {RELU: entry({"type": "torch.Tensor", **value}), "Functional*relu*1": entry(good)})
    told = trouble(path)
    assert found in told
    assert told.startswith("Functional.relu.0.forward: args.0")
    assert decoded(path, 1).args[0].shape == (3,)


@pytest.mark.parametrize("content", [{}, 7, [7], [{"type": "int", "value": 1}]])
def test_broken_gradients(tmp_path: Path, content: Any) -> None:
    assert trouble(write(tmp_path, {RELU: entry(TENSOR)}, {RELU: content})).startswith("Functional.relu.0.backward: ")
