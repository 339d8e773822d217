"""The whole check with that accelerator as the device under test."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
import torch
from msgspec import Struct

from tests.device import pretend
from tests.device.conftest import ROOT, Train
from tests.support.other_plugins import Ran
from tests.support.running import ran
from tests.support.writing import entries, write_dump

LOADED = """
import sys
sys.path.insert(0, {root!r})
from tests.device import pretend
pretend.load({library!r})
"""
KERNELS = """
import torch
aten = torch.ops.aten
there = torch.library.Library("aten", "IMPL")

def cut(x):
    return (((x.view(torch.int32) + 4096) >> 13) << 13).view(torch.float32)
"""
KERNEL = """
def kernel(*args, **kwargs):
    args = [arg.cpu() if isinstance(arg, torch.Tensor) else arg for arg in args]
    return ({how}).to("pretend")

there.impl({name!r}, kernel, "PrivateUse1")
"""


# Another order of its sum, and in float64 an error that a reference there would have.
SPLIT = "sum(aten.mm(a, b) for a, b in zip(args[0].split(4, 1), args[1].split(4, 0))) * (1 + 1e-6 * {there})".format(
    there="(args[0].dtype is torch.float64)"
)
NARROW = "aten.exp(args[0].float()).to(args[0].dtype)"
OUT = ("-p", "no:cacheprovider", "--probe-out=out")


class Device(Struct, frozen=True):
    """A folder with dumps that the device recorded, and with calls."""

    folder: Path

    def check(self, dumps: str, *options: str, kernels: Mapping[str, str] = MappingProxyType({})) -> Ran:
        """A run with these kernels in the place of the device's own."""
        given = KERNELS + "".join(KERNEL.format(name=name, how=how) for name, how in kernels.items())
        (self.folder / "conftest.py").write_text((self.folder / "loaded.py").read_text() + given)
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        return ran(self.folder, *(f"--probe-dump={name}" for name in dumps.split()), *OUT, *options)


def failed(found: Ran) -> set[str]:
    return {row["id"].rpartition("::")[2].removesuffix(".forward") for row in found.rows if row["verdict"] == "error"}


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory, library: Path, train: Train) -> Device:
    folder = tmp_path_factory.mktemp("check")
    for name, model, task, step in (("gpt", "gpt", "statistics", 0), ("tensors", "gpt", "tensor", 0),
                                    ("cnn", "cnn", "statistics", 1)):  # fmt: skip
        (folder / name).symlink_to(train(model, task).folder / f"step{step}")
    x, y = (torch.randn(32, 32, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    wide = entries("Torch.mm.0", torch.mm, x, y) | entries("Torch.exp.0", torch.exp, x)
    x, y = (torch.rand(40, 30, generator=torch.Generator().manual_seed(seed)).bfloat16() for seed in (0, 1))
    for name, calls in (("wide", wide | entries("Torch.sort.0", torch.sort, x.float())),
                        ("narrow", entries("Torch.xlogy.0", torch.xlogy, x, y))):  # fmt: skip
        (folder / name).mkdir()
        write_dump(folder / name, calls)
    (folder / "loaded.py").write_text(LOADED.format(root=str(ROOT), library=str(library)))
    return Device(folder)


def test_what_it_computed_itself_passes(train: Train, device: Device) -> None:
    """It is the accelerator that torch finds: nobody need name it. torch's CPU kernel of xlogy rounds inside: here it
    passes for a kernel that is as good as that. torch's own fallback to the CPU copies back what a schema says is
    written to, and batch_norm's does not say: its running statistics are not there."""
    found = device.check("gpt tensors narrow cnn")
    assert failed(found) == {"Functional.batch_norm.0"}
    assert {row["verdict"] for row in found.rows} == {"pass", "error"}
    assert len(found.rows) > 2 * len(train("gpt", "statistics").entries()) + 30
    assert f"probe: {pretend.NAME}, " in found.result.stdout.str()


def test_a_kernel_in_another_order_passes_in_a_worker_too(train: Train, device: Device) -> None:
    """What its float64 is wrong for counts for nothing where the reference is on the CPU."""
    found = device.check("gpt wide", "-n1", kernels={"mm": SPLIT, "exp": NARROW})
    found.result.assert_outcomes(passed=len(train("gpt", "statistics").entries()) + 3)


def test_wrong_kernels_and_products_of_rounded_operands(device: Device) -> None:
    kernels = {"mm": "aten.mm(*map(cut, args))", "gelu": "aten.gelu(*args, **kwargs) * (1 + 2**-16)"}
    found = device.check("gpt narrow", kernels=kernels | {"xlogy.Tensor": "aten.xlogy(*args) * 1.05"})
    lines = found.result.stdout.str()
    products = {name for name in failed(found) if "linear" in name}
    assert products
    assert failed(found) - products == {"Functional.gelu.0", "Functional.gelu.1", "Torch.xlogy.0"}
    assert "behaves as TF32 inputs" in lines
    assert "own 16-bit kernel here" not in lines


def test_a_reference_on_a_device_whose_float64_is_wrong(device: Device) -> None:
    """The cases are right, and their reference is there; what float64 is wrong for is skipped, and says why."""
    there = f"--probe-reference-device={pretend.NAME}"
    device.check("wide", there).result.assert_outcomes(passed=3)
    found = device.check("wide", there, "-rs", kernels={"mm": SPLIT, "exp": NARROW})
    assert found.verdicts == {
        "Torch.mm.0.forward": "skip",
        "Torch.exp.0.forward": "skip",
        "Torch.sort.0.forward": "pass",
    }
    said = f"float64 on {pretend.NAME} gives other numbers than on the CPU: output.0"
    assert all(said in row["reason"] for row in found.rows if row["verdict"] == "skip")


COUNTED = """
import sys
sys.path.insert(0, {root!r})
import torch
from tests.device import pretend
pretend.load({library!r})
torch.set_num_threads(1)
from pytest_probe.check import Checker, RunRequest
from pytest_probe.registry import Registry

CALLS = torch.nn.functional.gelu, lambda x: torch.softmax(x, -1)
x = torch.randn(2**13, 2**9)
checker = Checker(RunRequest(device="pretend", reference_device="pretend"), Registry.default())
for call in CALLS:
    for backward in (False, True):
        before, sent = pretend.received(), pretend.sent()
        found = checker.compare(call, call, [x], key="call", backward=backward)
        received, sent = pretend.received() - before, pretend.sent() - sent
        print(found[-1].verdict, received / x.numel(), sent / x.numel())
"""


def test_bytes_that_come_back_of_a_reference_there(library: Path) -> None:
    """Of a large call numbers, the drawn elements that the device gave, which are judged on the CPU, and which ones its
    bounds leave open."""
    program = COUNTED.format(root=str(ROOT), library=str(library))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=240)
    lines = [line.split() for line in done.stdout.splitlines()]
    for (forward, received, sent), (backward, *both) in (lines[:2], lines[2:]):
        assert (forward, backward) == ("pass", "pass")
        assert float(received) < 1
        # The argument once, the drawn places, and a piece's reference.
        assert float(sent) < 4 + 2
        # Of the forward and the backward together, with the incoming gradient for both sides.
        assert float(both[0]) < 2
        assert float(both[1]) < 2 * (4 + 2) + 8
