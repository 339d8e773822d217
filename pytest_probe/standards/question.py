"""What a standard is asked: one output of one case, with all that it may look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from pytest_probe.frameworks.modes import Mode
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.records.model import Direction
from pytest_probe.standards.facts import Facts
from pytest_probe.standards.verdict import OutputVerdict

# float64: perturbed inputs in float64. nudged: the same by 4 roundoffs. shrunk: by a 16th of one. float32: perturbed
# inputs, the CPU's float32 kernels. fine: float64 with every step of torch's decompositions rounded to float32. coarse:
# float64 with what passes between kernels rounded to the case's 16-bit dtype. narrow: fine, rounded to the case's
# 16-bit dtype. narrowed: inputs perturbed by the roundoff of that dtype, in float64. rounded: coarse on the very inputs
# of narrowed.
Kind: TypeAlias = Literal["float64", "nudged", "shrunk", "float32", "fine", "coarse", "narrow", "narrowed", "rounded"]


class Runs(Protocol):
    def __call__(self, kind: Kind, count: int) -> list[AnyArray]:
        """The output in `count` perturbed runs; fewer where the reference cannot be perturbed that often."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """What another reference assumes: a device mode, in a sample of its rounding where numbered, or another value of
    one argument, given as position, keyword and value."""

    mode: Mode | None = None
    sample: int | None = None
    argument: tuple[int, str, Any] | None = None


class Otherwise(Protocol):
    def __call__(self, question: Question, assumption: Assumption) -> Question | None:
        """The same question about another reference; None where that does not run or changes nothing."""


@dataclass(frozen=True, slots=True)
class Question:
    """One output of an API ("Functional.linear"). actual has the output's dtype, expected is float64, complex128, an
    integer type or bool.

    precision is the dtype whose half ulp the output is granted: its own, or narrower where a wider tensor carries
    16-bit values. roundoff is u_c of the arithmetic inside; narrow tells that tensors narrower than float32 take part.
    args and kwargs hold arrays where the call took tensors; forward holds the device's forward outputs, reference those
    of the reference, gradients the incoming ones. witness gives what the framework's own CPU kernel makes of the case;
    None where that is the device under test. otherwise asks the same of another reference; None where there is none to
    ask of. emulated tells that the reference is that of a device mode, or of another argument; lost is
    what the device may then lose of each term of a sum. plain tells that the CPU's convolutions in the case's dtype are
    the framework's own.
    """

    name: str
    api: str
    facts: Facts
    direction: Direction
    actual: AnyArray
    expected: AnyArray
    precision: np.dtype[Any]
    roundoff: float
    runs: Runs
    narrow: bool
    on_cpu: bool
    fan_in: int
    fan_in_assumed: bool
    winograd: bool = False
    factor: float = 1.0
    witness: Callable[[], AnyArray | None] | None = None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    forward: Mapping[str, Any] = field(default_factory=dict)
    reference: Mapping[str, Any] = field(default_factory=dict)
    gradients: Mapping[str, AnyArray] = field(default_factory=dict)
    otherwise: Otherwise | None = None
    emulated: bool = False
    lost: float = 0.0
    plain: bool = False

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument of the call, positional or by keyword."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)


class Standard(Protocol):
    """A rule that turns one output's metrics into a verdict."""

    @property
    def name(self) -> str: ...

    def judge(self, question: Question) -> OutputVerdict: ...
