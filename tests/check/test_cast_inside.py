"""Calls of torch's that an autocast casts for inside, so that a result of float32 has gone through 16 bit: a warning
that names the step. A GPU's autocast has no rule for cross_entropy, a CPU's has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.check import Case, CaseOutcome, Checker, RunRequest, judging
from pytest_probe.frameworks.torch.autocast import Composing
from pytest_probe.model.run import Device
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.support.cuda_kernels import NARROW, Tensor
from tests.support.devices import Emulated
from tests.support.writing import entries, write_dump

Change = Callable[[Tensor], Tensor]
DTYPES = pytest.mark.parametrize("dtype", ["bfloat16", "float16"])


@pytest.fixture(autouse=True)
def no_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No verdict hangs on the cause of an error, which takes most of the time."""
    monkeypatch.setattr(judging, "diagnose", lambda *_: None)


class LogSoftmax(torch.autograd.Function):
    """In float32, rounded once, as a kernel of a GPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        found = torch.log_softmax(x.float(), 1).to(x.dtype)
        ctx.save_for_backward(found)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (found,), wide = ctx.saved_tensors, grad.float()
        return (wide - found.float().exp() * wide.sum(1, keepdim=True)).to(found.dtype)


class Casting(Emulated):
    """A device whose autocast casts inside cross_entropy. torch has autocasts for devices of its own alone: that of the
    CPU tells that one is on."""

    def __init__(self, name: str, before: Change, after: Change) -> None:
        super().__init__(name)
        self.before, self.after = before, after

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if args[0].dtype not in NARROW or not torch.is_autocast_enabled("cpu"):
            return function(*args, **kwargs)
        return self.after(F.nll_loss(LogSoftmax.apply(self.before(args[0])).float(), args[1]))


def itself(x: Tensor) -> Tensor:
    return x


def verdicts(
    folder: Path, dtype: str, shape: tuple[int, int], before: Change = itself, after: Change = itself, **how: Any
) -> list[Verdict]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(getattr(torch, dtype)).requires_grad_()
    labels = torch.randint(0, shape[1], shape[:1], generator=generator)
    data = entries("Functional.cross_entropy.0", lambda x, y: F.cross_entropy(x.float(), y), x, labels, backward=True)
    data["Functional.cross_entropy.0.forward"]["probe"] = {"autocast": {how.get("kind", "cuda"): dtype}}
    dump = read_dump(write_dump(folder, data, probe={}))
    devices: dict[str, Callable[[str], Device]] = {"gpu": lambda name: Casting(name, before, after)}
    checker = Checker(RunRequest(device="gpu"), Registry(devices=devices, calls=how.get("calls", {})))
    kept: CaseOutcome | None = None
    found = []
    for direction in dump.records[0].directions:
        kept = checker.run(Case(dump, dump.records[0], direction), kept)
        found.append(kept.verdict)
    return found


@DTYPES
@pytest.mark.parametrize("shape", [(4, 3), (1, 10), (7, 31)], ids=str)
def test_the_step_that_rounds_is_named(tmp_path: Path, dtype: str, shape: tuple[int, int]) -> None:
    found = verdicts(tmp_path, dtype, shape)
    assert [each.verdict for each in found] == ["warning", "warning"]
    words = f"under autocast the framework's own call computes log_softmax in {dtype} inside"
    assert all(words in each.reason for each in found)


FAULTS: dict[str, tuple[Change, Change]] = {
    "a factor of the loss": (itself, lambda loss: loss * 1.01),
    "a factor of the logits": (lambda x: x * 1.02, itself),
    "logits exchanged": (lambda x: x.roll(1, 1), itself),
    "a sign": (itself, lambda loss: -loss),
    "a logit left out": (lambda x: x.index_fill(1, torch.tensor([0]), -torch.inf), itself),
}


@DTYPES
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_beside_such_a_step_is_an_error(tmp_path: Path, dtype: str, fault: str) -> None:
    assert [each.verdict for each in verdicts(tmp_path, dtype, (7, 31), *FAULTS[fault])] == ["error", "error"]


def test_what_the_recorded_device_casts_for_itself_is_an_error(tmp_path: Path) -> None:
    assert [each.verdict for each in verdicts(tmp_path, "bfloat16", (7, 31), kind="cpu")] == ["error", "error"]


def test_a_users_function_gets_no_warning(tmp_path: Path) -> None:
    def mine(x: Tensor, labels: Tensor) -> Tensor:
        return F.nll_loss(LogSoftmax.apply(x).float(), labels)

    forward, backward = verdicts(tmp_path, "bfloat16", (7, 31), calls={"Functional.cross_entropy": mine})
    assert forward.verdict == "error"
    assert "under autocast" not in backward.reason


@pytest.mark.parametrize(
    ("kind", "function", "shapes", "narrow"),
    [
        ("cuda", F.cross_entropy, [(2, 3), (2, 3)], ["log_softmax", "mul"]),
        ("cuda", lambda x: F.softmax(x, -1), [(2, 3)], []),
        ("xpu", F.linear, [(2, 3), (4, 3)], ["mm"]),
        ("cuda", lambda x: F.batch_norm(x, None, None, training=True), [(5, 3)], ["native_batch_norm"]),
    ],
    ids=["cross_entropy", "softmax", "linear", "batch_norm"],
)
def test_kernels_that_give_16_bit(kind: str, function: Any, shapes: Any, narrow: list[str]) -> None:
    before = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    device = Composing(kind, "bfloat16")
    tensors = [torch.randn(shape, generator=torch.Generator().manual_seed(0)) for shape in shapes]
    tensors = [tensor if function is F.linear else tensor.bfloat16() for tensor in tensors]
    result = device.call(function, [tensor.requires_grad_() for tensor in tensors], {})
    assert [*dict.fromkeys(device.narrow)] == narrow
    result.float().sum().backward()
    assert all(tensor.grad is not None and tensor.grad.device.type == "cpu" for tensor in tensors)
    assert (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) == before
