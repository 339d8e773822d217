from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_probe.model.dump import Frame
from pytest_probe.records import library_frame, read_dump, user_frame
from pytest_probe.records.msprobe.call_sites import ConstructFile, StackFile, module_path
from pytest_probe.records.msprobe.entries import as_written

_LINES = [
    "File /venv/lib/python3.11/site-packages/torch/nn/functional.py, line 12, in relu, \n return x",
    "File /home/me/model.py, line 7, in <lambda>, \n y = relu(x, 1)",
]
_FRAMES = (
    Frame("/venv/lib/python3.11/site-packages/torch/nn/functional.py", 12, "relu", "return x"),
    Frame("/home/me/model.py", 7, "<lambda>", "y = relu(x, 1)"),
)


def _stacks(folder: Path, content: object) -> StackFile:
    path = folder / "stack.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content, indent=1).encode())
    return StackFile(path)


@pytest.mark.parametrize(
    "content",
    [{"T.a.0.forward": _LINES, "T.b.0.forward": []}, {"0": [["T.c.0.forward"], []], "1": [["T.a.0.forward"], _LINES]}],
)
def test_both_layouts_give_the_frames_of_an_entry(tmp_path: Path, content: object) -> None:
    stacks = _stacks(tmp_path, content)
    assert stacks("T.a.0.forward") == _FRAMES
    assert stacks("T.a.0.backward") == _FRAMES
    assert stacks("T.b.0.forward") == ()
    assert stacks("T.x.0.backward") == ()
    stacks.path.unlink()  # it is read once
    assert stacks("T.a.0.forward") == _FRAMES


def test_a_module_has_its_direction_before_the_number(tmp_path: Path) -> None:
    stacks = _stacks(tmp_path, {"Module.a.Linear.forward.0": _LINES})
    assert stacks("Module.a.Linear.0.forward") == _FRAMES
    assert stacks("Module.a.Linear.0.backward") == _FRAMES
    assert stacks("Module.a.Linear.1.forward") == ()
    assert as_written("Module.a.Linear.parameters_grad.0.backward") == "Module.a.Linear.parameters_grad.0"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b'{"T.a.0.forward": ["File',
        b'{"T.a.0.forward": 3}',
        b'{"T.a.0.forward": ["\xff"]}',
        b'{"T.a.0.forward": [3, "File x", null]}',
        b'{"0": [[3], []]}',
        b'{"0": [["T.a.0.forward"]]}',
        b'{"0": [["T.a.0.forward"], "x"]}',
        b'{"0": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        None,
    ],
)
def test_a_missing_or_damaged_file_gives_no_frames_and_no_modules(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    assert StackFile(path)("T.a.0.forward") == ()
    assert module_path(next(iter(ConstructFile(path, {})("T.x.0.forward")), "")) == ""


@pytest.mark.parametrize("version", ["1.0.4", "1.2.2", "8.3.3", "26.2.0"])
def test_the_users_line_is_found_in_real_stacks(unpacked: dict[str, Path], version: str) -> None:
    dump = read_dump(unpacked[f"msprobe-{version}/gpt"])
    frames = dump.stack("Functional.embedding.0.forward")
    own = "x = s.tok(idx) + s.pos(torch.arange(idx.shape[1], device=idx.device))"
    assert user_frame(frames) == Frame("/workspace/models.py", 26, "forward", own)


@pytest.mark.parametrize(
    "file",
    [
        "/usr/lib/python3/dist-packages/apex/x.py",
        "/opt/conda/lib/python3.10/threading.py",
        "/home/me/.venv/lib/python3.12/site-packages/flash_attn/x.py",
        "C:\\Python311\\Lib\\contextlib.py",
        "C:\\env\\Lib\\site-packages\\torch\\x.py",
        "/src/pytorch/torch/nn/modules/linear.py",
        "/src/msprobe/pytorch/hook.py",
        "/src/ptdbg_ascend/src/hook.py",
        "<frozen importlib._bootstrap>",
    ],
)
def test_the_users_frame_lies_outside_what_is_installed(file: str) -> None:
    own = Frame("/home/me/train.py", 1, "step", "")
    outer = Frame("/home/me/main.py", 2, "main", "")
    assert user_frame([Frame(file, 9, "f", ""), own, outer]) == own
    # A user may call a folder torch, where torch is installed.
    installed = Frame("/usr/lib/python3.11/site-packages/torch/x.py", 1, "f", "")
    mine = Frame("/home/me/torch/train.py", 1, "step", "")
    assert user_frame([installed, mine]) == mine
    assert user_frame([installed]) is user_frame([]) is None


def module(folder: Path, content: Any, entry: str = "Functional.relu.0.forward") -> str:
    path = folder / "construct.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    found = ConstructFile(path, {})(entry)
    return module_path(found[0]) if found else ""


@pytest.mark.parametrize(
    ("parent", "path"),
    [
        ("Module.layers.0.attention.Attention.forward.3", "layers.0.attention"),
        ("Module.Model.forward.0", "Model"),
        ("Module.forward.Net.backward.0", "forward"),
        (["Module.layers.0.Block.forward.0", 2], "layers.0"),  # Megatron's
        ("optimizer", "optimizer"),
        (None, ""),
        (7, ""),
        ([], ""),
        ("Module.a\nb.Net.forward.0", "a\\nb"),
    ],
)
def test_the_path_of_a_module(tmp_path: Path, parent: object, path: str) -> None:
    assert module(tmp_path, {"Functional.relu.0.forward": parent}) == path


def test_a_backward_has_the_module_of_its_forward(tmp_path: Path) -> None:
    content = {"Functional.relu.0.forward": "Module.a.Net.forward.0"}
    assert module(tmp_path, content, "Functional.relu.0.backward") == "a"
    content["Functional.relu.0.backward"] = "Module.b.Net.backward.0"
    assert module(tmp_path, content, "Functional.relu.0.backward") == "b"
    content = {"Module.a.b.Linear.forward.0": "Module.a.Net.forward.0"}  # around a module
    assert module(tmp_path, content, "Module.a.b.Linear.0.backward") == "a"


def test_the_library_that_a_call_is_made_in() -> None:
    def at(file: str) -> Frame:
        return Frame(file, 1, "f", "x")

    torch, mine = at("/env/lib/python3.11/site-packages/torch/nn/modules/conv.py"), at("/home/me/train.py")
    model = at("/env/lib/python3.11/site-packages/transformers/models/llama/modeling_llama.py")
    standard = at("/usr/lib/python3.11/contextlib.py")
    assert library_frame([torch, standard, model, mine]) == model
    # A library that calls the user's code says nothing of the call inside.
    assert library_frame([torch, mine, model]) is None
    assert library_frame([torch, standard]) is None


def test_an_entry_may_say_its_module_itself(tmp_path: Path) -> None:
    raw = {name: msgspec.Raw(text) for name, text in (
        ("Functional.relu.0.forward", b'{"probe": {"module": "layer1.0.relu"}}'),
        ("Functional.relu.0.backward", b'{"probe": {}}'),
        ("Functional.relu.1.forward", b'{"probe": 3}'),
    )}  # fmt: skip
    modules = ConstructFile(tmp_path / "construct.json", raw)
    assert modules("Functional.relu.0.backward") == ("layer1.0.relu",)
    assert modules("Functional.relu.1.forward") == modules("Functional.relu.2.forward") == ()
