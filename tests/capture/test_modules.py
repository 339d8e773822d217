"""What each framework's capture promises of modules: their entries, their gradients, and what stands in what."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_probe import PrecisionDebugger
from pytest_probe.errors import SettingsError
from tests.support.capturing import construct, content, entries

RES = "Module.r1.Res"


def step(kit: Any, model: Any) -> float:
    x = kit.P.linspace(-1, 1, 2 * 3 * 4 * 4).reshape([2, 3, 4, 4])
    loss = kit.F.cross_entropy(model(x), kit.tensor([1, 2]))
    loss.backward()
    return float(loss.detach())


def of_net(kit: Any, folder: Path, **options: Any) -> tuple[Any, dict[str, Any]]:
    model = kit.Net()
    return model, kit.recorded(folder, lambda: step(kit, model), model=model, **options)


def forwards(kit: Any) -> list[str]:
    c, b, r = kit.CONV, kit.NORM, kit.RELU
    first = f"stem.{c} r1.c1.{c} r1.b1.{b} r1.relu.{r} r1.c2.{c} r1.b2.{b} r1.sc.Identity"
    names = [f"Module.{place}.forward.0" for place in first.split()]
    return [*names, f"Module.r1.relu.{r}.forward.1", f"{RES}.forward.0", "Module.fc.Linear.forward.0"]


def gradients(kit: Any) -> dict[str, set[str]]:
    """The parameters of each module that has some."""
    whole = ("fc.Linear", f"stem.{kit.CONV}", f"r1.b1.{kit.NORM}", f"r1.b2.{kit.NORM}")
    found = {place: {"weight", "bias"} for place in whole}
    found |= {f"r1.c{number}.{kit.CONV}": {"weight"} for number in (1, 2)}
    return {f"Module.{place}.parameters_grad.0": names for place, names in found.items()}


def test_l0_has_the_names_of_a_real_dump(kit: Any, tmp_path: Path) -> None:
    """The identity makes no node: its gradient is its module's."""
    _, found = of_net(kit, tmp_path, level="L0")
    own = gradients(kit)
    back = [name.replace("forward", "backward") for name in forwards(kit) if "Identity" not in name]
    assert found.keys() == {*forwards(kit), *back, *own}
    assert [name for name in found if ".forward." in name] == forwards(kit)
    assert {name: set(found[name]) for name in own} == own
    parents = construct(tmp_path)
    assert parents.keys() == found.keys() - own.keys()
    for name, parent in parents.items():
        inside = name.startswith("Module.r1.") and not name.startswith(RES)
        assert parent == (f"{RES}.{name.split('.')[-2]}.0" if inside else None)
    assert (content(tmp_path)["level"], content(tmp_path)["framework"]) == ("L0", kit.FRAMEWORK)


def test_mix_places_every_call(kit: Any, tmp_path: Path) -> None:
    _, found = of_net(kit, tmp_path, level="mix")
    parents, conv, relu, of = construct(tmp_path), kit.CALLS["conv"], kit.CALLS["relu"], kit.FUNCTIONAL
    assert [name for name in found if ".forward." in name and name.startswith("Module")] == forwards(kit)
    expected = {
        f"{conv}.0.forward": f"Module.stem.{kit.CONV}.forward.0",
        f"{relu}.1.forward": f"Module.r1.relu.{kit.RELU}.forward.1",
        f"{kit.CALLS['sum']}.0.forward": f"{RES}.forward.0",
        f"{of}.silu.0.forward": None,
        f"{of}.linear.0.backward": "Module.fc.Linear.backward.0",
        f"{of}.batch_norm.0.backward": f"Module.r1.b1.{kit.NORM}.backward.0",
        f"{of}.silu.0.backward": None,
    }
    assert {name: parents[name] for name in expected} == expected
    assert parents.keys() == found.keys() - gradients(kit).keys()
    assert found[f"{conv}.1.forward"]["probe"]["module"] == "r1.c1"
    (path,) = tmp_path.glob("step0/*/stack.json")
    frames = [frame for _, stack in json.loads(path.read_text()).values() for frame in stack]
    assert any("test_modules.py" in frame for frame in frames)
    assert not any("pytest_probe/frameworks" in frame or "pytest_probe/capture" in frame for frame in frames)


