"""Capture a program of Paddle's, then check: what was recorded is healthy on the device it ran on, and a planted fault
is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias
from unittest.mock import patch

import pytest

from pytest_probe import PrecisionDebugger, capture, frameworks

if frameworks.unavailable("paddle"):
    pytest.skip("paddle is not installed", allow_module_level=True)

import paddle

from pytest_probe.paddle import Tracer
from tests.support import paddle_models
from tests.support.running import rows

OTHER_DEVICES = """
import pytest_probe.frameworks.paddle.framework  # its devices take tensors of Paddle's
from tests.support.devices import Emulated

def pytest_probe_register(registry):
    registry.devices["other"] = Emulated
    registry.devices["wrong"] = lambda name: Emulated(name, lambda tensor: tensor * 1.001)
"""
PRESENT = {
    "gpt": {"paddle.nn.functional.embedding", "paddle._C_ops.adamw_", "paddle.nn.functional.layer_norm"},
    "llama": {"paddle.incubate.nn.functional.swiglu", "paddle.rsqrt", "paddle.Tensor.__getitem__"},
    "cnn": {"paddle._C_ops.conv2d", "paddle.nn.functional.batch_norm", "paddle.nn.functional.group_norm"},
    "lstm": {"paddle._C_ops.rnn", "paddle._C_ops.adam_"},
}
TASKS = ("statistics", "tensor")
MODES = ("random", "real_data")
# A folder of dumps, and the losses while each was recorded.
Recorded: TypeAlias = "tuple[Path, Mapping[str, list[float]]]"


PROGRAM = """
import paddle, sys
paddle.seed(0)
model = paddle.nn.Linear(4, 2)
optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
for _ in range(3):
    model(paddle.ones([3, 4])).square().mean().backward()
    optimizer.step()
    optimizer.clear_grad()
