"""Every optimizer of Paddle's: recorded without a change to the training, replayed, and judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_probe import PrecisionDebugger, frameworks

if frameworks.unavailable("paddle"):
    pytest.skip("paddle is not installed", allow_module_level=True)

import paddle

from tests.acceptance.test_paddle_capture import OTHER_DEVICES

# The operator of each one's step. LBFGS has none of its own.
OPERATORS = {
    **{name: f"{name.lower()}_" for name in ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "Lamb")},
    **{name: f"{name.lower()}_" for name in ("Momentum", "NAdam", "RAdam", "RMSProp", "Rprop", "SGD")},
    "LBFGS": "",
    "merged Adam": "merged_adam_",
    "merged Momentum": "merged_momentum_",
    "centered RMSProp": "rmsprop_",
    "AMSGrad": "adam_",
}
SPECIAL: dict[str, Callable[[Any], Any]] = {
    "ASGD": lambda given: paddle.optimizer.ASGD(0.01, batch_num=2, parameters=given),
    "LBFGS": lambda given: paddle.optimizer.LBFGS(max_iter=2, parameters=given),
    "merged Adam": lambda given: paddle.optimizer.Adam(0.01, parameters=given, use_multi_tensor=True),
    "merged Momentum": lambda given: paddle.optimizer.Momentum(0.01, parameters=given, use_multi_tensor=True),
    "centered RMSProp": lambda given: paddle.optimizer.RMSProp(0.01, centered=True, momentum=0.9, parameters=given),
    "AMSGrad": lambda given: paddle.optimizer.Adam(0.01, parameters=given, amsgrad=True),
}


def trained(name: str, folder: Path | None) -> tuple[list[float], list[Any]]:
    """The losses of three steps and the parameters after them; with a folder the second step is recorded."""
    paddle.seed(3)
    model, x = (
        paddle.nn.Sequential(paddle.nn.Linear(4, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 2)),
        paddle.randn([5, 4]),
    )
    made = SPECIAL.get(name) or (lambda given: getattr(paddle.optimizer, name)(learning_rate=0.01, parameters=given))
    optimizer = made(model.parameters())

    def loss() -> Any:
        optimizer.clear_grad()
        found = model(x).square().mean()
        found.backward()
        return found

    def step() -> float:
        if name == "LBFGS":
            return float(optimizer.step(loss))
        found = float(loss())
        optimizer.step()
        return found

    if folder is None:
        return [step() for _ in range(3)], [parameter.tolist() for parameter in model.parameters()]
    debugger = PrecisionDebugger(dump_path=folder, framework="paddle", step=[1])
    losses = []
    for _ in range(3):
        debugger.start()
        losses.append(step())
        debugger.step()
    debugger.close()
    return losses, [parameter.tolist() for parameter in model.parameters()]


def test_every_optimizer_of_paddle_is_checked_here() -> None:
    kinds = {name for name in paddle.optimizer.__all__ if isinstance(getattr(paddle.optimizer, name), type)}
    assert kinds - {"Optimizer"} <= OPERATORS.keys()


@pytest.mark.evidence
@pytest.mark.parametrize("name", OPERATORS)
def test_a_captured_paddle_optimizer_passes_its_check(name: str, pytester: pytest.Pytester) -> None:
    folder = pytester.path / "dumps"
    assert trained(name, folder) == trained(name, None)
    (path,) = folder.glob("step1/*/dump.json")
    recorded = {entry.split(".")[2] for entry in json.loads(path.read_text())["data"] if "._C_ops." in entry}
    assert OPERATORS[name] in recorded or name == "LBFGS"
    outcomes = pytester.runpytest_inprocess("--probe-dump=dumps", "-pno:xdist").parseoutcomes()
    assert set(outcomes) <= {"passed", "warnings"}, outcomes


def test_a_wrong_device_fails_paddle_optimizers(pytester: pytest.Pytester) -> None:
    names = list(OPERATORS)[::3]
    for name in names:
        trained(name, pytester.path / "dumps" / name.replace(" ", "-"))
    pytester.makeconftest(OTHER_DEVICES)
    apis = [f"--probe-api=paddle._C_ops.{operator}" for operator in {OPERATORS[name] for name in names} if operator]
    for device, outcome in (("other", "passed"), ("wrong", "failed")):
        run = pytester.runpytest_inprocess("--probe-dump=dumps", f"--probe-device={device}", *apis, "-pno:xdist")
        outcomes = run.parseoutcomes()
        assert set(outcomes) == {outcome}, outcomes
        assert outcomes[outcome] > 15
