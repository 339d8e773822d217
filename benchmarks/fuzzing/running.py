"""Searches by the table, on a device that is healthy or has a fault."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis.core

from benchmarks.fuzzing.faults import Fault
from pytest_probe import frameworks
from pytest_probe.check import Checker, RunRequest
from pytest_probe.features.fuzz.search import Effort, Findings, Search, wrong
from pytest_probe.features.fuzz.shrinking import shrink
from pytest_probe.features.fuzz.templates import template_from_table
from pytest_probe.features.fuzz.trial import Target, Trials
from pytest_probe.model.dump import Direction
from pytest_probe.registry import Registry
from tests.support.devices import Emulated

BOTH: tuple[Direction, ...] = ("forward", "backward")


def checker(api: str = "", kernel: Callable[..., Any] | None = None, device: str = "cpu") -> Checker:
    """One whose device is the CPU, or makes its calls there under another name; kernel: what it calls for an API."""
    registry = Registry.default()
    registry.devices["emulated"] = Emulated
    if kernel is not None:
        registry.calls[api] = kernel
    return Checker(RunRequest(device=device, diagnosed=False), registry)


def trials(checker: Checker, api: str, directions: Sequence[Direction] = BOTH) -> Trials:
    """What judges calls of an API by the table."""
    template = template_from_table(api, frameworks.signatures())
    target = Target(api, frameworks.DEFAULT, f"{api}.fuzz", Path("table"), tuple(directions), template.ulp)
    return Trials(checker, target)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """What --hypothesis-seed sets."""
    with mock.patch.object(hypothesis.core, "global_force_seed", seed):
        yield


def search(
    checker: Checker, api: str, dtype: str, examples: int, seed: int, directions: Sequence[Direction] = BOTH
) -> Findings:
    """The findings of one search by the table."""
    template = template_from_table(api, frameworks.signatures(), (dtype,))
    with seeded(seed):
        return Search(trials(checker, api, directions), [template]).run(Effort(examples))


def size(fault: Fault, device: str, findings: Findings) -> int:
    """Elements of the largest tensor of the call that a search is shrunk to."""
    assert findings.failed is not None
    faulty = checker(fault.api, fault.kernel, device)
    shown = shrink(trials(faulty, fault.api, ("forward",)), findings.failed[1], wrong, faulty)
    return max(math.prod(leaf.array.shape) for leaf in shown.arguments.tensors.values())


def found(fault: Fault, device: str, seeds: Sequence[int], examples: int) -> list[Findings]:
    """A search for a fault with each seed."""
    faulty = checker(fault.api, fault.kernel, device)
    return [search(faulty, fault.api, fault.dtype, examples, seed, ("forward",)) for seed in seeds]
