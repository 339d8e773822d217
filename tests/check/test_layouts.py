"""Incoming gradients lie in memory as they did in the program: a kernel that forgets that is found, and so is one that
refuses what the program ran."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe import capture
from pytest_probe.check import Case, Checker, RunRequest
from pytest_probe.model.dump import Dump
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.check.conftest import normal
from tests.support.devices import Emulated
from tests.support.gradients import with_gradient

Kernel = Callable[[torch.Tensor], torch.Tensor]
REFUSED = "grad is not correctly aligned (strideH)"


def memory(gradient: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=gradient.dtype).set_(gradient.untyped_storage())


def right(gradient: torch.Tensor) -> torch.Tensor:
    return gradient


def without_strides(gradient: torch.Tensor) -> torch.Tensor:
    """Reads as many elements as there are, one after the other."""
    found = memory(gradient)[gradient.storage_offset() :][: gradient.numel()]
    return F.pad(found, (0, gradient.numel() - found.numel())).reshape(gradient.shape)


def without_offset(gradient: torch.Tensor) -> torch.Tensor:
    return memory(gradient).as_strided(gradient.shape, gradient.stride(), 0)


def aligned(gradient: torch.Tensor) -> torch.Tensor:
    if gradient.data_ptr() % 16 or any(stride % 4 for stride in gradient.stride()[:-1]):
        raise RuntimeError(REFUSED)
    return gradient


class Faulty(Emulated):
    """A device whose backward has this kernel."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__("other")
        self.kernel = kernel

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = function(*args, **kwargs)
        return with_gradient(result, self.kernel) if result.requires_grad else result


# How the gradient of gelu's result lies: strides, elements before the first one, and which kernels give other numbers.
LAYOUTS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[Kernel, ...]]] = {
    "in order": (lambda y: (y * normal(8, 6)).sum(), ()),
    "expanded": (lambda y: y.sum(), (without_strides,)),
    "rows expanded": (lambda y: (y.sum(0) * normal(6)).sum(), (without_strides,)),
    "transposed": (lambda y: (y.t().reshape(-1) * normal(48)).sum(), (without_strides,)),
    "a part of rows": (
        lambda y: (torch.cat([normal(8, 3), y], 1) * normal(8, 9)).sum(),
        (without_strides, without_offset),
    ),
    "beginning later": (lambda y: (torch.cat([normal(1), y.view(-1)]) * normal(49)).sum(), (without_offset,)),
}


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Dump]:
    """The dump of a program's forward and backward."""

    def made(
        program: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype = torch.float32, task: str = "statistics"
    ) -> Dump:
        x, folder = normal(8, 6).to(dtype).requires_grad_(), tmp_path / str(dtype)
        with capture(folder, task=task):
            program(x).backward()
        (path,) = folder.glob("step0/*/dump.json")
        return read_dump(path)

    return made


def check(dump: Dump, kernel: Kernel, name: str = "other", dtype: str | None = None) -> Verdict:
    """The verdict on the backward of a call, whose kernel is the device's own or a function of the user's."""
    registry = Registry.default()
    registry.devices["other"] = lambda _: Faulty(kernel)
    if name == "cpu":
        registry.calls["Functional.gelu"] = lambda x: with_gradient(F.gelu(x), kernel)
    (record,) = (record for record in dump.records if record.api == "gelu")
    return Checker(RunRequest(device=name), registry).check(Case(dump, record, "backward", dtype))


@pytest.mark.parametrize(("name", "task"), [("other", "statistics"), ("cpu", "tensor")])
@pytest.mark.parametrize("kernel", [right, without_strides, without_offset])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_kernel_that_forgets_how_a_gradient_lies_is_found(
    layout: str, kernel: Kernel, name: str, task: str, recorded: Callable[..., Dump]
) -> None:
    program, wrong = LAYOUTS[layout]
    for dtype in (torch.float32, *((torch.bfloat16, torch.float64) if layout == "expanded" else ())):
        verdict = check(recorded(lambda x: program(F.gelu(x)), dtype, task=task), kernel, name)
        assert verdict.verdict == ("error" if kernel in wrong else "pass"), verdict.reason


def without_layouts(dump: Dump) -> Dump:
    """As most tools write dumps."""
    path = dump.path.with_name("other.json")
    text = re.sub(r'"(stride|address)":', r'"other_\1":', dump.path.read_text())
    path.write_text(text)
    return read_dump(path)


@pytest.mark.parametrize(
    ("layout", "lay"),
    [
        ("transposed", "of stride [1, 8]"),
        ("beginning later", "4 bytes after a multiple of 64"),
        ("a part of rows", "of stride [9, 1] 12 bytes after a multiple of 64"),
    ],
)
def test_what_the_program_ran_a_device_must_not_refuse(layout: str, lay: str, recorded: Callable[..., Dump]) -> None:
    shape = (-1,) if layout == "beginning later" else (8, 6)
    verdict = check(recorded(lambda x: LAYOUTS[layout][0](F.gelu(x.view(shape)))), aligned)
    assert (verdict.verdict, verdict.kind) == ("error", "")
    said = f"other raised RuntimeError: {REFUSED}; the program ran it with grad.0 {lay}"
    assert verdict.reason.splitlines()[0] == said


def test_what_no_dump_tells_a_device_may_refuse(recorded: Callable[..., Dump]) -> None:
    def refusing(gradient: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(REFUSED)

    dump = recorded(lambda x: (F.gelu(x) * normal(8, 6)).sum())
    assert check(dump, refusing).reason.splitlines()[0].endswith("; the program ran it with all tensors in order")
    silent = check(without_layouts(dump), refusing)
    assert (silent.verdict, silent.kind) == ("skip", "layout not recorded")
    assert silent.reason.endswith(f"other raised RuntimeError: {REFUSED}; the dump does not say how the tensors lay")
    narrow = check(dump, refusing, dtype="bfloat16")
    assert (narrow.verdict, narrow.kind) == ("skip", "layout not recorded")
    assert narrow.reason.endswith("; the program had another dtype")


@pytest.mark.parametrize("words", ["index out of range", "CUDA error: misaligned address", ""])
def test_an_error_that_is_not_about_layouts_stays_one(words: str, recorded: Callable[..., Dump]) -> None:
    def broken(gradient: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(words)

    verdict = check(without_layouts(recorded(lambda x: (F.gelu(x) * normal(8, 6)).sum())), broken)
    assert (verdict.verdict, verdict.kind) == ("error", "")


def test_what_is_saved_lies_as_it_lay(recorded: Callable[..., Dump], tmp_path: Path) -> None:
    dump = recorded(lambda x: (F.gelu(x.t()).sum(1) * normal(6)).sum())
    registry = Registry.default()
    registry.devices["other"] = lambda _: Faulty(lambda gradient: gradient * 2)
    (record,) = (record for record in dump.records if record.api == "gelu")
    Checker(RunRequest(device="other"), registry).run(Case(dump, record, "backward", None)).save(tmp_path / "case.pt")
    saved = torch.load(tmp_path / "case.pt", weights_only=True)
    strides = {name: tensor.stride() for name, tensor in saved.items()}
    assert strides["input.0"] == (1, 6)
    assert strides["seed.output.0"] == (1, 0)
    assert strides["expected.grad.input.0"] == (8, 1)
