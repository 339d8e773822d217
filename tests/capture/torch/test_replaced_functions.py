from __future__ import annotations

import functools
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pytest_probe.frameworks.torch import own
from tests.support import forks
from tests.support.capturing import entries, recorded
from tests.support.every_function import calls, make, names, wrapped

# In a process in which pytest-probe has not met torch yet.
BEFORE_IMPORT = """
import sys
from tests.support.every_function import calls, make, wrapped
made = calls()
assert "pytest_probe.frameworks.torch.own" not in sys.modules
with wrapped(made, 1):
    from pytest_probe import capture
    with capture("dumps"):
        make(made)
"""
COMMAND = ("-c", "from pytest_probe.cli import main; raise SystemExit(main())", "capture", "-o", "dumps")
LOST = """
import torch

class Traced:
    def __init__(self, function):
        self.function = function

    def __get__(self, instance, owner):
        return Traced(self.function) if instance is None else lambda *args: self.function(instance, *args)

    def __call__(self, *args): return self.function(*args)

torch.Tensor.sin = Traced(torch.Tensor.sin)
torch.Tensor.cos = Traced(torch.Tensor.cos)
for _ in range(6):
    torch.ones(2).sin().add(1).cos()
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """What a capture has of calls of all functions, as torch has them."""
    made = calls()
    return names(recorded(tmp_path_factory.mktemp("plain"), lambda: make(made)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("before", [True, False])
def test_every_function_is_recorded_where_it_is_wrapped(before: bool, tmp_path: Path, plain: Counter[str]) -> None:
    made = calls()

    def program() -> None:
        with wrapped(made):
            make(made)

    if before:
        with wrapped(made, 3):
            found = recorded(tmp_path, lambda: make(made))
    else:
        found = recorded(tmp_path, program)
    assert len(plain) > 1400
    assert names(found) == plain


def test_every_function_is_recorded_in_a_process_that_wraps_them(tmp_path: Path, plain: Counter[str]) -> None:
    (tmp_path / "train.py").write_text(BEFORE_IMPORT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4]), "PYTHONWARNINGS": "ignore"}
    ran = forks.run(["train.py"], tmp_path, environment)
    assert ran.returncode == 0, ran.stderr
    assert names(entries(tmp_path / "dumps")) == plain


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("before", [True, False])
def test_a_capture_calls_a_wrapper_as_often_as_the_program_does(
    before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()

    def replace(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def scaled(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            result = function(*args, **kwargs)
            return result * 1.5 if isinstance(result, torch.Tensor) else result

        monkeypatch.setattr(owner, name, scaled)

    def replace_all() -> None:
        for owner, name in ((F, "layer_norm"), (F, "gelu"), (torch.Tensor, "sin"), (torch, "max_pool1d")):
            replace(owner, name)
        replace(torch.Tensor, "norm")
        replace(torch.Tensor, "size")

    def program() -> tuple[Any, Counter[str]]:
        counts.clear()
        x = torch.linspace(-1, 1, 24).reshape(2, 12).requires_grad_()
        y = F.max_pool1d(F.gelu(F.layer_norm(x, (12,))), 2).sin() / x.norm()
        y.sum().backward()
        x.size()
        return (y.tolist(), x.grad.tolist()), Counter(counts)  # type: ignore[union-attr]

    found: list[Any] = []

    def run() -> None:
        if not before:
            replace_all()
        found.append(program())

    if before:
        replace_all()
    entries = recorded(tmp_path, run)
    assert found == [program()]
    assert found[0][1]["layer_norm"] == 1
    assert {"Functional.layer_norm", "Functional.gelu", "Tensor.sin", "Tensor.norm"} <= names(entries).keys()
    # What the wrappers do themselves is recorded as well, but inside another function.
    assert names(entries)["Tensor.__mul__"] == 4
    assert entries["Functional.layer_norm.0.backward"]


def _through(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(*args, **kwargs)


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = F.gelu
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.act(self.norm(x))


def test_functions_that_instances_and_classes_hold(tmp_path: Path) -> None:
    model = _Model()

    def program() -> None:
        model.act = _through(model.act)
        model.norm.forward = _through(model.norm.forward)  # type: ignore[method-assign]
        model(torch.ones(2, 4))

    assert names(recorded(tmp_path, program)) == {"Torch.ones": 1, "Functional.layer_norm": 1, "Functional.gelu": 1}


def test_one_wrapper_in_several_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """abs and absolute are two functions of torch's; which one is called the name of the wrapper tells."""
    wrapper = functools.wraps(torch.Tensor.abs)(_through(torch.Tensor.abs))

    def program() -> None:
        monkeypatch.setattr(torch.Tensor, "abs", wrapper)
        monkeypatch.setattr(torch.Tensor, "absolute", wrapper)
        monkeypatch.setattr(F, "relu", F.gelu)
        torch.ones(2).absolute()
        F.relu(torch.ones(2))

    assert names(recorded(tmp_path, program)) == {"Torch.ones": 2, "Tensor.abs": 1, "Functional.gelu": 1}


