"""What a standard is, and what it judges: one output of a case, actual and expected side by side, with the evidence
that it may ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.model.device_modes import Mode
from pytest_probe.model.dump import Direction
from pytest_probe.model.run import PRODUCTS, BoundCall, Composition
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.float32_sums import Order

# Kinds of further runs. A method of Evidence has the name of each and says what it is, and KINDS in check/run_kinds.py
# what moves its inputs and what it rounds. Orders of sums are those of `added`; `separate_steps`, `stepwise_steps` and
# `carried_operands` are `composed_steps` and `rounded_operands` with an argument.
RunKind: TypeAlias = Literal[
    "perturbed",
    "perturbed_more",
    "perturbed_less",
    "perturbed_narrow",
    "neighbours",
    "moved_slightly",
    "float32",
    "single",
    "float32_steps",
    "rounded_by_chance",
    Order,
    "narrow_steps",
    "narrow_steps_perturbed",
    "narrow_steps_inside",
    "overflowing_steps",
    "composed_steps",
    "composed_steps_moved",
    "separate_steps",
    "separate_steps_moved",
    "stepwise_steps",
    "stepwise_steps_moved",
    "cast_steps",
    "cast_steps_moved",
    "bordered",
    "bordered_moved",
    "rounded_operands",
    "rounded_operands_moved",
    "carried_operands",
    "carried_operands_moved",
]


# Of each way to be made of an accelerator's kernels: the run on exact inputs, and those on others.
COMPOSED: Mapping[Composition, tuple[RunKind, RunKind]] = {
    "composed": ("composed_steps", "composed_steps_moved"),
    "separate": ("separate_steps", "separate_steps_moved"),
    "stepwise": ("stepwise_steps", "stepwise_steps_moved"),
    "cast": ("cast_steps", "cast_steps_moved"),
}

# How the place of an incoming gradient begins.
INCOMING = "incoming."
# Rounds no result inside; what else may change a run that is made of steps.
NOWHERE = frozenset((-1,))


class Assumption(Struct, frozen=True):
    """What another reference assumes: a device mode, in a sample of its rounding where numbered; or some results
    inside that are rounded to the case's 16-bit dtype, by the order in which they are made."""

    mode: Mode | None = None
    sample: int | None = None
    rounded: frozenset[int] = frozenset()


class Choice(Struct, frozen=True):
    """A choice among elements inside a call (topk, argsort): of `values` along dim, None: flattened."""

    values: AnyArray
    dim: int | None
    indices: AnyArray


class OwnResult(Struct, frozen=True):
    """What a framework's own function gives on its CPU; framework is its name in messages."""

    framework: str
    values: AnyArray


class KernelsInside(Struct, frozen=True):
    """What a function gives when it is called once more: values as it is, once where each kernel of the framework's
    rounds once."""

    framework: str
    values: AnyArray
    once: AnyArray


