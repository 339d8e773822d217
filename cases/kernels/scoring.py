"""Runs entries through the public checker, and checks the entries themselves without it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import torch
from msgspec import Struct

from cases.kernels.entry import Entry, Function
from cases.kernels.rounding import mapped
from pytest_probe.check import Checker, RunRequest
from pytest_probe.model.verdict import SEVERITY, Outcome
from pytest_probe.registry import Registry
from tests.support.devices import Emulated

CRASH = "crash"


class Found(Struct, frozen=True):
    """The worst verdict on an entry in a dtype on a device, or how it crashed."""

    entry: Entry
    dtype: str
    device: str
    verdict: Outcome | str
    reason: str

    @property
    def expected(self) -> bool:
        return self.verdict == ("pass" if self.entry.healthy else "error")


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def inputs(entry: Entry, dtype: torch.dtype) -> list[Any]:
    """The same for all entries of a task."""
    task = entry.name.split(":", 1)[0]
    seed = zlib.crc32(f"{entry.family}.{task}.{short(dtype)}".encode())
    return entry.inputs(dtype, torch.Generator().manual_seed(seed))


def scored(entries: list[Entry]) -> Iterator[Found]:
    """Every entry in each of its dtypes on each of its devices."""
    registry = Registry.default()
    registry.devices["other"] = Emulated
    for entry in entries:
        for dtype in entry.dtypes:
            for device in entry.devices:
                checker = Checker(RunRequest(device=device, allow=entry.allow), registry)
                yield judged(checker, entry, dtype, device)


def judged(checker: Checker, entry: Entry, dtype: torch.dtype, device: str) -> Found:
    """Of an entry, on the checker's device."""
    torch.manual_seed(zlib.crc32(entry.name.encode()))
    try:
        verdicts = checker.compare(
            entry.kernel,
            entry.reference,
            inputs(entry, dtype),
            api=entry.api,
            backward=entry.backward,
            key=f"{entry.family}.{entry.name}",
            # Kernels of a table that is about numbers; some give float32 where their reference gives 16 bit.
            dtype=False,
        )
    except Exception as error:
        return Found(entry, short(dtype), device, CRASH, f"{type(error).__name__}: {error}")
    worst = max(verdicts, key=lambda verdict: SEVERITY[verdict.verdict])
    if worst.verdict == "error" and " raised " in worst.reason and not worst.outputs:
        return Found(entry, short(dtype), device, CRASH, worst.reason)
    skipped = next((verdict for verdict in verdicts if verdict.verdict == "skip"), None)
    if skipped is not None and worst.verdict == "pass":
        worst = skipped
    return Found(entry, short(dtype), device, worst.verdict, worst.reason)


def troubles(entries: list[Entry]) -> Iterator[str]:
    """What is wrong with the entries themselves, found without the rule."""
    names: set[str] = set()
    for entry in entries:
        label = f"{entry.family}: {entry.name}"
        if label in names:
            yield f"{label}: the name is there twice"
        names.add(label)
        try:
            yield from (f"{label}: {trouble}" for trouble in (_healthy(entry) if entry.healthy else _faulty(entry)))
        except Exception as error:
            yield f"{label}: {type(error).__name__}: {error}"


def _healthy(entry: Entry) -> Iterator[str]:
    """In float64 it is the reference."""
    given = inputs(entry, torch.float64)
    torch.manual_seed(0)
    actual = results(entry.kernel, given, entry.backward)
    expected = results(entry.reference, given, entry.backward)
    if len(actual) != len(expected):
        yield f"gives {len(actual)} tensors, the reference {len(expected)}"
        return
    for number, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        if ours.shape != theirs.shape:
            yield f"output {number} has shape {tuple(ours.shape)}, the reference {tuple(theirs.shape)}"
        elif not entry.loose:
            ours, theirs = ours.double(), theirs.double()
            finite = theirs[theirs.isfinite()]
            floor = entry.close * float(finite.square().mean().sqrt()) if finite.numel() else 0.0
            if not torch.allclose(ours, theirs, rtol=entry.close, atol=max(floor, 1e-300), equal_nan=True):
                worst = float((ours - theirs).abs().nan_to_num(torch.inf).max())
                yield f"output {number} in float64 is off by {worst:.3g}"


def _faulty(entry: Entry) -> Iterator[str]:
    """In each of its dtypes it gives other bits than its healthy version."""
    base = entry.base
    if base is None:
        yield "has no healthy version"
        return
    for dtype in entry.dtypes:
        given = inputs(entry, dtype)
        pairs = []
        for function in (entry.kernel, base):
            torch.manual_seed(0)
            pairs.append(results(function, given, entry.backward))
        same = len(pairs[0]) == len(pairs[1]) and all(
            a.shape == b.shape and a.dtype is b.dtype and torch.equal(a.nan_to_num(1.5), b.nan_to_num(1.5))
            for a, b in zip(*pairs, strict=True)
        )
        if same:
            yield f"is what the healthy version gives in {short(dtype)}"


def results(function: Function, args: list[Any], backward: bool) -> list[torch.Tensor]:
    """Outputs, arguments afterwards, and gradients of the floating arguments for fixed incoming ones."""
    own = [mapped(item, lambda x: x.clone().requires_grad_(backward)) for item in args]
    own = [item.clone() if isinstance(item, torch.Tensor) and not item.is_floating_point() else item for item in own]
    found = function(*own)
    outputs = found if isinstance(found, (tuple, list)) else [found]
    tensors = [item if isinstance(item, torch.Tensor) else torch.tensor(item) for item in outputs]
    leaves = [item for item in own if isinstance(item, torch.Tensor)]
    if not backward:
        return [*tensors, *leaves]
    wanted = [item for item in leaves if item.is_floating_point()]
    graded = [item for item in tensors if item.requires_grad]
    generator = torch.Generator().manual_seed(1)
    incoming = [torch.randn(item.shape, generator=generator, dtype=torch.float64).to(item.dtype) for item in graded]
    gradients = torch.autograd.grad(graded, wanted, incoming, allow_unused=True)
    zeros = [torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(wanted, gradients, strict=True)]
    return [item.detach() for item in (*tensors, *zeros)]
