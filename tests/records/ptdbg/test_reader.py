from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_probe.errors import DumpError, NoTensors, NotRebuilt, RecordError
from pytest_probe.model.dump import Call, Dump, Frame, Lost, TensorSpec
from pytest_probe.records import find_dumps, read_dump
from tests.support.ptdbg_dumps import DUMPS, line, stack, unpack, values, write

X = np.arange(6, dtype=np.float32).reshape(2, 3)
GOOD = values("Torch_relu_0", [X], X)
# Forward and backward entries of each dump, and its lines of values and of stacks.
COUNTS = {
    "v2.3-all": (29, 19, 151, 0),
    "v2.3-backward": (0, 19, 44, 0),
    "v2.3-range": (6, 0, 12, 6),
    "v2.3-stack": (29, 19, 0, 48),
    "v4-all": (27, 18, 144, 0),
    "v4-stack-filter-on": (27, 18, 109, 45),
    "v4-summary": (27, 18, 144, 0),
}


def decoded(path: Path, name: str) -> Call:
    dump = read_dump(path)
    return dump.decode(next(record for record in dump.records if record.name == name))


def trouble(path: Path, name: str = "Torch.relu.0") -> str:
    with pytest.raises(RecordError) as error:
        decoded(path, name)
    return str(error.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("name", DUMPS)
def test_all_that_the_lines_say_is_read(tmp_path: Path, name: str) -> None:
    """Each line of a real dump is found again: its dtype, its shape and its statistics."""
    path = unpack(name, tmp_path)
    assert find_dumps(tmp_path) == [path]
    dump = read_dump(path)
    forward, backward, of_values, of_stacks = COUNTS[name]
    assert [record.directions for record in dump.records].count(()) == len(dump.records) - forward
    release = {"v2.3-stack": "ptdbg"}.get(name, "ptdbg 2.3" if name.startswith("v2.3") else "ptdbg 4")
    assert dump.notes[0] == (
        f"{release}, {forward + backward} entries: {forward} forward, {backward} backward; "
        f"{of_values} lines of values, {of_stacks} of stacks"
    )
    assert (dump.damage, dump.framework, dump.level) == ((), "pytorch", "")
    assert dump.task == ("statistics" if name in ("v2.3-stack", "v4-summary") else "tensor")
    found: dict[str, Any] = {}
    for record in dump.records:
        base = f"{record.namespace}_{record.api}_{record.number}"
        found |= {f"{base}_backward_{key}": spec for key, spec in dump.gradients(record).items()}
        if record.forward:
            call = dump.decode(record)
            trees = [(f"{base}_forward_input.{place}", value) for place, value in enumerate(call.args)]
            outputs = call.outputs or ()
            plain = f'"{base}_forward_output",' in path.read_text()
            trees += [
                (f"{base}_forward_output" + ("" if plain else f".{place}"), value)
                for place, value in enumerate(outputs)
            ]
            for key, value in trees:
                parts = value if isinstance(value, list) else [value]
                found |= {f"{key}.{i}" if isinstance(value, list) else key: part for i, part in enumerate(parts)}
    found = {key: value for key, value in found.items() if value is not None and not isinstance(value, Lost)}
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    wanted = {each[0]: each for each in lines if len(each) == 6}
    assert found.keys() == wanted.keys()
    for key, value in found.items():
        _, _, _, dtype, shape, summary = wanted[key]
        if not isinstance(value, TensorSpec):
            assert (f"<class '{type(value).__name__}'>", "[]", value) == (dtype, shape, summary[0])
            continue
        assert (f"torch.{value.dtype}", list(value.shape)) == (dtype, shape)
        statistics = [None if number in ([], "Nan") else number for number in summary]
        assert [value.max, value.min, value.mean, value.norm][: len(summary)] == statistics
        assert value.data_name == f"{key}.npy"


def test_names_with_underscores(tmp_path: Path) -> None:
    calls = ["Tensor___add___0", "Tensor_add__4", "Functional_max_pool2d_12", "VF_lstm_0", "Aten_add.Tensor_3"]
    dump = read_dump(write(tmp_path, {name: X for call in calls for name in values(call, [X], X)}))
    found = [(record.name, record.namespace, record.api, record.number) for record in dump.records]
    assert found == [
        ("Tensor.__add__.0", "Tensor", "__add__", 0),
        ("Tensor.add_.4", "Tensor", "add_", 4),
        ("Functional.max_pool2d.12", "Functional", "max_pool2d", 12),
        ("VF.lstm.0", "VF", "lstm", 0),
        ("Aten.add.Tensor.3", "Aten", "add.Tensor", 3),
    ]


def test_gaps_lists_and_numbers(tmp_path: Path) -> None:
    found = values("Torch_f_0", [[X, X], 2, None, 0.5, True, [[1, 2], [3]]], (X, None, X))
    call = decoded(write(tmp_path, found), "Torch.f.0")
    first, *rest = call.args
    assert [spec.data_name for spec in first] == [f"Torch_f_0_forward_input.0.{i}.npy" for i in (0, 1)]
    assert rest == [2, Lost(), 0.5, True, [[1, 2], [3]]]
    assert call.outputs is not None
    assert [spec and spec.data_name for spec in call.outputs] == [
        "Torch_f_0_forward_output.0.npy",
        None,
        "Torch_f_0_forward_output.2.npy",
    ]
    assert (call.kwargs, call.partial, call.gradients) == ({}, True, None)


@pytest.mark.parametrize("before", [True, False])
def test_a_stack_before_or_after_its_record(tmp_path: Path, before: bool) -> None:
    frames = stack("Torch_relu_0_forward", ("/lib/hook.py", 7, "call", "hook()"), ("/me/m.py", 12, "f", "  relu(x)"))
    path = write(tmp_path, GOOD, frames)
    if before:
        path.write_text("\n".join([frames, *path.read_text().splitlines()[:-1]]))
    dump = read_dump(path)
    wanted = (Frame("/lib/hook.py", 7, "call", "hook()"), Frame("/me/m.py", 12, "f", "relu(x)"))
    assert dump.stack("Torch.relu.0.forward") == wanted
    assert dump.stack("Torch.relu.0.backward") == wanted
    assert dump.stack("Torch.relu.1.forward") == ()


def test_frames_that_are_none_are_left_out(tmp_path: Path) -> None:
    text = json.dumps(["Torch_relu_0_forward_stack_info", [["a.py", "x", "f", "c"], 7, ["b.py", "3", "g", "c"], ["b"]]])
    assert read_dump(write(tmp_path, GOOD, text)).stack("Torch.relu.0.forward") == (Frame("b.py", 3, "g", "c"),)
    text = json.dumps(["Torch_relu_1_forward_stack_info", {"a": 1}])
    assert read_dump(write(tmp_path / "other", GOOD, text)).stack("Torch.relu.1.forward") == ()


def test_a_name_that_occurs_twice(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, line("Torch_relu_0_forward_input.0", X + 1))
    assert "Torch_relu_0_forward_input.0 occurs 2 times, the last one counts" in read_dump(path).notes
    assert decoded(path, "Torch.relu.0").args[0].max == 6.0


def test_a_stack_alone_is_a_skip_that_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, {}, stack("Torch_relu_0_forward"), stack("Torch_relu_0_backward"))
    assert "holds no tensors: all its lines are stacks" in read_dump(path).notes
    with pytest.raises(NoTensors, match="the dump holds no tensors"):
        decoded(path, "Torch.relu.0")


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "dump.pkl"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps(["Torch_relu_0_forward_input.0", 1], protocol))
        with pytest.raises(DumpError, match=re.escape(f"{path}: is a pickle, which is never unpickled")):
            read_dump(path)
    with pytest.raises(DumpError, match="the folder holds no dump"):
        find_dumps(tmp_path)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "nonsense",
            "line 3: found 'nonsense', expected a JSON array of 6 elements, or of 2 with a stack, with a",
        ),
        ('["Torch_relu", 1, [], "torch.float32", [], []]', "line 3: found '"),
        (
            '["relu_0_forward_input.0", 1]',
            "line 3: found the name 'relu_0_forward_input.0', expected one as Torch_",
        ),
        ('["Torch_relu_01_forward_input.0", 1]', "line 3: found the name 'Torch_relu_01_forward_input.0'"),
        ('["Torch_relu_0_backward_input.0", 1', "line 3, Torch_relu_0_backward_input.0: found no JSON, expected"),
        ('["Torch_relu_0_forward_stack_info", 1, 2]', "line 3, Torch_relu_0_forward_stack_info: found 3 elements"),
        ("\x1b[31m", "line 3: found '\\\\x1b[31m'"),
        ('["Torch_../x_0_forward_input.0", 1, [], "torch.float32", [1], [1, 1, 1]]', "line 3: found the name"),
        ('["Torch_relu_0_forward_stack_info", ' + "[" * 5000, "found no JSON"),
    ],
)
def test_a_line_of_no_record_is_damage(tmp_path: Path, text: str, found: str) -> None:
    dump = read_dump(write(tmp_path, GOOD, text))
    assert len(dump.damage) == 1
    assert found in dump.damage[0]
    assert dump.damage[0].startswith(f"{dump.path}: line 3")
    assert f"records kept: {len(dump.records)}" in dump.damage[0]
    assert dump.decode(dump.records[0]).args[0].shape == (2, 3)


