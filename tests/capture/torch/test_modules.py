"""Modules of torch's, beside what test_modules.py asks of each framework."""

from __future__ import annotations

import json
import queue
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from pytest_probe import PrecisionDebugger, capture
from pytest_probe.records import read_dump
from tests.capture.kits import pytorch as kit
from tests.capture.kits.pytorch import Net
from tests.capture.test_modules import forwards, of_net, step
from tests.support.capturing import construct, entries, recorded


def test_a_module_that_is_used_twice_has_gradients_of_each_use(tmp_path: Path) -> None:
    linear = nn.Linear(2, 2, bias=False)
    model = nn.Sequential(linear)

    def program() -> None:
        linear(linear(torch.tensor([[1.0, 2.0]]))).sum().backward()

    found = recorded(tmp_path, program, level="L0", model=model)
    sums = [found[f"Module.0.Linear.parameters_grad.{number}"]["weight"][0]["Mean"] * 4 for number in (0, 1)]
    assert linear.weight.grad is not None
    assert sum(sums) == pytest.approx(linear.weight.grad.sum().item(), rel=1e-6)
    assert sums[0] != sums[1]


def test_tensors_without_memory_are_the_programs_own_business(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LazyLinear(2, bias=False))

    def program() -> None:
        model(torch.ones(1, 3))
        with FakeTensorMode(allow_non_fake_inputs=True), warnings.catch_warnings():
            warnings.simplefilter("error")
            assert model(torch.ones(1, 3)).data.shape == (1, 2)
        torch.func.vmap(model)(torch.ones(2, 1, 3))

    found = recorded(tmp_path, program, level="mix", model=model)
    assert found["Module.0.LazyLinear.forward.0"]["output"][0]["shape"] == [1, 2]
    assert "failed" not in json.dumps(found)


class Keeping(nn.Module):
    """No gradients go through it, but through what it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = self.inner(x)
        return x


def test_what_leaves_a_module_on_the_way_back_comes_to_the_one_before_it(tmp_path: Path) -> None:
    _, found = of_net(kit, tmp_path, level="L0")
    (left,) = found["Module.r1.Res.backward.0"]["output"]
    (came,) = found["Module.stem.Conv2d.backward.0"]["input"]
    assert (left["Norm"], left["Max"], left["shape"]) == (came["Norm"], came["Max"], came["shape"])


def test_parents_without_an_entry_leave_what_they_hold_to_their_own(tmp_path: Path) -> None:
    class Outer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            keeping(x)
            return keeping.kept.sum()

    keeping = Keeping()
    outer = Outer()
    outer.keeping = keeping
    model = nn.Sequential(outer)
    recorded(tmp_path, lambda: model(torch.ones(2)).backward(), level="mix", model=model)
    parents = construct(tmp_path)
    assert "Module.0.keeping.Keeping.backward.0" not in parents
    assert parents["Module.0.keeping.inner.Linear.forward.0"] == "Module.0.keeping.Keeping.forward.0"
    assert parents["Module.0.keeping.inner.Linear.backward.0"] == "Module.0.Outer.backward.0"


def test_a_model_is_found_where_none_is_given(tmp_path: Path) -> None:
    """The first one has plain paths, another one its class before them; what has no modules inside is none."""
    model, other = Net(), nn.Sequential(nn.Sequential(nn.Tanh()))
    loss = nn.MSELoss()

    def run() -> None:
        step(kit, model)
        other[0](torch.ones(2))
        loss(other(torch.ones(2)), torch.ones(2))

    found = recorded(tmp_path / "L1", run)
    assert found["Functional.relu.1.forward"]["probe"]["module"] == "r1.relu"
    places = {name: body.get("probe", {}).get("module") for name, body in found.items() if name.endswith("forward")}
    assert [places[name] for name in ("Torch.tanh.0.forward", "Torch.tanh.1.forward")] == ["Sequential.0"] * 2
    assert places["Functional.mse_loss.0.forward"] is None
    dump = read_dump(next((tmp_path / "L1").rglob("dump.json")))
    assert dump.modules("Functional.relu.1.backward") == ("r1.relu",)
    mixed = recorded(tmp_path / "mix", lambda: step(kit, Net()), level="mix")
    assert "Module.r1.relu.ReLU.forward.0" in mixed


def test_a_model_may_be_given_at_the_start(tmp_path: Path) -> None:
    first, second = nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh())
    debugger = PrecisionDebugger(dump_path=tmp_path, level="L0")
    for model in (first, None, second):
        debugger.start(model)
        second(first(torch.ones(2)))
        debugger.stop()
        debugger.step()
    found = [list(json.loads(path.read_text())["data"]) for path in sorted(tmp_path.glob("step*/*/dump.json"))]
    assert found == [["Module.0.ReLU.forward.0"]] * 2 + [["Module.0.Tanh.forward.0"]]


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    names = ['say "no"', "in/out", "two\nlines", "half a \ud83d", "x" * 300, "x" * 300 + "y"]
    model = nn.ModuleDict({name: nn.Linear(2, 2) for name in names})
    given = {"in/../../out": torch.ones(3, 2)}
    model.forward = lambda x: [layer(x["in/../../out"]) for layer in model.values()]
    outer = nn.Sequential(model)
    found = recorded(tmp_path, lambda: outer(given), level="mix", task="tensor", model=outer)
    data = next(tmp_path.glob("step0/*/dump_tensor_data"))
    stored = [seen["data_name"] for entry in found.values() for seen in _tensors(entry)]
    assert len(stored) == len(set(stored)) == len(list(data.iterdir()))
    assert all((data / name).is_file() for name in stored)
    assert len([name for name in found if name.startswith("Module.0.")]) == 1 + len(names)


def _tensors(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict) and "data_name" in tree:
        yield tree
    elif isinstance(tree, dict | list):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from _tensors(item)


@pytest.fixture
def worker() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Runs programs on a thread that is there before any capture."""
    programs: queue.Queue[Callable[[], object] | None] = queue.Queue()
    done: queue.Queue[None] = queue.Queue()

    def work() -> None:
        while (program := programs.get()) is not None:
            program()
            done.put(None)

    thread = threading.Thread(target=work)
    thread.start()

    def run(program: Callable[[], object]) -> None:
        programs.put(program)
        done.get(timeout=20)

    yield run
    programs.put(None)
    thread.join()


def test_a_thread_that_ran_before_is_seen_inside_modules(
    tmp_path: Path, worker: Callable[[Callable[[], object]], None]
) -> None:
    model = Net()
    with capture(tmp_path, level="mix", model=model):
        worker(lambda: step(kit, model))
        worker(lambda: torch.ones(2).sin())
    found = entries(tmp_path)
    assert [name for name in found if ".forward." in name] == forwards(kit)
    assert construct(tmp_path)["Functional.relu.1.forward"] == "Module.r1.relu.ReLU.forward.1"
    assert "Tensor.sin.0.forward" not in found
    # Each call once.
    assert sum(name.startswith("Functional.relu") and name.endswith("forward") for name in found) == 2