class Evidence:
    """Further runs of the call, made when a standard asks for one. This one has none: no run, no kernel, no mode.

    Each method gives the output in `count` runs, fewer where the reference cannot be run like that so often.
    """

    def runs(self, kind: RunKind, count: int) -> list[AnyArray]:
        """The output in runs of one kind; what the methods below ask."""
        return []

    def perturbed(self, count: int) -> list[AnyArray]:
        """In float64, with inputs and incoming gradients moved by a roundoff of the arithmetic inside."""
        return self.runs("perturbed", count)

    def moved_slightly(self, count: int) -> list[AnyArray]:
        """The same, by less than any rounding and equal values alike; every second run is the opposite of the first."""
        return self.runs("moved_slightly", count)

    def rounded_by_chance(self, count: int) -> list[AnyArray]:
        """`float32_steps` on exact inputs, each rounding up or down by chance."""
        return self.runs("rounded_by_chance", count)

    def perturbed_more(self, count: int) -> list[AnyArray]:
        """The same, moved by 4 roundoffs."""
        return self.runs("perturbed_more", count)

    def perturbed_less(self, count: int) -> list[AnyArray]:
        """The same, moved by a 16th of a roundoff."""
        return self.runs("perturbed_less", count)

    def perturbed_narrow(self, count: int) -> list[AnyArray]:
        """The same, moved by a roundoff of the case's 16-bit dtype."""
        return self.runs("perturbed_narrow", count)

    def float32(self, count: int) -> list[AnyArray]:
        """By the CPU's float32 kernels, on perturbed inputs."""
        return self.runs("float32", count)

    def float32_steps(self, count: int) -> list[AnyArray]:
        """In float64, with each step of the framework's decompositions rounded to float32."""
        return self.runs("float32_steps", count)

    def single(self) -> AnyArray | None:
        """By the CPU's float32 kernels, on exact inputs; None without any."""
        return next(iter(self.runs("single", 1)), None)

    def added(self, order: Order) -> AnyArray | None:
        """With sums in float32 in that order, on exact inputs; None where the reference does not run like that."""
        return next(iter(self.runs(order, 1)), None)

    def narrow_steps(self, count: int) -> list[AnyArray]:
        """In float64, with what passes between kernels rounded to the 16-bit dtype; the first on exact inputs."""
        return self.runs("narrow_steps", count)

    def narrow_steps_perturbed(self, count: int) -> list[AnyArray]:
        """The same on the inputs of `perturbed_narrow`, run by run."""
        return self.runs("narrow_steps_perturbed", count)

    def narrow_steps_inside(self, count: int) -> list[AnyArray]:
        """In float64, with each step of the framework's decompositions rounded to the case's 16-bit dtype."""
        return self.runs("narrow_steps_inside", count)

    def overflowing_steps(self) -> list[AnyArray]:
        """The same on exact inputs, where steps may lead beyond the dtype's range."""
        return self.runs("overflowing_steps", 1)

    def composed_steps(self, how: Composition = "composed") -> list[AnyArray]:
        """The call in its own dtypes on exact inputs, every kernel rounding once, as accelerators' kernels do.

        separate: attention is no fused kernel, its scores and weights are rounded. stepwise: the framework's own
        kernels that compute element by element round each step of their formula, in each order of three factors, and
        some others inside. cast: what an autocast of the recorded kind of device casts for inside the call.
        """
        return self.runs(COMPOSED[how][0], PRODUCTS if how == "stepwise" else 1)

    def composed_steps_moved(self, count: int, how: Composition = "composed") -> list[AnyArray]:
        """The same on the inputs of `neighbours`, run by run."""
        return self.runs(COMPOSED[how][1], count)

    def bordered(self) -> list[AnyArray]:
        """The reference on exact inputs, rounded to the case's 16-bit dtype at the borders that the user named; none
        where no border is named."""
        return self.runs("bordered", 1)

    def bordered_moved(self, count: int) -> list[AnyArray]:
        """The same on the inputs of `neighbours`, run by run."""
        return self.runs("bordered_moved", count)

    def rounded_operands(self, *, carried: bool) -> list[AnyArray]:
        """The reference that a user wrote on exact inputs, with the operands of each product rounded to the case's
        16-bit dtype; carried: what a recurrence passes on, too. None where the reference is a framework's own call, or
        has the name of one."""
        return self.runs("carried_operands" if carried else "rounded_operands", 1)

    def rounded_operands_moved(self, count: int, *, carried: bool) -> list[AnyArray]:
        """The same on the inputs of `neighbours`, run by run."""
        return self.runs("carried_operands_moved" if carried else "rounded_operands_moved", count)

    def narrow_kernels(self) -> Sequence[str]:
        """The kernels that give 16 bit inside the call, under an autocast of the recorded kind of device."""
        return ()

    def neighbours(self, count: int) -> list[AnyArray]:
        """In float64, with inputs and incoming gradients at neighbouring numbers of their own 16-bit dtypes."""
        return self.runs("neighbours", count)

    def terms(self) -> int | None:
        """The most values of one argument that meet in one element of the output, measured; None where that fails."""
        return None

    def cpu_result(self) -> AnyArray | None:
        """The output of the framework's own CPU kernel in the case's dtype; None without one."""
        return None

    def own_result(self) -> OwnResult | None:
        """What the framework's own function gives in the case's dtype, called once more, where its CPU is the device;
        None where it is not, and of a function or a kernel of the user's."""
        return None

    def reference_on_cpu(self) -> AnyArray | None:
        """What the reference's function gives by the CPU's kernels in the case's dtype, whatever the device and its
        function are; None without one."""
        return None

    def kernels_inside(self) -> KernelsInside | None:
        """What a function of the user's gives on the framework's CPU; None on another device, and where no kernel
        of the framework's own inside it rounds to 16 bit in steps."""
        return None

    def alternative(self, comparison: Comparison, assumption: Assumption) -> Comparison | None:
        """The same comparison with another reference; None where that does not run or changes nothing."""
        return None

    def with_arguments(self, values: Mapping[str, Any]) -> AnyArray | None:
        """What the reference gives with other values in the places of some arguments ("input.1", "kwargs.eps") and of
        incoming gradients ("incoming.output.0"), arrays for tensors; None where it does not run like that."""
        return None

    def choices(self) -> tuple[Sequence[Choice], ...]:
        """The choices that the call makes inside, in their order: in float64, and in its own dtypes on the CPU."""
        return ()

    def chosen_otherwise(self, count: int) -> list[AnyArray]:
        """The reference on exact inputs, where each choice inside falls on another one of equal elements: the last one
        first, then any. None where nobody sees the choices."""
        return []

    def transformed(self, change: Callable[[AnyArray], AnyArray]) -> Evidence:
        """The same runs with a change to each of them; without a CPU result. What the framework's own function gives
        is not changed: it is compared with the output alone."""
        return Transformed(self, change)


