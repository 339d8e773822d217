"""Entries of modules, their gradients, and what stands in what."""

from __future__ import annotations

import json
import pickle
import queue
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from pytest_probe import PrecisionDebugger, capture
from pytest_probe.errors import SettingsError
from pytest_probe.records import read_dump
from tests.support.capturing import construct, content, entries, recorded


class Res(nn.Module):
    """As in the network whose dumps by msprobe 26.2.0 the names below are from: a module that is used twice works in
    place, another gives its argument back."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.c2, self.b2 = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.sc, self.relu = nn.Identity(), nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.b2(self.c2(self.relu(self.b1(self.c1(x)))))
        out += self.sc(x)
        return self.relu(out)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.r1, self.fc = nn.Conv2d(3, 8, 3, 1, 1), Res(), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(F.silu(self.r1(self.stem(x))).mean((2, 3)))


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def step(model: nn.Module) -> float:
    x = torch.linspace(-1, 1, 2 * 3 * 4 * 4).view(2, 3, 4, 4)
    loss = F.cross_entropy(model(x), torch.tensor([1, 2]))
    loss.backward()
    return loss.item()


FORWARD = [
    "Module.stem.Conv2d.forward.0",
    "Module.r1.c1.Conv2d.forward.0",
    "Module.r1.b1.BatchNorm2d.forward.0",
    "Module.r1.relu.ReLU.forward.0",
    "Module.r1.c2.Conv2d.forward.0",
    "Module.r1.b2.BatchNorm2d.forward.0",
    "Module.r1.sc.Identity.forward.0",
    "Module.r1.relu.ReLU.forward.1",
    "Module.r1.Res.forward.0",
    "Module.fc.Linear.forward.0",
]
# msprobe 26.2.0 has no backward entries beside works in place, ours have no entry where no node is.
BACKWARD = {
    "Module.fc.Linear.backward.0": None,
    "Module.r1.c2.Conv2d.backward.0": "Module.r1.Res.backward.0",
    "Module.r1.c1.Conv2d.backward.0": "Module.r1.Res.backward.0",
    "Module.r1.Res.backward.0": None,
    "Module.stem.Conv2d.backward.0": None,
}
GRADIENTS = {
    "Module.fc.Linear.parameters_grad.0": {"weight", "bias"},
    "Module.r1.b2.BatchNorm2d.parameters_grad.0": {"weight", "bias"},
    "Module.r1.c2.Conv2d.parameters_grad.0": {"weight"},
    "Module.r1.b1.BatchNorm2d.parameters_grad.0": {"weight", "bias"},
    "Module.r1.c1.Conv2d.parameters_grad.0": {"weight"},
    "Module.stem.Conv2d.parameters_grad.0": {"weight", "bias"},
}


def test_l0_has_the_names_of_a_real_dump(tmp_path: Path) -> None:
    model = net()
    found = recorded(tmp_path, lambda: step(model), level="L0", model=model)
    assert [name for name in found if ".forward." in name] == FORWARD
    assert all(name.startswith("Module.") for name in found)
    assert set(BACKWARD) <= set(found)
    assert {name: set(body) for name, body in found.items() if ".parameters_grad." in name} == GRADIENTS
    parents = construct(tmp_path)
    assert {name: parents[name] for name in BACKWARD} == BACKWARD
    assert parents["Module.r1.relu.ReLU.forward.1"] == "Module.r1.Res.forward.0"
    assert set(parents) == set(found) - set(GRADIENTS)
    assert content(tmp_path)["level"] == "L0"


def test_mix_places_every_call(tmp_path: Path) -> None:
    model = net()
    found = recorded(tmp_path, lambda: step(model), level="mix", model=model)
    parents = construct(tmp_path)
    assert [name for name in found if ".forward." in name] == FORWARD
    expected = {
        "Functional.conv2d.0.forward": "Module.stem.Conv2d.forward.0",
        "Functional.relu.1.forward": "Module.r1.relu.ReLU.forward.1",
        "Tensor.__iadd__.0.forward": "Module.r1.Res.forward.0",
        "Functional.silu.0.forward": None,
        "Functional.linear.0.backward": "Module.fc.Linear.backward.0",
        "Functional.batch_norm.0.backward": "Module.r1.b1.BatchNorm2d.backward.0",
        "Functional.silu.0.backward": None,
    }
    assert {name: parents[name] for name in expected} == expected
    assert set(parents) == set(found) - set(GRADIENTS)
    assert found["Functional.conv2d.1.forward"]["probe"]["module"] == "r1.c1"


def test_l1_says_the_path_of_the_module(tmp_path: Path) -> None:
    model = net()
    found = recorded(tmp_path, lambda: step(model), model=model)
    assert not [name for name in found if name.startswith("Module")]
    assert found["Functional.relu.1.forward"]["probe"]["module"] == "r1.relu"
    assert found["Tensor.__iadd__.0.forward"]["probe"]["module"] == "r1"
    assert "module" not in found["Functional.silu.0.forward"].get("probe", {})
    assert construct(tmp_path) == {}


def test_gradients_of_a_module_are_those_of_autograd(tmp_path: Path) -> None:
    model = net()
    found = recorded(tmp_path, lambda: step(model), level="L0", model=model)
    for path, module in model.named_modules():
        stem = f"Module.{path}.{type(module).__name__}.parameters_grad.0"
        for name, parameter in module.named_parameters(recurse=False):
            (gradient,) = found[stem][name]
            assert parameter.grad is not None
            assert gradient["Norm"] == pytest.approx(parameter.grad.double().norm().item(), rel=1e-6)
    # What leaves a module on the way back comes to the one before it.
    (left,) = found["Module.r1.Res.backward.0"]["output"]
    (came,) = found["Module.stem.Conv2d.backward.0"]["input"]
    assert (left["Norm"], left["Max"], left["shape"]) == (came["Norm"], came["Max"], came["shape"])


def test_a_forward_entry_is_as_the_modules_caller_sees_it(tmp_path: Path) -> None:
    model = net()
    found = recorded(tmp_path, lambda: step(model), level="L0", model=model)
    # The module works in place: its argument as it was before.
    relu = found["Module.r1.relu.ReLU.forward.0"]
    assert relu["input_args"][0]["Min"] < 0 == relu["output"][0]["Min"]
    assert "parameters" not in relu
    linear = found["Module.fc.Linear.forward.0"]
    assert list(linear["parameters"]) == ["weight", "bias"]
    assert linear["parameters"]["weight"]["Max"] == model.fc.weight.max().item()
    assert linear["is_recompute"] is False


def test_a_module_that_is_used_twice_has_gradients_of_each_use(tmp_path: Path) -> None:
    linear = nn.Linear(2, 2, bias=False)
    model = nn.Sequential(linear)

    def program() -> None:
        linear(linear(torch.ones(1, 2))).sum().backward()

    found = recorded(tmp_path, program, level="L0", model=model)
    sums = [found[f"Module.0.Linear.parameters_grad.{number}"]["weight"][0]["Mean"] * 4 for number in (0, 1)]
    assert linear.weight.grad is not None
    assert sum(sums) == pytest.approx(linear.weight.grad.sum().item(), rel=1e-6)
    assert sums[0] != sums[1]


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclass
class Answer:
    logits: torch.Tensor
    pair: Pair
    extra: dict[str, Any]


class Structured(nn.Module):
    def forward(self, pair: Pair, original: torch.Tensor, module: dict[str, torch.Tensor]) -> Answer:
        return Answer(pair.left * original, pair, {"sum": [module["x"] + pair.right], "none": None})


def test_structures_of_arguments_and_results(tmp_path: Path) -> None:
    model = nn.ModuleDict({"s": Structured()})
    leaves = [torch.full((2,), float(number), requires_grad=True) for number in range(1, 5)]
    answers: list[Answer] = []

    def program() -> None:
        # Keywords with the names of the hook's own parameters.
        answers.append(model["s"](Pair(leaves[0], leaves[1]), original=leaves[2], module={"x": leaves[3]}))
        (answers[0].logits.sum() + answers[0].extra["sum"][0].sum()).backward()

    found = recorded(tmp_path, program, level="L0", model=model)
    assert type(answers[0]) is Answer
    assert type(answers[0].pair) is Pair
    forward = found["Module.s.Structured.forward.0"]
    assert forward["input_args"][0]["left"]["Max"] == 1
    assert forward["input_kwargs"]["module"]["x"]["Max"] == 4
    (output,) = forward["output"]
    assert (output["logits"]["Max"], output["pair"]["right"]["Max"], output["extra"]["sum"][0]["Max"]) == (3, 2, 6)
    backward = found["Module.s.Structured.backward.0"]
    by_place = dict(zip(backward["probe"]["inputs"], backward["output"], strict=True))
    assert {place: tree["Max"] for place, tree in by_place.items()} == {
        "input.0.left": 3,
        "input.0.right": 1,
        "kwargs.original": 1,
        "kwargs.module.x": 1,
    }


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.reentrant = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = checkpoint(self.inner, x, use_reentrant=self.reentrant)
        return out.sum()


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_modules_say_so(tmp_path: Path, reentrant: bool) -> None:
    model = Checkpointed(reentrant)
    found = recorded(tmp_path, lambda: model(torch.ones(1, 3, requires_grad=True)).backward(), level="mix", model=model)
    again = {name: body["is_recompute"] for name, body in found.items() if name.startswith("Module.inner.0.Linear.for")}
    assert again == {"Module.inner.0.Linear.forward.0": False, "Module.inner.0.Linear.forward.1": True}
    parents = construct(tmp_path)
    assert parents["Functional.linear.1.forward"] == "Module.inner.0.Linear.forward.1"
    assert parents["Module.inner.0.Linear.forward.1"] == "Module.inner.Sequential.forward.1"
    assert {parent for parent in parents.values() if parent is not None} <= set(parents)


class Raising(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x + 1).sum() < 0:
            raise KeyError("the program's own")
        return x * 2


def test_an_exception_of_a_forward_passes(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Sequential(Raising()))

    def program() -> None:
        with pytest.raises(KeyError, match="the program's own"):
            model(torch.full((2,), -5.0))
        model(torch.ones(2))

    found = recorded(tmp_path, program, level="mix", model=model)
    assert found["Module.0.0.Raising.forward.0"]["probe"] == {"raised": "KeyError"}
    assert "output" not in found["Module.0.0.Raising.forward.0"]
    parents = construct(tmp_path)
    assert parents["Tensor.__add__.1.forward"] == "Module.0.0.Raising.forward.1"
    assert parents["Module.0.Sequential.forward.1"] is None


def test_what_the_hooks_cannot_record_never_stops_the_program(tmp_path: Path) -> None:
    class Hostile(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("not to be looked at")

    model = nn.ModuleList([Structured()])
    model[0].forward = lambda value: value
    given, got = Hostile(), []
    found = recorded(tmp_path, lambda: got.append(model[0](given)), level="L0", model=model)
    assert got[0] is given
    assert "not to be looked at" in found["Module.0.Structured.forward.0"]["probe"]["failed"]


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


def losses(model: Callable[[], nn.Module], begin: Callable[[nn.Module], None], end: Callable[[], None]) -> Any:
    made = model()
    optimizer = torch.optim.SGD(made.parameters(), 0.1)
    begin(made)
    found = []
    for _ in range(2):
        optimizer.zero_grad()
        found.append(step(made))
        optimizer.step()
    end()
    return found, torch.get_rng_state().tolist(), [parameter.detach().clone() for parameter in made.parameters()]


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_the_run_does_not_change(tmp_path: Path, level: str) -> None:
    debuggers: list[PrecisionDebugger] = []

    def begin(model: nn.Module) -> None:
        debuggers.append(PrecisionDebugger(dump_path=tmp_path, level=level, model=model))
        debuggers[0].start()

    seen, state, after = losses(net, begin, lambda: debuggers[0].close())
    bare, bare_state, bare_after = losses(net, lambda model: None, lambda: None)
    assert (seen, state) == (bare, bare_state)
    assert all(torch.equal(one, other) for one, other in zip(after, bare_after, strict=True))


def test_stop_leaves_no_hook_and_start_goes_on(tmp_path: Path) -> None:
    model = net()
    call = nn.Module.__call__
    debugger = PrecisionDebugger(dump_path=tmp_path, level="L0", model=model)
    debugger.start()
    assert nn.Module.__call__ is not call
    step(model)
    debugger.stop()
    assert nn.Module.__call__ is call
    step(model)
    debugger.start()
    step(model)
    debugger.step()
    step(model)
    debugger.close()
    assert nn.Module.__call__ is call
    assert [name for name in entries(tmp_path) if "fc.Linear.forward" in name] == [
        "Module.fc.Linear.forward.0",
        "Module.fc.Linear.forward.1",
    ]
    assert [name for name in entries(tmp_path, 1) if "fc.Linear.forward" in name] == ["Module.fc.Linear.forward.0"]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    pickle.dumps(model)


class Keeping(nn.Module):
    """No gradients go through it, but through what it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = self.inner(x)
        return x


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