def test_many_broken_lines_are_told_of_in_few_words(tmp_path: Path) -> None:
    dump = read_dump(write(tmp_path, GOOD, *["x"] * 500, *['["Torch_relu_0_backward_input.0", '] * 500))
    assert len(dump.damage) == 1
    assert "line 12: " in dump.damage[0]
    assert "line 13: " not in dump.damage[0]
    assert "; and 990 more such lines; records kept: 1" in dump.damage[0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('["Torch_relu_0_forward_input.1", 1]', "line 3: found 2 elements, expected a JSON array of 6 elements"),
        ('["Torch_relu_0_forward_input.1", 1, [], ', "line 3: found no JSON, expected"),
        ('["Torch_relu_0_forward_input.1", 1, [], 3, [2], [1, 2, 3]]', "line 3: found 3, expected the name of a dtype"),
        ('["Torch_relu_0_forward_input.1", 1, [], "torch.f", [2], [1, 2, 3]]', 'the unknown dtype "torch.f"'),
        ('["Torch_relu_0_forward_input.1", 1, [], "torch.float32", "[]", [1, 2, 3]]', "expected a list of sizes"),
        ('["Torch_relu_0_forward_input.1", 1, [], "torch.float32", [0, 1e400], [1, 2, 3]]', "no JSON"),
        ('["Torch_relu_0_forward_input.1", 1, [], "torch.float32", [1], [1, 2]]', "three or four statistics"),
        ('["Torch_relu_0_forward_input.1", 1, [], "torch.float32", [1], ["a", 1, 2]]', 'found "a", expected a number'),
        ('["Torch_relu_0_forward_input.1", 1, [], "<class \'int\'>", "[]", [1.5, 1, 1]]', "expected an integer"),
        ('["Torch_relu_0_forward_input.1", 1, [], "<class \'int\'>", "[]", [1e30, 1, 1]]', "expected an integer"),
        ('["Torch_relu_0_forward_input", 1, [], "torch.float32", [1], [1, 2, 3]]', "input without a number"),
        ('["Torch_relu_0_forward_input.0.0", 1, [], "torch.float32", [1], [1, 2, 3]]', "input.0.0 in a value"),
        ('["Torch_relu_0_forward_input..1", 1, [], "torch.float32", [1], [1, 2, 3]]', "expected a name as"),
        ('["Torch_relu_0_forward_input.99999", 1, [], "torch.float32", [1], [1, 2, 3]]', "numbers below 20,000"),
        (f'["Torch_relu_0_forward_input{".0" * 40}", 1, [], "torch.float32", [1], [1, 2, 3]]', "at most 16 of them"),
        ('["Torch_relu_0_forward_output.1", 1, [], "torch.float32", [1], [1, 2, 3]]', "one output and several"),
        (f'["Torch_relu_0_forward_input.1", 1, [], "torch.float32", [{2**62}, 0], [1, 2, 3]]', "below 2**59"),
    ],
)
def test_a_broken_forward_line_is_a_skip_of_its_record(tmp_path: Path, text: str, found: str) -> None:
    more = values("Torch_relu_1", [X], X)
    path = write(tmp_path, GOOD | more)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], text, *lines[2:]]))
    told = trouble(path)
    assert found in told
    assert told.startswith("Torch.relu.0.forward: line 3")
    assert read_dump(path).damage == ()
    assert decoded(path, "Torch.relu.1").args[0].shape == (2, 3)


def test_a_type_or_prefix_that_no_dump_holds(tmp_path: Path) -> None:
    text = '["Torch_relu_0_forward_input.1", 1, [], "<class \'x\'>", "[]", [1, 1, 1]]'
    path = write(tmp_path, GOOD | values("Os_system_0", [X], X), text)
    with pytest.raises(NotRebuilt, match=re.escape("Torch_relu_0_forward_input.1: found \"<class 'x'>\"")):
        decoded(path, "Torch.relu.0")
    told = trouble(path, "Os.system.0")
    assert told.startswith("Os.system.0.forward: line 3: found the prefix Os in Os_system_0_forward, expected one of")


def test_a_line_of_a_hundred_thousand_of_one_entry_that_is_broken_costs_no_more(tmp_path: Path) -> None:
    """Each line is looked at once or twice, whatever is wrong behind it."""
    lines = [line(f"Torch_relu_0_backward_input.{place}", X) for place in range(20_000)]
    path = write(tmp_path, GOOD, *lines, '["Torch_relu_0_backward_input.7", ')
    dump: Dump = read_dump(path)
    assert "line 20003, Torch_relu_0_backward_input.7: found no JSON" in dump.damage[0]