class Transformed(Evidence, Struct, frozen=True):
    """Another evidence's runs, changed alike."""

    source: Evidence
    change: Callable[[AnyArray], AnyArray]

    def runs(self, kind: RunKind, count: int) -> list[AnyArray]:
        return [self.change(run) for run in self.source.runs(kind, count)]

    def own_result(self) -> OwnResult | None:
        return self.source.own_result()

    def alternative(self, comparison: Comparison, assumption: Assumption) -> Comparison | None:
        return self.source.alternative(comparison, assumption)


class ComparedCase(Struct, frozen=True):
    """What the comparisons of one case share.

    classes are those of the API in classes.yaml. narrow is the dtype of the narrowest tensors that take part, "" where
    none is narrower than float32, narrow_alone tells that no other floating tensors do; on_cpu that the device is the
    framework's CPU, computes_narrow that its kernels round to 16 bit inside, plain_convolutions that its convolutions
    in the case's dtype are the framework's own. rounds names the dtypes that the user's reference casts wider arguments
    to, and where ("float16 at test_x.py:12"), "" for none. own_kernels is, in 16 bit, the kind of another device
    ("cuda") where the framework's own kernels run, else "". of_user tells that the function on the device is none of
    the framework's, inferred that nobody has named the API either: it is that of the reference. modes were
    allowed where a dump's stored outputs were computed. forward holds the device's forward outputs, reference
    those of the reference, incoming the incoming gradients. compared is what the reference says of all that is
    compared, by the names of the comparisons.
    """

    call: BoundCall
    classes: frozenset[str]
    direction: Direction
    narrow: str
    on_cpu: bool
    narrow_alone: bool = False
    computes_narrow: bool = False
    plain_convolutions: bool = False
    rounds: str = ""
    own_kernels: str = ""
    of_user: bool = False
    inferred: bool = False
    modes: tuple[str, ...] = ()
    forward: Mapping[str, Any] = field(default_factory=dict)
    reference: Mapping[str, Any] = field(default_factory=dict)
    incoming: Mapping[str, AnyArray] = field(default_factory=dict)
    compared: Mapping[str, Any] = field(default_factory=dict)


class Allowance(Struct, frozen=True):
    """What a device mode, or another argument, changes: limits are `factor` times as wide, each term of a sum may lose
    `lost`, and `emulated` tells that the reference is that of the mode or the argument."""

    factor: float = 1.0
    lost: float = 0.0
    emulated: bool = False


class Comparison(Struct, frozen=True):
    """One output of a case: a return value ("output.0"), a changed argument ("input.0") or a gradient ("grad.input.1").

    actual has the output's dtype, expected is float64, complex128, an integer type or bool; both have one shape.
    precision is the dtype whose half ulp the output is granted: its own, or narrower where a wider tensor carries
    16-bit values. roundoff is that of the arithmetic inside, u_c. terms is how many values meet in one element, where
    that was measured. single holds runs by float32's roundoff, where u_c is float64's and a floating argument is
    narrower. plotted tells that the run makes plots, sampled that this is
    part of an output, and weights, of the same shape, how many elements of the whole each stands for, None: all alike;
    of a large call each further run is dear.
    """

    name: str
    case: ComparedCase
    actual: AnyArray
    expected: AnyArray
    precision: np.dtype[Any]
    roundoff: float
    evidence: Evidence
    allowance: Allowance = Allowance()
    terms: int | None = None
    single: Evidence | None = None
    plotted: bool = False
    sampled: bool = False
    weights: AnyArray | None = None
    large: bool = False

    @property
    def call(self) -> BoundCall:
        return self.case.call

    @property
    def classes(self) -> frozenset[str]:
        return self.case.classes

    @property
    def elementwise(self) -> bool:
        """Does each element come from one of each argument? A user's function is not what its reference is: its terms
        are counted, where its API was not named."""
        return ("elementwise" in self.case.classes and not self.case.inferred) or self.terms == 1

    @property
    def direction(self) -> Direction:
        return self.case.direction

    def of_call(self, call: BoundCall) -> Comparison:
        """The same with other arguments."""
        return replace(self, case=replace(self.case, call=call))

    def with_reference(self, change: Callable[[AnyArray], AnyArray]) -> Comparison:
        """The same compared with a reference that is changed, and its runs alike."""
        return replace(self, expected=change(self.expected), evidence=self.evidence.transformed(change))

    def moved_by(self, by: AnyArray) -> Comparison:
        """The same compared with a reference that is larger by that, where it is a number."""
        by = np.where(np.isfinite(by), by, 0.0)
        return self.with_reference(lambda run: run + by) if by.any() else self


class KnownFinding(Struct, frozen=True):
    """What a release of a framework is known to compute wrongly, in words, and which elements of an output show it."""

    description: str
    elements: AnyArray


class Standard(Protocol):
    """A rule that turns one output's metrics into a verdict."""

    @property
    def name(self) -> str: ...

    def judge(self, comparison: Comparison) -> OutputVerdict:
        """The verdict. Raises Unsupported where the standard has none for such an output."""
