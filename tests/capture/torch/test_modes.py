from __future__ import annotations

import gc
import json
import re
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import pytest_probe
from pytest_probe.capture.torch.hooks import TorchHooks
from tests.support.capturing import recorded


class Kernels(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(function, "__name__", str(function)))
        return function(*args, **(kwargs or {}))


def without_addresses(entries: dict[str, Any]) -> str:
    return re.sub(r'"address": \d+', "", json.dumps(entries))


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("size", [20, 300])
def test_modes_of_the_program_see_the_program_alone(size: int, task: str, tmp_path: Path) -> None:
    layer = nn.Sequential(nn.Linear(size, size))
    x = torch.randn(size, size, requires_grad=True)

    def program() -> tuple[list[str], list[str]]:
        with Kernels() as kernels, Functions() as functions:
            (layer(x.T)[::2].mT.sin() * 2).sum().backward()
        return kernels.seen, functions.seen

    program()
    alone, seen = program(), []
    recorded(tmp_path / "inside", lambda: seen.append(program()), task=task, level="mix", model=layer)
    assert seen == [alone]
    known, inside = list[str](), list[str]()

    def sine() -> None:
        around.seen.clear()
        torch.sin(x.T).sum().backward()
        (inside if known else known).extend(around.seen)

    with Functions() as around:
        sine()
        found = recorded(tmp_path / "around", sine, task=task)
    assert inside == known
    assert not {"as_strided", "aminmax", "contiguous", "resolve_conj", "to"} & set(around.seen)
    assert found["Torch.sin.0.forward"]["input_args"][0]["Max"] == x.max()
    assert "Torch.sin.0.backward" in found


@pytest.mark.parametrize("strict", [False, True])
def test_traces_hold_the_program_alone(strict: bool, tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), torch.ones(2, 3)

    def traced() -> str:
        return str(torch.export.export(model, (x,), strict=strict).graph)

    alone, seen = traced(), []

    def program() -> None:
        seen.append(traced())
        torch.sin(x)

    recorded(tmp_path, program)
    assert seen == [alone]


def test_the_backward_of_what_is_compiled(tmp_path: Path) -> None:
    """It is traced inside the compiled region, with tensors that have no memory."""
    model, x = nn.LayerNorm(4), torch.ones(2, 4, requires_grad=True)
    compiled = torch.compile(lambda x: model(x)[:, 1:].relu(), backend="aot_eager")
    found = recorded(tmp_path, lambda: compiled(x).sum().backward())
    assert "Tensor.sum.0.backward" in found
    assert not any("failed" in entry.get("probe", {}) for entry in found.values())


def test_calls_under_a_default_device_take_the_kernels_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pytest_probe.capture._kernel")
    layer, x = nn.Linear(4, 3), torch.randn(2, 4)

    def program() -> None:
        (layer(x).T.sin() + 1).sum().backward()

    def leave(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a call went Python's way")

    alone = recorded(tmp_path / "alone", program)
    monkeypatch.setattr(TorchHooks, "call", leave)
    with torch.device("cpu"):
        found = recorded(tmp_path / "inside", program)
    assert len(found) == 8
    assert without_addresses(found) == without_addresses(alone)


def test_a_mode_that_a_signal_left_twice_is_there_once(tmp_path: Path) -> None:
    """A handler that raises while a backward puts the mode on leaves it on."""

    def program() -> None:
        torch.sin(torch.ones(2))
        (mode,) = torch.overrides._get_current_function_mode_stack()
        torch.overrides._push_mode(mode)
        torch.sin(torch.ones(3))
        assert torch.overrides._get_current_function_mode_stack() == [mode]
        torch.overrides._push_mode(mode)

    found = recorded(tmp_path, program)
    assert [name for name in found if "sin" in name] == ["Torch.sin.0.forward", "Torch.sin.1.forward"]
    assert torch.overrides._get_current_function_mode_stack() == []


def test_a_thread_goes_with_its_last_reference(tmp_path: Path) -> None:
    class Mine(threading.Thread):
        def __init__(self) -> None:
            super().__init__()
            self.tensor = torch.ones(3)

        def run(self) -> None:
            torch.sin(self.tensor)

    gone: list[Callable[[], Any]] = []

    def program() -> None:
        thread = Mine()
        gone.extend((weakref.ref(thread), weakref.ref(thread.tensor)))
        thread.start()
        thread.join()

    gc.disable()
    try:
        found = recorded(tmp_path, program)
        assert [one() for one in gone] == [None] * 2
    finally:
        gc.enable()
    assert "Torch.sin.0.forward" in found


@pytest.mark.parametrize("begun", [False, True])
def test_modes_that_flags_allow_are_in_the_dump(begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an accelerator that the program uses: a look for another one would initialise it."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: begun)
    with pytest_probe.capture(tmp_path / "dumps"):
        torch.ones(2) + 1
    (file,) = tmp_path.rglob("dump.json")
    wanted = "tf32 in convolution, reduced-reduction" if begun else None
    assert json.loads(file.read_text())["probe"].get("modes") == wanted
