"""Entries of layers, their gradients, and what stands in what."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import PrecisionDebugger, capture
from pytest_probe.errors import SettingsError
from tests.support.capturing import construct, content, entries
from tests.support.capturing import recorded as recorded_by

F, nn = paddle.nn.functional, paddle.nn


class Res(nn.Layer):  # type: ignore[misc, name-defined]
    """A layer that is used twice works in place, another gives its argument back."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1 = nn.Conv2D(8, 8, 3, padding=1, bias_attr=False), nn.BatchNorm2D(8)
        self.c2, self.b2 = nn.Conv2D(8, 8, 3, padding=1, bias_attr=False), nn.BatchNorm2D(8)
        self.sc = nn.Identity()
        self.relu = InPlace()

    def forward(self, x: Any) -> Any:
        out = self.b2(self.c2(self.relu(self.b1(self.c1(x)))))
        return self.relu(out + self.sc(x))


class InPlace(nn.Layer):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return F.relu_(x)


class Net(nn.Layer):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.r1, self.fc = nn.Conv2D(3, 8, 3, padding=1), Res(), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.fc(F.silu(self.r1(self.stem(x))).mean([2, 3]))


def net() -> Net:
    paddle.seed(0)
    return Net()


def step(model: Any) -> float:
    x = paddle.linspace(-1, 1, 2 * 3 * 4 * 4).reshape([2, 3, 4, 4])
    loss = F.cross_entropy(model(x), paddle.to_tensor([1, 2]))
    loss.backward()
    return float(loss)


def recorded(folder: Path, program: Callable[[], object], **options: Any) -> dict[str, Any]:
    return recorded_by(folder, program, framework="paddle", **options)


FORWARD = [
    "Module.stem.Conv2D.forward.0",
    "Module.r1.c1.Conv2D.forward.0",
    "Module.r1.b1.BatchNorm2D.forward.0",
    "Module.r1.relu.InPlace.forward.0",
    "Module.r1.c2.Conv2D.forward.0",
    "Module.r1.b2.BatchNorm2D.forward.0",
    "Module.r1.sc.Identity.forward.0",
    "Module.r1.relu.InPlace.forward.1",
    "Module.r1.Res.forward.0",
    "Module.fc.Linear.forward.0",
]
BACKWARD = {
    "Module.fc.Linear.backward.0": None,
    "Module.r1.Res.backward.0": None,
    "Module.r1.relu.InPlace.backward.1": "Module.r1.Res.backward.0",
    "Module.r1.b2.BatchNorm2D.backward.0": "Module.r1.Res.backward.0",
    "Module.r1.c2.Conv2D.backward.0": "Module.r1.Res.backward.0",
    "Module.r1.relu.InPlace.backward.0": "Module.r1.Res.backward.0",
    "Module.r1.b1.BatchNorm2D.backward.0": "Module.r1.Res.backward.0",
    "Module.r1.c1.Conv2D.backward.0": "Module.r1.Res.backward.0",
    "Module.stem.Conv2D.backward.0": None,
}
GRADIENTS = {
    "Module.fc.Linear.parameters_grad.0": {"weight", "bias"},
    "Module.r1.b2.BatchNorm2D.parameters_grad.0": {"weight", "bias"},
    "Module.r1.c2.Conv2D.parameters_grad.0": {"weight"},
    "Module.r1.b1.BatchNorm2D.parameters_grad.0": {"weight", "bias"},
    "Module.r1.c1.Conv2D.parameters_grad.0": {"weight"},
    "Module.stem.Conv2D.parameters_grad.0": {"weight", "bias"},
}


def test_level_l0_records_modules_and_parameter_gradients(tmp_path: Path) -> None:
    model = net()
    found = recorded(tmp_path, lambda: step(model), level="L0", model=model)
    assert [name for name in found if ".forward." in name] == FORWARD
    assert {name for name in found if ".backward." in name} == set(BACKWARD)
    assert {name: set(body) for name, body in found.items() if ".parameters_grad." in name} == GRADIENTS
    assert len(found) == len(FORWARD) + len(BACKWARD) + len(GRADIENTS)
    parents = construct(tmp_path)
    assert {name: parents[name] for name in BACKWARD} == BACKWARD
    assert parents["Module.r1.relu.InPlace.forward.1"] == "Module.r1.Res.forward.0"
    assert set(parents) == set(found) - set(GRADIENTS)
    assert (content(tmp_path)["level"], content(tmp_path)["framework"]) == ("L0", "paddle")


