"""Every optimizer of Paddle's: recorded without a change to the training, replayed, and judged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

import pytest

from pytest_probe import PrecisionDebugger, frameworks

if frameworks.unavailable("paddle"):
    pytest.skip("paddle is not installed", allow_module_level=True)

import paddle

from tests.acceptance.test_paddle_capture import OTHER_DEVICES, verdicts

# The losses of three steps and the parameters after them.
Trained: TypeAlias = "tuple[list[float], list[Any]]"
Recorded: TypeAlias = "tuple[Path, Mapping[str, Trained]]"

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


def trained(name: str, folder: Path | None) -> Trained:
    """With a folder the second step is recorded."""
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


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A folder with a dump of each optimizer, and what it trained then."""
    folder = tmp_path_factory.mktemp("optimizers")
    with patch.dict(os.environ):  # a capture sets variables
        return folder, {name: trained(name, folder / name) for name in OPERATORS}


def test_every_optimizer_of_paddle_is_checked_here() -> None:
    kinds = {name for name in paddle.optimizer.__all__ if isinstance(getattr(paddle.optimizer, name), type)}
    assert kinds - {"Optimizer"} <= OPERATORS.keys()


@pytest.mark.parametrize("name", OPERATORS)
def test_recording_changes_no_training(name: str, recorded: Recorded) -> None:
    folder, found = recorded
    assert found[name] == trained(name, None)
    (path,) = (folder / name).glob("step1/*/dump.json")
    operators = {entry.split(".")[2] for entry in json.loads(path.read_text())["data"] if "._C_ops." in entry}
    assert OPERATORS[name] in operators or name == "LBFGS"


@pytest.mark.evidence
def test_captured_paddle_optimizers_pass_their_check(recorded: Recorded, pytester: pytest.Pytester) -> None:
    run = pytester.runpytest_inprocess(f"--probe-dump={recorded[0]}", "--probe-out=out", "-pno:xdist")
    assert set(run.parseoutcomes()) <= {"passed", "warnings"}
    assert {name: set(counts) for name, counts in verdicts().items()} == {name: {"pass"} for name in OPERATORS}


def test_a_wrong_device_fails_paddle_optimizers(recorded: Recorded, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(OTHER_DEVICES)
    names = list(OPERATORS)[::3]
    dumps = [f"--probe-dump={recorded[0] / name}" for name in names]
    steps = ("--probe-api=paddle._C_ops.*_", "-k_.0.forward", "-pno:xdist")
    for device, outcome in (("other", "passed"), ("wrong", "failed")):
        outcomes = pytester.runpytest_inprocess(f"--probe-device={device}", *dumps, *steps).parseoutcomes()
        del outcomes["deselected"]
        assert outcomes == {outcome: len(names)}