def test_models_of_a_list_are_numbered(tmp_path: Path) -> None:
    models = [nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh())]
    found = recorded(tmp_path, lambda: models[1](models[0](torch.ones(2))), level="L0", model=models)
    assert list(found) == ["Module.0.0.ReLU.forward.0", "Module.1.0.Tanh.forward.0"]


def test_a_model_is_found_where_none_is_given(tmp_path: Path) -> None:
    """The first one has plain paths, another one its class before them; what has no modules inside is none."""
    model, other = net(), nn.Sequential(nn.Sequential(nn.Tanh()))
    loss = nn.MSELoss()

    def run() -> None:
        step(model)
        other[0](torch.ones(2))
        loss(other(torch.ones(2)), torch.ones(2))

    found = recorded(tmp_path / "L1", run)
    assert found["Functional.relu.1.forward"]["probe"]["module"] == "r1.relu"
    places = {name: body.get("probe", {}).get("module") for name, body in found.items() if name.endswith("forward")}
    assert [places[name] for name in ("Torch.tanh.0.forward", "Torch.tanh.1.forward")] == ["Sequential.0"] * 2
    assert places["Functional.mse_loss.0.forward"] is None
    dump = read_dump(next((tmp_path / "L1").rglob("dump.json")))
    assert dump.modules("Functional.relu.1.backward") == ("r1.relu",)
    mixed = recorded(tmp_path / "mix", lambda: step(net()), level="mix")
    assert "Module.r1.relu.ReLU.forward.0" in mixed