def test_l1_says_the_path_of_the_module(kit: Any, tmp_path: Path) -> None:
    _, found = of_net(kit, tmp_path)
    assert not [name for name in found if name.startswith("Module")]
    assert found[f"{kit.CALLS['relu']}.1.forward"]["probe"]["module"] == "r1.relu"
    assert found[f"{kit.CALLS['sum']}.0.forward"]["probe"]["module"] == "r1"
    assert "module" not in found[f"{kit.FUNCTIONAL}.silu.0.forward"].get("probe", {})
    assert construct(tmp_path) == {}


def test_parameters_and_their_gradients_are_stored(kit: Any, tmp_path: Path) -> None:
    model, found = of_net(kit, tmp_path, level="L0", task="tensor")
    (folder,) = tmp_path.glob("step0/*/dump_tensor_data")
    names = {name: parameter for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert len(names) == 10
    for path, parameter in names.items():
        place, _, name = path.rpartition(".")
        (entry,) = (body for entry, body in found.items() if entry.startswith(f"Module.{place}.") and "_grad" in entry)
        assert kit.P.load(str(folder / entry[name][0]["data_name"])).tolist() == parameter.grad.tolist()
    weight = found["Module.fc.Linear.forward.0"]["parameters"]["weight"]
    assert weight["data_name"] == "Module.fc.Linear.forward.0.parameters.weight.pt"
    assert kit.P.load(str(folder / weight["data_name"])).tolist() == model.fc.weight.tolist()


def test_a_forward_entry_is_as_the_modules_caller_sees_it(kit: Any, tmp_path: Path) -> None:
    model, found = of_net(kit, tmp_path, level="L0")
    relu, linear = found[f"Module.r1.relu.{kit.RELU}.forward.0"], found["Module.fc.Linear.forward.0"]
    assert relu["input_args"][0]["Min"] < 0 == relu["output"][0]["Min"]
    assert "parameters" not in relu
    assert list(linear["parameters"]) == ["weight", "bias"]
    assert linear["parameters"]["weight"]["Max"] == float(model.fc.weight.detach().max())
    assert linear["is_recompute"] is False


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Answer:
    logits: Any
    pair: Pair
    extra: dict[str, Any]


def inside(kit: Any, forward: Any) -> Any:
    made = type("Inside", (kit.Module,), {"forward": lambda self, *args, **kwargs: forward(*args, **kwargs)})
    return kit.P.nn.Sequential(made())


def test_structures_of_arguments_and_results(kit: Any, tmp_path: Path) -> None:
    def forward(pair: Pair, original: Any, module: dict[str, Any]) -> Answer:
        return Answer(pair.left * original, pair, {"sum": [module["x"] + pair.right], "none": None})

    model, answers = inside(kit, forward), list[Answer]()
    a, b, c, d = (kit.wanting(kit.P.full([2], float(number))) for number in range(1, 5))

    def program() -> None:
        # A keyword has the name of a parameter of the hook's own.
        answers.append(model[0](Pair(a, b), original=c, module={"x": d}))
        (answers[0].logits.sum() + answers[0].extra["sum"][0].sum()).backward()

    found = kit.recorded(tmp_path, program, level="L0", model=model)
    assert (type(answers[0]), type(answers[0].pair)) == (Answer, Pair)
    entry, backward = found["Module.0.Inside.forward.0"], found["Module.0.Inside.backward.0"]
    assert (entry["input_args"][0]["left"]["Max"], entry["input_kwargs"]["module"]["x"]["Max"]) == (1, 4)
    (output,) = entry["output"]
    assert (output["logits"]["Max"], output["pair"]["right"]["Max"], output["extra"]["sum"][0]["Max"]) == (3, 2, 6)
    if kit.FRAMEWORK == "paddle":  # those of the pair, which is handed on, are not this layer's alone
        assert backward["probe"] == {"outputs": ["output.0.logits", "output.0.extra.sum.0"], "inputs": []}
        assert [tree["Max"] for tree in backward["input"]] == [1, 1]
        return
    places = ["input.0.left", "input.0.right", "kwargs.original", "kwargs.module.x"]
    by_place = dict(zip(backward["probe"]["inputs"], backward["output"], strict=True))
    assert [by_place.pop(place)["Max"] for place in places] == [3, 1, 1, 1]
    assert by_place == {}


@pytest.mark.parametrize("way", [0, 1])
def test_recomputed_modules_and_calls_say_so(kit: Any, way: int, tmp_path: Path) -> None:
    recompute, nn = kit.RECOMPUTING[way % len(kit.RECOMPUTING)], kit.P.nn
    model: Any = inside(kit, lambda x: recompute(model[0].inner, x).sum())
    model[0].inner, x = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), kit.wanting(kit.P.ones([1, 3]))
    found = kit.recorded(tmp_path, lambda: model(x).backward(), level="mix", model=model)
    linear, call = "Module.0.inner.0.Linear.forward", f"{kit.FUNCTIONAL}.linear"
    names = [f"{linear}.0", f"{call}.0.forward", f"{linear}.1", f"{call}.1.forward"]
    assert [found[name]["is_recompute"] for name in names] == [False, False, True, True]
    assert f"{linear}.2" not in found
    parents = construct(tmp_path)
    assert parents[f"{call}.1.forward"] == f"{linear}.1"
    assert parents[f"{linear}.1"] == "Module.0.inner.Sequential.forward.1"
    assert {parent for parent in parents.values() if parent is not None} <= set(parents)
    assert found.keys() & {f"{call}.0.backward", f"{call}.1.backward"}