def test_mix_places_every_call(tmp_path: Path) -> None:
    model = net()
    found = recorded(tmp_path, lambda: step(model), level="mix", model=model)
    parents = construct(tmp_path)
    assert [name for name in found if ".forward." in name] == FORWARD
    expected = {
        "paddle._C_ops.conv2d.0.forward": "Module.stem.Conv2D.forward.0",
        "paddle.nn.functional.relu_.1.forward": "Module.r1.relu.InPlace.forward.1",
        "paddle.Tensor.__add__.0.forward": "Module.r1.Res.forward.0",
        "paddle.nn.functional.silu.0.forward": None,
        "paddle.nn.functional.linear.0.backward": "Module.fc.Linear.backward.0",
        "paddle.nn.functional.batch_norm.0.backward": "Module.r1.b1.BatchNorm2D.backward.0",
        "paddle.nn.functional.silu.0.backward": None,
    }
    assert {name: parents[name] for name in expected} == expected
    assert set(parents) == set(found) - set(GRADIENTS)
    assert found["paddle._C_ops.conv2d.1.forward"]["probe"]["module"] == "r1.c1"


def test_l1_says_the_path_of_the_module(tmp_path: Path) -> None:
    model = net()
    found = recorded(tmp_path, lambda: step(model), model=model)
    assert not [name for name in found if name.startswith("Module")]
    assert found["paddle.nn.functional.relu_.1.forward"]["probe"]["module"] == "r1.relu"
    assert found["paddle.Tensor.__add__.0.forward"]["probe"]["module"] == "r1"
    assert "module" not in found["paddle.nn.functional.silu.0.forward"].get("probe", {})
    assert construct(tmp_path) == {}


def test_gradients_of_parameters_are_those_of_the_backward(tmp_path: Path) -> None:
    model = net()
    found = recorded(tmp_path, lambda: step(model), level="L0", model=model, task="tensor")
    (folder,) = tmp_path.glob("step0/*/dump_tensor_data")
    for path, module in model.named_sublayers():
        for name, parameter in module.named_parameters(include_sublayers=False):
            if parameter.stop_gradient:  # running statistics
                continue
            (gradient,) = found[f"Module.{path}.{type(module).__name__}.parameters_grad.0"][name]
            stored = paddle.load(str(folder / gradient["data_name"]))
            assert stored.tolist() == parameter.grad.tolist()


def test_a_forward_entry_is_as_the_modules_caller_sees_it(tmp_path: Path) -> None:
    model = net()
    found = recorded(tmp_path, lambda: step(model), level="L0", model=model)
    # The layer works in place: its argument as it was before.
    relu = found["Module.r1.relu.InPlace.forward.0"]
    assert relu["input_args"][0]["Min"] < 0 == relu["output"][0]["Min"]
    assert "parameters" not in relu
    linear = found["Module.fc.Linear.forward.0"]
    assert list(linear["parameters"]) == ["weight", "bias"]
    assert linear["parameters"]["weight"]["Max"] == float(model.fc.weight.max())
    assert linear["is_recompute"] is False


def test_parameters_that_are_used_twice_have_one_gradient_in_each_backward(tmp_path: Path) -> None:
    linear = nn.Linear(2, 2, bias_attr=False)
    model = nn.Sequential(linear)
    sums = []

    def program() -> None:
        for _ in range(2):
            linear(linear(paddle.ones([1, 2]))).sum().backward()
            sums.append(float(linear.weight.grad.sum()))

    found = recorded(tmp_path, program, level="L0", model=model)
    gradients = [name for name in found if "parameters_grad" in name]
    assert gradients == ["Module.0.Linear.parameters_grad.0", "Module.0.Linear.parameters_grad.2"]
    first, second = (found[name]["weight"][0]["Mean"] * 4 for name in gradients)
    assert [first, first + second] == pytest.approx(sums, rel=1e-6)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Answer:
    logits: Any
    pair: Pair
    extra: dict[str, Any]