@pytest.mark.parametrize("model", [[], "net", [nn.ReLU(), 3]])
def test_levels_of_modules_need_a_model(tmp_path: Path, model: Any) -> None:
    with pytest.raises(SettingsError, match=r"model: .* level mix records modules: give a torch\.nn\.Module"):
        PrecisionDebugger(dump_path=tmp_path, level="mix", model=model).start()
    with pytest.raises(SettingsError):
        PrecisionDebugger(dump_path=tmp_path, level="mix").start(model)


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


def test_an_interval_of_a_module_holds_what_it_calls(tmp_path: Path) -> None:
    model = net()
    ends = ["Module.r1.Res.forward.0", "Module.r1.Res.forward.0"]
    found = recorded(tmp_path, lambda: step(model), level="mix", model=model, scope=ends, data_mode=["forward"])
    assert [name for name in found if name.startswith("Module")] == FORWARD[1:-1]
    assert "Functional.relu.1.forward" in found
    assert "Functional.silu.0.forward" not in found


def test_tensors_are_stored_with_parameters_and_their_gradients(tmp_path: Path) -> None:
    linear = nn.Linear(3, 2)
    model = nn.Sequential(linear)
    found = recorded(tmp_path, lambda: model(torch.ones(1, 3)).sum().backward(), level="L0", model=model, task="tensor")
    weight = found["Module.0.Linear.forward.0"]["parameters"]["weight"]
    (gradient,) = found["Module.0.Linear.parameters_grad.0"]["weight"]
    assert weight["data_name"] == "Module.0.Linear.forward.0.parameters.weight.pt"
    (folder,) = tmp_path.glob("step0/*/dump_tensor_data")
    assert torch.equal(torch.load(folder / weight["data_name"]), linear.weight.detach())
    assert torch.equal(torch.load(folder / gradient["data_name"]), torch.ones(2, 3))


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


