"""A capture on an accelerator whose memory the host cannot read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_probe.capture.snapshot import Tree
from tests.device.conftest import ROOT, Train
from tests.device.train import MODELS


@pytest.mark.parametrize("model", MODELS)
def test_statistics_wait_for_the_device_once_when_the_step_ends(train: Train, model: str) -> None:
    plain, recorded = train(model, "nothing"), train(model, "statistics")
    assert recorded.losses == plain.losses
    assert plain.waits == [[0, 0], [0, 0]]
    # For what was computed on the program's streams, and the copy of all the numbers.
    assert recorded.waits == [[0, 2], [0, 2]]


@pytest.mark.parametrize("model", MODELS)
def test_no_values_no_waiting(train: Train, model: str) -> None:
    assert train(model, "structure").waits == [[0, 0], [0, 0]]


@pytest.mark.parametrize("model", MODELS)
def test_the_same_gradients_are_recorded_as_on_the_cpu(train: Train, model: str) -> None:
    """Though a thread of the device's own runs the backward."""
    here, there = (train(model, "structure", device).entries() for device in ("cpu", "pretend"))
    gradients = {name for name in here if name.endswith(".backward")}
    assert len(gradients) > 5
    assert gradients == {name for name in there if name.endswith(".backward")}


def tensors(tree: Tree) -> list[dict[str, Any]]:
    if isinstance(tree, dict):
        return [tree] if "data_name" in tree else [one for item in tree.values() for one in tensors(item)]
    return [one for item in tree for one in tensors(item)] if isinstance(tree, list) else []


def approx(value: float) -> Any:
    return pytest.approx(value, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("model", MODELS)
def test_statistics_are_those_of_the_values(train: Train, model: str) -> None:
    trained = train(model, "tensor")
    (data,) = trained.folder.glob("step0/*/dump_tensor_data")
    seen = tensors(trained.entries())
    assert len(seen) > 50
    for one in seen:
        values = torch.load(data / one["data_name"])
        assert (str(values.dtype), list(values.shape)) == (one["dtype"], one["shape"])
        if values.dtype is torch.bool:
            assert (one["Max"], one["Min"]) == (bool(values.any()), bool(values.all()))
            continue
        wide = (values.abs() if values.is_complex() else values).double()
        assert (one["Max"], one["Min"]) == (wide.max().item(), wide.min().item())
        assert (one["Mean"], one["Norm"]) == (approx(wide.mean().item()), approx(wide.norm().item()))


def test_an_overflow_on_the_device(library: Path, tmp_path: Path) -> None:
    program = f"""
import torch
from pytest_probe import PrecisionDebugger
from pytest_probe.errors import OverflowFound
from tests.device import pretend
pretend.load({str(library)!r})
x = torch.zeros(3, requires_grad=True, device="pretend")
debugger = PrecisionDebugger(dump_path={str(tmp_path)!r}, task="overflow_check")
debugger.start()
y = x * 2
before = pretend.waits()
y = y + 1
assert pretend.waits() - before == 1
try:
    (y - 1).sqrt().sum().backward()
except OverflowFound as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "Tensor.sqrt.0.backward" in done.stdout, done.stderr
    (gradient,) = tmp_path.glob("step0/*/dump_tensor_data/Tensor.sqrt.0.backward.output.0.pt")
    assert torch.load(gradient).tolist() == [torch.inf] * 3