def test_an_exception_of_a_forward_passes(kit: Any, tmp_path: Path) -> None:
    def forward(x: Any) -> Any:
        if float((x + 1).sum()) < 0:
            raise KeyError("the program's own")
        return x * 2

    model = kit.P.nn.Sequential(inside(kit, forward))

    def program() -> None:
        with pytest.raises(KeyError, match="the program's own"):
            model(kit.P.full([2], -5.0))
        model(kit.P.ones([2]))

    found = kit.recorded(tmp_path, program, level="mix", model=model)
    entry, parents = found["Module.0.0.Inside.forward.0"], construct(tmp_path)
    assert (entry["probe"], "output" in entry) == ({"raised": "KeyError"}, False)
    assert parents[f"{kit.TENSOR}.__add__.1.forward"] == "Module.0.0.Inside.forward.1"
    assert parents["Module.0.Sequential.forward.1"] is None


def test_what_the_hooks_cannot_record_never_stops_the_program(kit: Any, tmp_path: Path) -> None:
    class Hostile(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("not to be looked at")

    model, given, got = inside(kit, lambda value: value), Hostile(), list[Any]()
    found = kit.recorded(tmp_path, lambda: got.append(model[0](given)), level="L0", model=model)
    assert got[0] is given
    assert "not to be looked at" in found["Module.0.Inside.forward.0"]["probe"]["failed"]


def test_compiled_modules_run_as_they_do(kit: Any, tmp_path: Path) -> None:
    nn, x = kit.P.nn, kit.P.linspace(-1, 1, 6).reshape([2, 3])
    model = nn.Sequential(kit.compiled(nn.Sequential(nn.Linear(3, 3), nn.Tanh())), nn.ReLU())
    expected, got = model(x).tolist(), list[Any]()
    found = kit.recorded(tmp_path, lambda: got.append(model(x).tolist()), level="mix", model=model)
    assert [*got, model(x).tolist()] == [expected] * 2
    assert "Module.1.ReLU.forward.0" in found
    assert not any("Tanh" in name or "Linear" in name for name in found)


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_recording_modules_changes_no_number(kit: Any, level: str, tmp_path: Path) -> None:
    def run(folder: Path | None) -> Any:
        model, losses = kit.Net(), list[float]()
        optimizer = kit.sgd(model.parameters())
        options = {"framework": kit.FRAMEWORK, "level": level, "model": model}
        debugger = PrecisionDebugger(dump_path=folder, **options) if folder else None
        if debugger:
            debugger.start()
        for _ in range(2):
            losses.append(step(kit, model))
            optimizer.step()
            optimizer.clear_grad() if kit.FRAMEWORK == "paddle" else optimizer.zero_grad()
        if debugger:
            debugger.close()
        return losses, kit.P.rand([3]).tolist(), [parameter.tolist() for parameter in model.parameters()]

    assert run(tmp_path) == run(None)


def test_stop_leaves_no_hook_and_start_goes_on(kit: Any, tmp_path: Path) -> None:
    model, call, linear = kit.Net(), kit.Module.__call__, "Module.fc.Linear.forward"
    debugger = PrecisionDebugger(dump_path=tmp_path, framework=kit.FRAMEWORK, level="L0", model=model)
    for recording in (True, False, True):
        if recording:
            debugger.start()
        assert (kit.Module.__call__ is call) is not recording
        step(kit, model)
        if not recording:
            continue
        debugger.stop()
        assert kit.Module.__call__ is call
    debugger.start()
    debugger.step()
    step(kit, model)
    debugger.close()
    assert kit.Module.__call__ is call
    found = [[name for name in entries(tmp_path, number) if name.startswith(linear)] for number in (0, 1)]
    assert found == [[f"{linear}.0", f"{linear}.1"], [f"{linear}.0"]]
    pickle.dumps(model.state_dict())
    hooks = ("_forward_pre_hooks", "_forward_post_hooks", "_forward_hooks")
    assert not any(getattr(model.fc, name, None) for name in hooks)


def test_models_of_a_list_are_numbered(kit: Any, tmp_path: Path) -> None:
    nn = kit.P.nn
    models = [nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh())]
    found = kit.recorded(tmp_path, lambda: models[1](models[0](kit.P.ones([2]))), level="L0", model=models)
    assert list(found) == ["Module.0.0.ReLU.forward.0", "Module.1.0.Tanh.forward.0"]