def test_stacks_show_the_program_alone(tmp_path: Path) -> None:
    model = net()
    recorded(tmp_path, lambda: step(model), level="mix", model=model)
    (path,) = tmp_path.glob("step0/*/stack.json")
    frames = [frame for _, stack in json.loads(path.read_text()).values() for frame in stack]
    assert any("test_modules.py" in frame for frame in frames)
    assert not any("pytest_probe/frameworks" in frame or "pytest_probe/capture" in frame for frame in frames)


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
    model = net()
    with capture(tmp_path, level="mix", model=model):
        worker(lambda: step(model))
        worker(lambda: torch.ones(2).sin())
    found = entries(tmp_path)
    assert [name for name in found if ".forward." in name] == FORWARD
    assert construct(tmp_path)["Functional.relu.1.forward"] == "Module.r1.relu.ReLU.forward.1"
    assert "Tensor.sin.0.forward" not in found
    # Each call once.
    assert sum(name.startswith("Functional.relu") and name.endswith("forward") for name in found) == 2


def test_compiled_modules_run_as_they_do(tmp_path: Path) -> None:
    x = torch.linspace(-1, 1, 6).view(2, 3)
    inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    compiled: Any = torch.compile(inner, backend="eager", fullgraph=True)
    model = nn.Sequential(compiled, nn.ReLU())
    expected = nn.Sequential(inner, nn.ReLU())(x)
    with capture(tmp_path, level="mix", model=model):
        assert torch.equal(model(x), expected)
    assert torch.equal(model(x), expected)
    torch._dynamo.reset()
    found = entries(tmp_path)
    assert "Module.1.ReLU.forward.0" in found
    assert not any("Tanh" in name for name in found)
