"""A capture on an accelerator whose memory the host cannot read."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_probe.capture.snapshot import Tree
from tests.device.conftest import ROOT, Train
from tests.device.train import MODELS


@pytest.mark.parametrize("model", MODELS)
def test_statistics_wait_for_no_stream_of_the_program(train: Train, model: str) -> None:
    plain, recorded = train(model, "nothing"), train(model, "statistics")
    assert recorded.losses == plain.losses
    assert plain.waits == [[0, 0], [0, 0]]
    assert recorded.waits == [[0, 0], [0, 0]]
    assert recorded.copies == [1, 1]


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


def ran(library: Path, program: str) -> str:
    """What a program prints that has the device."""
    head = f"import torch\nfrom tests.device import pretend\npretend.load({str(library)!r})\n"
    command = [sys.executable, "-c", head + program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_blocks_are_counted_where_they_are_and_nothing_waits(library: Path, tmp_path: Path) -> None:
    program = f"""
from pytest_probe import capture
from pytest_probe.capture.torch.scaled import of_operands
from tests.support import scaled

def there(value):
    if isinstance(value, torch.Tensor):
        data = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="pretend")
        narrow = value.element_size() == 1  # no kernel copies all of these
        (data.view(torch.uint8) if narrow else data).copy_(value.view(torch.uint8) if narrow else value)
        return data
    return [there(each) for each in value] if isinstance(value, list) else value

calls = [scaled.product(name, 3, (33, 272, 24)) for name in ("1x128, 128x128", "nvfp4, two levels")]
calls = [(call.api, call.args) for call in calls] + [scaled.grouped("mxfp8", 2)[:2]]
for api, args in calls:
    here, on_device = of_operands(api, args, {{}}), there(args)
    before = pretend.waits()
    found = of_operands(api, on_device, {{}})
    assert pretend.waits() == before
    assert {{place: (each.numbers.tolist(), each.count) for place, each in here.items()}} == {{
        place: (each.numbers.tolist(), each.count) for place, each in found.items()}}
row_wise = scaled.inferred(scaled.product("row-wise", 1, (16, 32, 16))).args
on_device = there(row_wise)
with capture({str(tmp_path)!r}, task="statistics"):
    before = pretend.waits()
    torch._scaled_mm(*on_device)
    assert pretend.waits() == before
"""
    ran(library, program)
    (path,) = tmp_path.glob("step0/*/dump.json")
    inputs = json.loads(path.read_text())["data"]["Torch._scaled_mm.0.forward"]["input_args"]
    assert [each["blocks"]["blocks"] for each in inputs[:2]] == [16, 16]
    assert all(each["blocks"]["clipped_in_a_block"] >= 1 / 32 for each in inputs[:2])


def test_whole_tensors_are_copied_and_nothing_waits(library: Path, tmp_path: Path) -> None:
    program = f"""
from pytest_probe import capture
x = torch.arange(12, dtype=torch.float32).reshape(3, 4).to("pretend")
for way in ({{"task": "tensor"}}, {{"summary_mode": "md5"}}):
    with capture({str(tmp_path)!r} + "/" + "".join(way.values()), **way):
        before = pretend.waits(), pretend.copies()
        y = x.T + 1
        y.mul_(2)
        after = pretend.waits(), pretend.copies()
    assert after[0] == before[0], after
    assert after[1] - before[1] >= 4, after
"""
    ran(library, program)
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    wanted = {"Tensor.mul_": x.T + 1, "Tensor.__add__": x.T}
    for entries in (tmp_path / "tensor", tmp_path / "md5"):
        (path,) = entries.glob("step0/*/dump.json")
        data = json.loads(path.read_text())["data"]
        for name in ("Tensor.__add__.0.forward", "Tensor.mul_.0.forward"):
            given, came = data[name]["input_args"][0], wanted[name[:-10]].contiguous()
            if entries.name == "tensor":
                assert torch.load(path.parent / "dump_tensor_data" / given["data_name"]).equal(came)
            else:
                assert given["md5"] == f"{zlib.crc32(came.numpy().tobytes()):08x}"


def test_an_overflow_on_the_device(library: Path, tmp_path: Path) -> None:
    program = f"""
from pytest_probe import PrecisionDebugger
from pytest_probe.errors import OverflowFound
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
    print(error, flush=True)
    import os
    os._exit(0)