class Structured(nn.Layer):  # type: ignore[misc, name-defined]
    def forward(self, pair: Pair, original: Any, layer: dict[str, Any]) -> Answer:
        return Answer(pair.left * original, pair, {"sum": [layer["x"] + pair.right], "none": None})


def test_structures_of_arguments_and_results(tmp_path: Path) -> None:
    model = nn.Sequential(Structured())
    leaves = [paddle.full([2], float(number)) for number in range(1, 5)]
    for leaf in leaves:
        leaf.stop_gradient = False
    answers: list[Answer] = []

    def program() -> None:
        # Keywords with the names of the replacement's own parameters.
        answers.append(model[0](Pair(leaves[0], leaves[1]), original=leaves[2], layer={"x": leaves[3]}))
        (answers[0].logits.sum() + answers[0].extra["sum"][0].sum()).backward()

    found = recorded(tmp_path, program, level="L0", model=model)
    assert type(answers[0]) is Answer
    forward = found["Module.0.Structured.forward.0"]
    assert forward["input_args"][0]["left"]["Max"] == 1
    assert forward["input_kwargs"]["layer"]["x"]["Max"] == 4
    (output,) = forward["output"]
    assert (output["logits"]["Max"], output["pair"]["right"]["Max"], output["extra"]["sum"][0]["Max"]) == (3, 2, 6)
    # Those of the pair, which is handed on, are not this layer's alone.
    backward = found["Module.0.Structured.backward.0"]
    assert backward["probe"] == {"outputs": ["output.0.logits", "output.0.extra.sum.0"], "inputs": []}
    assert [tree["Max"] for tree in backward["input"]] == [1, 1]