def test_functions_of_the_programs_own_that_ask_for_modes_are_no_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def split(x: torch.Tensor) -> Any:
        """torch.Tensor has one of this name."""
        if torch.overrides.has_torch_function_unary(x):
            return torch.overrides.handle_torch_function(split, (x,), x)
        return x + 41

    with caplog.at_level("INFO", "pytest_probe"):
        found = []
        recorded(tmp_path, lambda: found.append(split(torch.ones(2))))
    assert torch.equal(found[0], torch.full((2,), 42.0))
    assert "not recorded" not in caplog.text


def test_a_function_of_the_programs_own_in_torchs_place_that_asks_for_modes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gelu(x: torch.Tensor) -> Any:
        if torch.overrides.has_torch_function_unary(x):
            return torch.overrides.handle_torch_function(gelu, (x,), x)
        return x + 41

    monkeypatch.setattr(F, "gelu", gelu)
    found = recorded(tmp_path, lambda: F.gelu(torch.ones(2)))
    assert names(found) == {"Torch.ones": 1, "Functional.gelu": 1}
    assert found["Functional.gelu.0.forward"]["output"][0]["Max"] == 42


def test_calls_that_nobody_can_name_are_counted(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOST)
    ran = forks.run([*COMMAND, "train.py"], tmp_path, {**os.environ})
    assert "pytest-probe: 12 calls of 1 function that train.py:11 replaced were not recorded" in ran.stderr.splitlines()
    assert names(entries(tmp_path / "dumps")) == {"Torch.ones": 6, "Tensor.add": 6}


@pytest.fixture
def made_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, dict[str, Any]]]:
    """The functions that are found where something else stands in every place."""
    with wrapped(calls()):
        yield {place: own._table(place) for place in own.FUNCTIONS}


def test_what_is_made_anew_is_what_torch_has(made_anew: dict[str, dict[str, Any]]) -> None:
    for place, functions in own.FUNCTIONS.items():
        for name, function in functions.items():
            found = made_anew[place][name]
            assert found.__name__ == function.__name__
            if isinstance(function, FunctionType):
                assert found.__code__.co_names == function.__code__.co_names
                assert (found.__defaults__, found.__kwdefaults__) == (function.__defaults__, function.__kwdefaults__)
            else:
                assert found is function


def test_what_is_made_anew_computes(made_anew: dict[str, dict[str, Any]]) -> None:
    x = torch.linspace(0, 1, 24).reshape(2, 12)
    made = made_anew["torch.Tensor"]
    assert made["unflatten"](x, 1, (3, 4)).shape == (2, 3, 4)
    assert torch.equal(made["__rsub__"](x, 1), 1 - x)
    assert torch.equal(made_anew["torch.nn.functional"]["max_pool1d"](x, 2), F.max_pool1d(x, 2))


def test_a_dump_of_wrapped_functions_is_that_of_the_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.linspace(-1, 1, 24).reshape(2, 12)

    def program() -> None:
        F.layer_norm(x, (12,), eps=1e-3).sum()

    first = recorded(tmp_path / "plain", program)
    for name in ("layer_norm", "gelu"):
        monkeypatch.setattr(F, name, _through(getattr(F, name)))
    assert _text(recorded(tmp_path / "wrapped", program)) == _text(first)


def _text(entries: dict[str, Any]) -> str:
    return re.sub(r'"address": \d+', "", json.dumps(entries))