"""
    assert "Tensor.sqrt.0.backward" in ran(library, program)
    (gradient,) = tmp_path.glob("step0/*/dump_tensor_data/Tensor.sqrt.0.backward.output.0.pt")
    assert torch.load(gradient).tolist() == [torch.inf] * 3


PROGRAM = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import json, sys
import torch
from pytest_probe import PrecisionDebugger
from pytest_probe.capture.torch import device_kernel, device_statistics, values
from pytest_probe.capture.torch.device_statistics import DeviceStatistics
from tests.device import pretend

pretend.load(sys.argv[1])
pretend.open_memory()
device_statistics._TRITONS = {"pretend"}
of_capture, counted = {"launches": 0}, []

class Launched(DeviceStatistics):
    def _run(self, *args):
        of_capture["launches"] += 1
        super()._run(*args)

    def count(self, *args):
        counted.append(args[0])
        super().count(*args)

values.DeviceStatistics = Launched

def model():
    layers = [layer for _ in range(2) for layer in (torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.GELU())]
    net, given = torch.nn.Sequential(*layers), torch.randn(4, 8)
    optimizer = torch.optim.Adam(net.parameters(), 0.1, foreach=sys.argv[3] == "lists")

    def step():
        optimizer.zero_grad()
        loss = net(given).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step

def losses(folder):
    torch.manual_seed(0)
    found, launches = [], []
    debugger = PrecisionDebugger(dump_path=folder, task="statistics") if folder else None
    with torch.device("pretend"):
        step = model()
        for _ in range(2):
            before = pretend.launches(), pretend.waits(), pretend.copies(), of_capture["launches"], len(counted)
            if debugger:
                debugger.start()
            found.append(step().detach())
            if debugger:
                debugger.stop()
                debugger.step()
            after = pretend.launches(), pretend.waits(), pretend.copies(), of_capture["launches"], len(counted)
            launches.append([b - a for a, b in zip(before, after)])
    return [loss.item() for loss in found], launches

plain, recorded = losses(None), losses(sys.argv[2])
print(json.dumps([plain, recorded]), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(("optimizer", "most"), [("tensors", 1.0), ("lists", 0.7)])
def test_a_tensor_costs_one_launch_at_most_and_a_step_one_copy(
    optimizer: str, most: float, library: Path, tmp_path: Path
) -> None:
    """By Triton's kernels, which its interpreter runs here."""
    pytest.importorskip("triton")
    command = [sys.executable, "-c", PROGRAM, str(library), str(tmp_path), optimizer]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (losses, plain), (recorded_losses, recorded) = json.loads(done.stdout)
    assert recorded_losses == losses
    for (ops, _, _, _, _), (all_ops, waits, copies, kernels, tensors) in zip(plain, recorded, strict=True):
        assert tensors > 50
        # What allocates the rows, and what a tensor is counted with.
        assert (all_ops - ops) + kernels <= 1.2 * tensors
        assert kernels <= most * tensors
        assert (waits, copies) == (0, 1)


def test_a_tensor_is_counted_again_where_it_may_have_changed(library: Path, tmp_path: Path) -> None:
    program = f"""
from types import SimpleNamespace
from pytest_probe import capture
from pytest_probe.capture.torch import device_statistics, values
counted = []

class Counted(values.DeviceStatistics):
    def __init__(self, device, listener):
        super().__init__(device, listener)
        device_statistics._listeners.add(listener)
        self.sees_others = True

    def count(self, tensor, *args):
        counted.append(tensor.shape)
        super().count(tensor, *args)

values.DeviceStatistics = Counted

def there(value, size):
    return torch.full((size,), value, device="pretend")

with capture({str(tmp_path)!r}, task="statistics"):
    with torch.inference_mode():  # no version tells of a write
        y = there(1.0, 7)
        y.sin()
        y.fill_(3.0)
        y.sin()
    x = there(1.0, 5)
    x.relu()
    x.relu()
    x.view(5, 1).relu()
    x.add_(1.0)  # another version
    x.relu()
    x.detach().mul_(5.0)  # through another tensor of the same memory
    x.relu()
    for value in range(20):  # memory that is freed, and taken again
        there(float(value), 9).abs()
    z = there(1.0, 11)
    z.cos()
    with torch.autograd._unsafe_preserve_version_counter(z):
        z.fill_(6.0)
    # As a kernel in Triton's language would, which torch does not see.
    device_statistics._started(SimpleNamespace(get=lambda: {{"name": "theirs"}}))
    z.cos()
assert counted.count((9,)) == 20 + 20, counted
assert counted.count((5,)) == 7, counted  # one for each write
"""
    ran(library, program)
    (path,) = tmp_path.glob("step0/*/dump.json")
    entries = json.loads(path.read_text())["data"]

    def given(name: str, count: int) -> list[float]:
        return [entries[f"{name}.{number}.forward"]["input_args"][0]["Max"] for number in range(count)]

    assert given("Tensor.relu", 5) == [1.0, 1.0, 1.0, 2.0, 10.0]
    assert given("Tensor.abs", 20) == [float(value) for value in range(20)]
    assert given("Tensor.sin", 2) == [1.0, 3.0]
    assert given("Tensor.cos", 2) == [1.0, 6.0]
