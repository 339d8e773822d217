"""Capture a program of Paddle's, then check: what was recorded is healthy on the device it ran on, and a planted fault
is found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_probe import PrecisionDebugger, capture, frameworks

if frameworks.unavailable("paddle"):
    pytest.skip("paddle is not installed", allow_module_level=True)

import paddle

from pytest_probe.paddle import Tracer
from tests.support import paddle_models

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


def apis(folder: Path) -> set[str]:
    (path,) = folder.glob("step1/*/dump.json")
    return {name.rpartition(".")[0].rpartition(".")[0] for name in json.loads(path.read_text())["data"]}


@pytest.mark.evidence
@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("model", paddle_models.ALL)
def test_a_captured_paddle_model_passes_its_check(model: str, task: str, pytester: pytest.Pytester) -> None:
    folder = pytester.path / "dumps"
    assert losses(model, folder, task) == losses(model, None)
    assert apis(folder) >= PRESENT[model]
    outcomes = pytester.runpytest_inprocess("--probe-dump=dumps", "-pno:xdist").parseoutcomes()
    # Paddle warns of names that it will remove.
    assert set(outcomes) <= {"passed", "warnings"}, outcomes
    assert outcomes["passed"] > 20


@pytest.mark.parametrize(("model", "api"), [("cnn", "*conv2d"), ("gpt", "*adamw_"), ("gpt", "*softmax")])
def test_a_wrong_device_fails_a_captured_paddle_model(model: str, api: str, pytester: pytest.Pytester) -> None:
    losses(model, pytester.path / "dumps")
    pytester.makeconftest(OTHER_DEVICES)
    for device in ("other", "wrong"):
        run = pytester.runpytest_inprocess(
            "--probe-dump=dumps", f"--probe-device={device}", f"--probe-api={api}", "-pno:xdist"
        )
        assert set(run.parseoutcomes()) == {"passed" if device == "other" else "failed"}


def test_calls_between_layers_are_checked(pytester: pytest.Pytester) -> None:
    model, tokens = paddle_models.GPT(), paddle.randint(0, 32, [2, 8])
    with capture("dumps", framework="paddle", level="mix", model=model):
        model(tokens).mean().backward()
    found = pytester.runpytest_inprocess("--probe-dump=dumps", "-pno:xdist")
    assert set(found.parseoutcomes()) == {"passed"}
    found.stdout.fnmatch_lines("*Module*")


@pytest.mark.parametrize("mode", ["random", "real_data"])
def test_the_tracer_writes_paddleapex_files_that_pass(mode: str, pytester: pytest.Pytester) -> None:
    config = pytester.path / "tool_config.yaml"
    config.write_text(f"dump_root_path: {pytester.path / 'dumps'}\ndump_mode: {mode}\ntarget_step: [1]\n")
    paddle.seed(7)
    step, tracer = paddle_models.ALL["gpt"](), Tracer(config)
    found = []
    for _ in range(3):
        tracer.start()
        found.append(float(step()))
        tracer.stop()
    assert found == losses("gpt", None)
    outcomes = pytester.runpytest_inprocess("--probe-dump=dumps", "-pno:xdist").parseoutcomes()
    assert set(outcomes) == {"passed"}, outcomes
    assert outcomes["passed"] > 100


def test_a_paddle_dump_passes_with_two_workers(pytester: pytest.Pytester) -> None:
    losses("cnn", pytester.path / "dumps")
    outcomes = pytester.runpytest("--probe-dump=dumps", "-n", "2").parseoutcomes()
    assert set(outcomes) == {"passed"}