@pytest.mark.parametrize("model", [[], "net", [3]])
def test_levels_of_modules_need_a_model(kit: Any, model: Any, tmp_path: Path) -> None:
    options: Any = {"dump_path": tmp_path, "framework": kit.FRAMEWORK, "level": "mix"}
    kind = f"{kit.P.__name__}.nn.{kit.Module.__name__}"
    with pytest.raises(SettingsError, match=f"level mix records modules: give a {kind}"):
        PrecisionDebugger(**options, model=model).start()
    with pytest.raises(SettingsError):
        PrecisionDebugger(**options).start(model)


def test_gradients_come_after_the_forward_has_ended(kit: Any, tmp_path: Path) -> None:
    model = kit.P.nn.Sequential(kit.P.nn.Linear(2, 2))
    debugger = PrecisionDebugger(dump_path=tmp_path, framework=kit.FRAMEWORK, level="mix", model=model)
    debugger.start()
    loss = model(kit.P.ones([1, 2])).sum()
    debugger.forward_backward_dump_end()
    model(kit.P.ones([1, 2]))
    loss.backward()
    debugger.close()
    names = {f"Module.0.Linear.{kind}.0" for kind in ("forward", "backward", "parameters_grad")}
    names |= {f"{kit.FUNCTIONAL}.linear.0.{kind}" for kind in ("forward", "backward")}
    found = set(entries(tmp_path))
    assert names <= found
    assert {name for name in found if "Module" in name or "linear" in name} == names


def test_an_interval_of_a_module_holds_what_it_calls(kit: Any, tmp_path: Path) -> None:
    _, found = of_net(kit, tmp_path, level="mix", scope=[f"{RES}.forward.0"] * 2, data_mode=["forward"])
    assert [name for name in found if name.startswith("Module")] == forwards(kit)[1:-1]
    assert f"{kit.CALLS['relu']}.1.forward" in found
    assert f"{kit.FUNCTIONAL}.silu.0.forward" not in found
