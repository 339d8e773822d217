"""The whole check with that accelerator as the device under test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.device import pretend
from tests.device.conftest import ROOT, Train
from tests.support.writing import entries, write_dump

LOADED = """
import sys
sys.path.insert(0, {root!r})
from tests.device import pretend
pretend.load({library!r})
"""
KERNEL = """
import torch
aten = torch.ops.aten
there = torch.library.Library("aten", "IMPL")

def cut(x):
    return (((x.view(torch.int32) + 4096) >> 13) << 13).view(torch.float32)

def kernel(*args, **kwargs):
    args = [arg.cpu() if isinstance(arg, torch.Tensor) else arg for arg in args]
    return ({how}).to("pretend")

there.impl({name!r}, kernel, "PrivateUse1")
"""


@pytest.fixture
def device(pytester: pytest.Pytester, library: Path) -> pytest.Pytester:
    pytester.makeconftest(LOADED.format(root=str(ROOT), library=str(library)))
    return pytester


def with_kernel(device: pytest.Pytester, name: str, how: str) -> None:
    path = device.path / "conftest.py"
    path.write_text(path.read_text() + KERNEL.format(name=name, how=how))


def check(device: pytest.Pytester, folder: Path, *options: str) -> tuple[dict[str, int], list[str], str]:
    """Outcomes, the items that failed, and what was printed."""
    result = device.runpytest_subprocess(f"--probe-dump={folder}", "-rf", *options)
    failed = [line.split("::")[-1].split(" ")[0] for line in result.outlines if line.startswith("FAILED")]
    return result.parseoutcomes(), sorted(failed), "\n".join(result.outlines)


@pytest.mark.parametrize(
    ("task", "parallel"),
    [("statistics", []), ("tensor", []), ("statistics", ["-n", "1"])],
    ids=["statistics", "tensor", "parallel"],
)
def test_what_it_computed_itself_passes(train: Train, device: pytest.Pytester, task: str, parallel: list[str]) -> None:
    """It is the accelerator that torch finds: nobody need name it."""
    trained = train("gpt", task)
    outcomes, failed, lines = check(device, trained.folder / "step0", *parallel)
    assert (outcomes, failed) == ({"passed": len(trained.entries())}, [])
    assert f"probe: {pretend.NAME}, " in lines


def test_kernels_of_its_own(train: Train, device: pytest.Pytester) -> None:
    with_kernel(device, "mm", "sum(aten.mm(a, b) for a, b in zip(args[0].split(4, 1), args[1].split(4, 0)))")
    with_kernel(device, "gelu", "aten.gelu(*args, **kwargs) * (1 + 2**-16)")
    failed = check(device, train("gpt", "statistics").folder / "step0")[1]
    assert failed == ["Functional.gelu.0.forward", "Functional.gelu.1.forward"]


def test_products_of_rounded_operands(train: Train, device: pytest.Pytester) -> None:
    with_kernel(device, "mm", "aten.mm(*map(cut, args))")
    _, failed, lines = check(device, train("gpt", "statistics").folder / "step0")
    assert {name.split(".")[1] for name in failed} == {"linear"}
    assert "behaves as TF32 inputs" in lines


def test_nothing_of_the_cpus_own_rounding_counts(device: pytest.Pytester) -> None:
    """torch's CPU kernel of xlogy rounds inside: here it passes for a kernel that is as good as that, and a fault does
    not."""
    x, y = (torch.rand(40, 30, generator=torch.Generator().manual_seed(seed)).bfloat16() for seed in (0, 1))
    dump = write_dump(device.path, entries("Torch.xlogy.0", torch.xlogy, x, y))
    assert check(device, dump)[0] == {"passed": 1}
    with_kernel(device, "xlogy.Tensor", "aten.xlogy(*args) * 1.05")
    outcomes, _, lines = check(device, dump)
    assert (outcomes, "own 16-bit kernel here" in lines) == ({"failed": 1}, False)


def test_running_statistics_that_a_fallback_forgets(train: Train, device: pytest.Pytester) -> None:
    """torch's own fallback to the CPU copies back what a schema says is written to, and batch_norm's does not say."""
    outcomes, failed, _ = check(device, train("cnn", "statistics").folder / "step1")
    assert failed == ["Functional.batch_norm.0.forward"]
    assert outcomes["passed"] > 30


WRONG_FLOAT64 = {
    "mm": "aten.mm(*args) * (1 + 1e-6 * (args[0].dtype is torch.float64))",
    "exp": "aten.exp(args[0].float()).to(args[0].dtype)",
}


@pytest.mark.parametrize("name", WRONG_FLOAT64)
def test_a_reference_on_a_device_whose_float64_is_wrong(name: str, device: pytest.Pytester) -> None:
    """The cases are right, and their reference is there; what float64 is wrong for is skipped, and says why."""
    x, y = (torch.randn(32, 32, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    calls = {
        **entries("Torch.mm.0", torch.mm, x, y),
        **entries("Torch.exp.0", torch.exp, x),
        **entries("Torch.sort.0", torch.sort, x),
    }
    dump, there = write_dump(device.path, calls), f"--probe-reference-device={pretend.NAME}"
    assert check(device, dump, there)[0] == {"passed": 3}
    with_kernel(device, name, WRONG_FLOAT64[name])
    outcomes, _, lines = check(device, dump, there, "-rs")
    assert outcomes == {"passed": 2, "skipped": 1}
    assert f"float64 on {pretend.NAME} gives other numbers than on the CPU: output.0" in lines
    # Its float32 is right.
    assert check(device, dump)[0] == {"passed": 3}


COUNTED = """
import sys
sys.path.insert(0, {root!r})
import torch
from tests.device import pretend
pretend.load({library!r})
torch.set_num_threads(1)
from pytest_probe.check import Checker, RunRequest
from pytest_probe.registry import Registry

CALLS = {{"gelu": torch.nn.functional.gelu, "softmax": lambda x: torch.softmax(x, -1)}}
x = torch.randn(2**13, 2**9)
checker = Checker(RunRequest(device="pretend", reference_device="pretend"), Registry.default())
for backward in (False, True):
    before, sent = pretend.received(), pretend.sent()
    found = checker.compare(*2 * (CALLS[{name!r}],), [x], key="call", backward=backward)
    received, sent = pretend.received() - before, pretend.sent() - sent
    print(found[-1].verdict, received / x.numel(), sent / x.numel())
"""


@pytest.mark.parametrize("name", ["gelu", "softmax"])
def test_bytes_that_come_back_of_a_reference_there(name: str, library: Path) -> None:
    """Of a large call numbers, the drawn elements that the device gave, which are judged on the CPU, and which ones its
    bounds leave open."""
    program = COUNTED.format(root=str(ROOT), library=str(library), name=name)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    (forward, received, sent), (backward, *both) = (line.split() for line in done.stdout.splitlines())
    assert (forward, backward) == ("pass", "pass")
    assert float(received) < 1
    # The argument once, the drawn places, and a piece's reference.
    assert float(sent) < 4 + 2
    # Of the forward and the backward together, with the incoming gradient for both sides.
    assert float(both[0]) < 2
    assert float(both[1]) < 2 * (4 + 2) + 8