print(float(model.weight.sum()), "torch" in sys.modules)
"""


def captured(folder: Path, text: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    (folder / "train.py").write_text(text)
    command = [sys.executable, "-c", "from pytest_probe.cli import main; raise SystemExit(main())", "capture", *args]
    return subprocess.run([*command, "train.py"], cwd=folder, capture_output=True, text=True, timeout=600)


def recorded_names(folder: Path) -> list[str]:
    (path,) = folder.glob("step*/*/dump.json")
    return list(json.loads(path.read_text())["data"])


def test_a_program_is_recorded_by_the_framework_that_it_imports(tmp_path: Path) -> None:
    ran = captured(tmp_path, PROGRAM, "--step=1")
    plain = subprocess.run([sys.executable, tmp_path / "train.py"], capture_output=True, text=True, timeout=600)
    assert (ran.stdout, ran.returncode) == (plain.stdout, 0)
    assert ran.stdout.endswith("False\n")
    names = recorded_names(tmp_path / "dumps")
    assert {"paddle.nn.functional.linear.0.backward", "paddle._C_ops.sgd_.1.forward"} <= set(names)
    assert "paddle.nn.functional.linear.1.forward" not in names


def test_both_frameworks_are_recorded(tmp_path: Path) -> None:
    ran = captured(tmp_path, "import torch, paddle; torch.ones(2).tanh(); paddle.tanh(paddle.ones([2]))")
    assert ran.returncode == 0
    assert recorded_names(tmp_path / "dumps") == ["Torch.ones.0.forward", "Tensor.tanh.0.forward"]
    assert recorded_names(tmp_path / "dumps/paddle") == ["paddle.ones.0.forward", "paddle.tanh.0.forward"]


def test_a_framework_that_is_not_used_is_nothing_to_warn_of(tmp_path: Path) -> None:
    ran = captured(tmp_path, "import torch, paddle; paddle.ones([2])")
    assert (ran.returncode, "nothing was recorded" in ran.stderr) == (0, False)


def losses(model: str, folder: Path | None, task: str = "statistics") -> list[float]:
    """Those of three steps; with a folder the second one is recorded."""
    paddle.seed(7)
    step = paddle_models.ALL[model]()
    if folder is None:
        return [float(step()) for _ in range(3)]
    debugger = PrecisionDebugger(dump_path=folder, framework="paddle", task=task, step=[1])
    found = []
    for _ in range(3):
        debugger.start()
        found.append(float(step()))
        debugger.stop()
        debugger.step()
    debugger.close()
    return found


def traced(mode: str, folder: Path) -> list[float]:
    """The losses of three steps; the second one is recorded as PaddleAPEX does."""
    folder.mkdir()
    config = folder / "tool_config.yaml"
    config.write_text(f"dump_root_path: {folder / 'dumps'}\ndump_mode: {mode}\ntarget_step: [1]\n")
    paddle.seed(7)
    step, tracer = paddle_models.ALL["gpt"](), Tracer(config)
    found = []
    for _ in range(3):
        tracer.start()
        found.append(float(step()))
        tracer.stop()
    return found


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("models")
    with patch.dict(os.environ):  # a capture sets variables
        found = {
            f"{model}-{task}": losses(model, folder / f"{model}-{task}", task)
            for model in paddle_models.ALL
            for task in TASKS
        }
        found |= {f"gpt-{mode}": traced(mode, folder / f"gpt-{mode}") for mode in MODES}
    return folder, found


def verdicts() -> Mapping[str, Counter[str]]:
    """What the run says of each dump in a folder."""
    found = defaultdict[str, Counter[str]](Counter)
    for row in rows():
        found[Path(row["id"]).parts[0]][row["verdict"]] += 1
    return found


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", paddle_models.ALL)
def test_a_paddle_model_is_recorded_and_trains_as_ever(model: str, task: str, recorded: Recorded) -> None:
    folder, found = recorded
    assert found[f"{model}-{task}"] == losses(model, None)
    names = recorded_names(folder / f"{model}-{task}")
    assert {name.rpartition(".")[0].rpartition(".")[0] for name in names} >= PRESENT[model]


@pytest.mark.parametrize("mode", MODES)
def test_the_tracer_changes_no_training(mode: str, recorded: Recorded) -> None:
    assert recorded[1][f"gpt-{mode}"] == losses("gpt", None)


@pytest.mark.evidence
def test_what_is_captured_of_paddle_models_passes_its_check(recorded: Recorded, pytester: pytest.Pytester) -> None:
    folder, found = recorded
    run = pytester.runpytest_inprocess(f"--probe-dump={folder}", "--probe-out=out", "-pno:xdist")
    # Paddle warns of names that it will remove.
    assert set(run.parseoutcomes()) <= {"passed", "warnings"}
    said = verdicts()
    assert said.keys() == found.keys()
    for name, counts in said.items():
        assert counts.keys() == {"pass"}, name
        assert counts["pass"] > (100 if name.endswith(MODES) else 20), name


def test_a_wrong_device_fails_captured_paddle_models(recorded: Recorded, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(OTHER_DEVICES)
    dumps = [f"--probe-dump={recorded[0] / name}" for name in ("cnn-statistics", "gpt-statistics")]
    apis = ("--probe-api=*conv2d", "--probe-api=*softmax", "-pno:xdist")
    for device, verdict in (("other", "pass"), ("wrong", "error")):
        pytester.runpytest_inprocess(f"--probe-device={device}", f"--probe-out={device}", *dumps, *apis)
        judged = {(row["id"].split(".")[-3], row["verdict"]) for row in rows(device)}
        assert judged == {("conv2d", verdict), ("softmax", verdict)}


def test_calls_between_layers_are_checked(pytester: pytest.Pytester) -> None:
    model, tokens = paddle_models.GPT(), paddle.randint(0, 32, [2, 8])
    with capture("dumps", framework="paddle", level="mix", model=model):
        model(tokens).mean().backward()
    found = pytester.runpytest_inprocess("--probe-dump=dumps", "-pno:xdist")
    assert set(found.parseoutcomes()) == {"passed"}
    found.stdout.fnmatch_lines("*Module*")