def test_recomputed_layers_say_so(tmp_path: Path) -> None:
    from paddle.distributed.fleet.utils import recompute

    class Recomputing(nn.Layer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

        def forward(self, x: Any) -> Any:
            return recompute(self.inner, x).sum()

    model, x = Recomputing(), paddle.ones([1, 3])
    x.stop_gradient = False
    found = recorded(tmp_path, lambda: model(x).backward(), level="mix", model=model)
    again = {name: body["is_recompute"] for name, body in found.items() if name.startswith("Module.inner.0.Linear.for")}
    assert again == {"Module.inner.0.Linear.forward.0": False, "Module.inner.0.Linear.forward.1": True}
    parents = construct(tmp_path)
    assert parents["paddle.nn.functional.linear.1.forward"] == "Module.inner.0.Linear.forward.1"
    assert parents["Module.inner.0.Linear.forward.1"] == "Module.inner.Sequential.forward.1"
    assert {parent for parent in parents.values() if parent is not None} <= set(parents)
    (gradient,) = found["Module.inner.0.Linear.parameters_grad.1"]["weight"]
    assert gradient["Max"] == float(model.inner[0].weight.grad.max())


class Raising(nn.Layer):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        if float((x + 1).sum()) < 0:
            raise KeyError("the program's own")
        return x * 2


def test_an_exception_of_a_forward_passes(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Sequential(Raising()))

    def program() -> None:
        with pytest.raises(KeyError, match="the program's own"):
            model(paddle.full([2], -5.0))
        model(paddle.ones([2]))

    found = recorded(tmp_path, program, level="mix", model=model)
    assert found["Module.0.0.Raising.forward.0"]["probe"] == {"raised": "KeyError"}
    parents = construct(tmp_path)
    assert parents["paddle.Tensor.__add__.1.forward"] == "Module.0.0.Raising.forward.1"
    assert parents["Module.0.Sequential.forward.1"] is None


def test_what_cannot_be_recorded_never_stops_the_program(tmp_path: Path) -> None:
    class Hostile(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("not to be looked at")

    model = nn.Sequential(nn.Identity())
    given, got = Hostile(), []
    found = recorded(tmp_path, lambda: got.append(model[0](given)), level="L0", model=model)
    assert got[0] is given
    assert "not to be looked at" in found["Module.0.Identity.forward.0"]["probe"]["failed"]


def test_compiled_layers_run_as_they_do(tmp_path: Path) -> None:
    compiled = paddle.jit.to_static(nn.Sequential(nn.Linear(2, 2), nn.Tanh()))
    model = nn.Sequential(compiled, nn.ReLU())
    expected = model(paddle.ones([1, 2])).tolist()
    with capture(tmp_path, framework="paddle", level="mix", model=model):
        assert model(paddle.ones([1, 2])).tolist() == expected
    found = entries(tmp_path)
    assert "Module.1.ReLU.forward.0" in found
    assert not any("Tanh" in name or "Linear" in name for name in found)


def run(model: Any, begin: Callable[[Any], None]) -> Any:
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    begin(model)
    losses = []
    for _ in range(2):
        losses.append(step(model))
        optimizer.step()
        optimizer.clear_grad()
    return losses, [parameter.tolist() for parameter in model.parameters()]


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_recording_modules_changes_no_number(level: str, tmp_path: Path) -> None:
    debuggers: list[PrecisionDebugger] = []

    def begin(model: Any) -> None:
        debuggers.append(PrecisionDebugger(dump_path=tmp_path, framework="paddle", level=level, model=model))
        debuggers[0].start()

    seen = run(net(), begin)
    debuggers[0].close()
    assert seen == run(net(), lambda model: None)


def test_stop_leaves_no_hook_and_start_goes_on(tmp_path: Path) -> None:
    model, call = net(), nn.Layer.__call__
    debugger = PrecisionDebugger(dump_path=tmp_path, framework="paddle", level="L0", model=model)
    for recording in (True, False, True):
        if recording:
            debugger.start()
        assert (nn.Layer.__call__ is call) is not recording
        step(model)
        debugger.stop()
        assert nn.Layer.__call__ is call
    debugger.close()
    assert [name for name in entries(tmp_path) if "fc.Linear.forward" in name] == [
        "Module.fc.Linear.forward.0",
        "Module.fc.Linear.forward.1",
    ]
    pickle.dumps(model.state_dict())


def test_models_of_a_list_are_numbered(tmp_path: Path) -> None:
    models = [nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh())]
    found = recorded(tmp_path, lambda: models[1](models[0](paddle.ones([2]))), level="L0", model=models)
    assert list(found) == ["Module.0.0.ReLU.forward.0", "Module.1.0.Tanh.forward.0"]


@pytest.mark.parametrize("model", [None, [], "net", [3]])
def test_levels_of_modules_need_a_model(model: Any, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"level mix records modules: give a paddle\.nn\.Layer"):
        PrecisionDebugger(dump_path=tmp_path, framework="paddle", level="mix", model=model).start()
    with pytest.raises(SettingsError):
        PrecisionDebugger(dump_path=tmp_path, framework="paddle", level="mix").start(model)


def test_gradients_after_the_forward_has_ended(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    debugger = PrecisionDebugger(dump_path=tmp_path, framework="paddle", level="L0", model=model)
    debugger.start()
    loss = model(paddle.ones([1, 2])).sum()
    debugger.forward_backward_dump_end()
    model(paddle.ones([1, 2]))
    loss.backward()
    debugger.close()
    kinds = ("forward", "backward", "parameters_grad")
    assert set(entries(tmp_path)) == {f"Module.0.Linear.{kind}.0" for kind in kinds}


def test_an_interval_of_a_module_holds_what_it_calls(tmp_path: Path) -> None:
    model = net()
    ends = ["Module.r1.Res.forward.0", "Module.r1.Res.forward.0"]
    found = recorded(tmp_path, lambda: step(model), level="mix", model=model, scope=ends, data_mode=["forward"])
    assert [name for name in found if name.startswith("Module")] == FORWARD[1:-1]
    assert "paddle.nn.functional.relu_.1.forward" in found
    assert "paddle.nn.functional.silu.0.forward" not in found


def test_stacks_show_the_program_alone(tmp_path: Path) -> None:
    model = net()
    recorded(tmp_path, lambda: step(model), level="mix", model=model)
    (path,) = tmp_path.glob("step0/*/stack.json")
    frames = [frame for _, stack in json.loads(path.read_text()).values() for frame in stack]
    assert any("test_modules.py" in frame for frame in frames)
    assert not any("pytest_probe/frameworks" in frame or "pytest_probe/capture" in frame for frame in frames)
