"""A clause of the noise rule, a call that needs it, and the verdicts with the clause and without."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from unittest import mock

import torch
from msgspec import Struct

from pytest_probe.check import Checker, RunRequest
from pytest_probe.check.perturbed import OutputRuns
from pytest_probe.model.comparison import RunKind
from pytest_probe.model.verdict import Outcome, Verdict
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.registry import Registry
from pytest_probe.standards.noise import standard
from pytest_probe.standards.noise.explanation import Examined, Explanation, Ruling, first
from pytest_probe.standards.noise.table import EXPLANATIONS
from tests.support.devices import Emulated

Function = Callable[..., Any]
# What stands in for a part of the rule while its clause is off: owner, attribute, replacement.
Off = tuple[Any, str, Any]


class Clause(Struct, frozen=True):
    """A clause, and a call in words and as it is made: `function` on the device, `reference` in float64.

    right is the verdict that the call deserves, wrong what it gets while `off` stands in for the clause's code.
    """

    name: str
    case: str
    function: Function
    reference: Function
    inputs: Callable[[], Sequence[Any]]
    off: tuple[Off, ...]
    right: Outcome
    wrong: Outcome
    api: str = ""
    backward: bool = False
    place: str = "cpu"
    key: str = "clause"

    def verdict(self) -> Verdict:
        """On the call, with the rule as it is."""
        # A factory's reference says float64, since it has no argument to be told by.
        how: dict[str, Any] = {"api": self.api, "backward": self.backward, "key": self.key, "dtype": False}
        registry = Registry.default()
        registry.devices["other"] = Emulated
        checker = Checker(RunRequest(device=self.place, allow=("none",), standard="noise"), registry)
        return checker.compare(self.function, self.reference, self.inputs(), **how)[-1]

    def verdict_without(self) -> Verdict:
        """The same while the clause is off."""
        with contextlib.ExitStack() as stack:
            for owner, attribute, replacement in self.off:
                stack.enter_context(mock.patch.object(owner, attribute, replacement))
            return self.verdict()


def without_runs(*kinds: RunKind) -> Off:
    """No perturbed runs of these kinds."""
    original = OutputRuns.runs

    def runs(self: OutputRuns, kind: RunKind, count: int) -> list[AnyArray]:
        return [] if kind in kinds else original(self, kind, count)

    return OutputRuns, "runs", runs


def without_row(*names: str) -> Off:
    """Rows of the table of explanations are asked of no output."""

    def others(output: Examined, rows: Iterable[Explanation]) -> Ruling | None:
        return first(output, [row for row in rows if row.name not in names])

    assert set(names) <= {row.name for row in EXPLANATIONS}
    return standard, "first", others


def normal(*shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def narrow_only(wrong: Function, right: Function) -> Function:
    """A function that is wrong in all dtypes but float64: what a fault in the CPU's own kernel is."""

    def function(*args: Any, **kwargs: Any) -> Any:
        wide = args[0].dtype in (torch.float64, torch.complex128)
        return (right if wide else wrong)(*args, **kwargs)

    return function
