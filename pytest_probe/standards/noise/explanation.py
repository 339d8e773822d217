"""What may explain an error, as a row of a table: `table.EXPLANATIONS` has the rows, in the order in which they are
asked. A row that explains an output says what becomes of it; where none does, the output is an error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec import Struct, field

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import Outcome
from pytest_probe.numerics.allowed_scale import Spread
from pytest_probe.numerics.arrays import same_bytes
from pytest_probe.numerics.dtypes import (
    AnyArray,
    BoolArray,
    float_format,
    is_floating,
    is_inexact,
    round_to,
    truncated,
    widen,
)
from pytest_probe.numerics.noise_ratio import Limits, Noise

# The end of the reason where a kernel of the framework's own may round inside, and what follows it.
OWN_KERNEL = "own 16-bit kernel here, which rounds inside"
# Digits of float32.
SINGLE = 24
# Perturbed runs of each stage, so that most outputs pass without one.
STAGES = (0, 1, 2, 4)
# What takes one of many terms, and rounds nothing.
CHOICES = ("amax", "amin", "max", "min")
# Elements that tell cutting from rounding, and the share of them that must be cut: what float32 inside rounds near a
# border may be cut to the number below.
TOLD, TRUNCATED = 8, 0.95
# How an output stands when a row is asked. "open": no allowed scale was found for it yet. "above": it is above the
# limits beside all of them. "far": so far that few runs told. "biased": within its limits, with a mean error. "edge":
# within them by runs that cross an edge, or choose, where no rounding does. "unstable": within them only by what
# unstable elements grant. "overflowing": within them where most elements could not be judged.
Trouble: TypeAlias = Literal["open", "above", "far", "biased", "edge", "unstable", "overflowing"]


class Stage(Struct, frozen=True):
    """Noise ratios against one spread, their limits, the K that they took, and from what runs.

    center is what the output was measured against: the reference, or a run that rounds as the device does. unstable
    is how far elements jump, 0 where they do not; where any do, the others were measured without them, and are above
    the limits.
    """

    noise: Noise
    limits: Limits
    k: int
    source: str
    spread: Spread | None
    center: AnyArray
    unstable: AnyArray | None = None

    @property
    def within_limits(self) -> bool:
        return self.noise.within(self.limits)

    @property
    def reason(self) -> str:
        parts = []
        if not self.noise.largest <= self.limits.largest:
            parts.append(f"noise ratio {self.noise.largest:,.4g} (limit {self.limits.largest:,.4g})")
        if not self.noise.rms <= self.limits.rms:
            parts.append(f"RMS noise ratio {self.noise.rms:,.4g} (limit {self.limits.rms:,.4g})")
        return ", ".join(parts)


class Ruling(Struct, frozen=True):
    """What becomes of an output, by what stage, and by which row of the table; "" where none explains it.

    comparison is what was judged at last: another reference, or a number of terms that was measured.
    """

    comparison: Comparison
    stage: Stage
    outcome: Outcome
    reason: str = ""
    by: str = ""


class Examined(Struct):
    """An output on its way through the table.

    again judges another comparison by the same rows but the last ones. limits are those of the rule. known are the
    stages of its float64 runs by K, so that none is measured twice. While it is open: runs are those that were made,
    spread is theirs, stages are those that did not explain it, and by_unstable those that did by unstable elements
    alone. Then: stage is what it was judged by at last, trouble_words says what is wrong, and why_not why rounding at
    some places does not explain it.
    """

    comparison: Comparison
    again: Callable[[Comparison], Ruling]
    limits: Limits
    known: dict[int, Stage] = field(default_factory=dict)
    trouble: Trouble = "open"
    runs: list[AnyArray] = field(default_factory=list)
    spread: Spread | None = None
    stages: list[Stage] = field(default_factory=list)
    by_unstable: list[Stage] = field(default_factory=list)
    stage: Stage | None = None
    trouble_words: str = ""
    why_not: dict[str, str] = field(default_factory=dict)

    @property
    def judged_by(self) -> Stage:
        """The stage, of an output that is not open any more."""
        assert self.stage is not None
        return self.stage

    @property
    def reason(self) -> str:
        """What is wrong, with its name where the output is cut and not rounded, and why no rounding explains it."""
        words = self.trouble_words
        if self.trouble in ("above", "biased") and _truncates(self.comparison):
            words = f"truncates to {self.comparison.precision.name} where it should round: {words}"
        return "".join([words, *(f"; no rounding {where}: {why_not}" for where, why_not in self.why_not.items())])


class Explained(Struct, frozen=True):
    """What a row found: the stage that the output is judged by, what the row's words name, and the comparison where it
    is another one."""

    stage: Stage
    values: Mapping[str, Any] = {}
    comparison: Comparison | None = None


class Explanation(Struct, frozen=True):
    """A row: one reason why an output may differ from its reference.

    It is asked of outputs whose trouble is one of `of` and for which all of `applies` hold; their docstrings are the
    words of the page. runs and limits say, for the page as well, what further runs `explain` asks for and how close the
    output must be. outcome is what becomes of an output that it explains, message the reason in its verdict.
    """

    name: str
    of: tuple[Trouble, ...]
    applies: tuple[Callable[[Comparison], bool], ...]
    runs: str
    limits: str
    outcome: Outcome
    message: str
    explain: Callable[[Examined], Explained | None]


def first(output: Examined, rows: Iterable[Explanation]) -> Ruling | None:
    """What the first row says that explains the output; None where none does."""
    comparison = output.comparison
    for row in rows:
        if output.trouble not in row.of or not all(holds(comparison) for holds in row.applies):
            continue
        found = row.explain(output)
        if found is not None:
            trouble = {"trouble": output.reason} if "{trouble}" in row.message else {}
            words = row.message.format(**{**trouble, **found.values})
            return Ruling(found.comparison or comparison, found.stage, row.outcome, words, row.name)
    return None


def _truncates(comparison: Comparison) -> bool:
    """Is the output the reference cut to its dtype, where rounding would have been up? Only 16 bit shows it."""
    if float_format(comparison.precision).precision >= SINGLE:
        return False
    expected = comparison.expected
    if expected.dtype.kind != "f":
        return False
    cut, rounded = truncated(expected, comparison.precision), round_to(expected, comparison.precision)
    told = np.isfinite(expected) & (cut != widen(rounded))
    if np.count_nonzero(told) < TOLD:
        return False
    return bool(np.mean(widen(comparison.actual)[told] == cut[told]) >= TRUNCATED)


# Conditions of rows: their docstrings are words of the page.


def on_cpu(comparison: Comparison) -> bool:
    """the CPU"""
    return comparison.case.on_cpu


def elsewhere(comparison: Comparison) -> bool:
    """another device than the CPU"""
    return not comparison.case.on_cpu


def may_choose(comparison: Comparison) -> bool:
    """a function that may jump, or whose gradient may"""
    return "smooth" not in comparison.classes


def narrow(comparison: Comparison) -> bool:
    """a call with 16-bit tensors"""
    return bool(comparison.case.narrow)


def may_round_between(comparison: Comparison) -> bool:
    """16-bit tensors may lead to it"""
    # A float32 result of 16-bit tensors alone has the digits of float32, or has lost them.
    wide = comparison.case.narrow_alone and float_format(comparison.precision).precision >= SINGLE
    return bool(comparison.case.narrow) and not wide


def own_kernels(comparison: Comparison) -> bool:
    """the framework's own kernels"""
    return bool(comparison.case.own_kernels)


def by_framework(comparison: Comparison) -> bool:
    """the framework's own kernels, or on the CPU the bits of its own function"""
    return bool(whose_result(comparison)) if comparison.case.on_cpu else own_kernels(comparison)


def whose_result(comparison: Comparison) -> str:
    """The framework whose own function on its CPU gives this 16-bit output, bit for bit; "" where none does."""
    narrow_cpu = comparison.case.on_cpu and is_inexact(comparison.actual.dtype)
    may_round = narrow_cpu and may_round_between(comparison)
    own = comparison.evidence.own_result() if may_round else None
    return own.framework if own is not None and same_bytes(own.values, comparison.actual) else ""


def overflows_inside(comparison: Comparison) -> BoolArray:
    """Where the framework's own float16 kernel of the CPU may overflow inside: where each step of its formula, rounded,
    does, and where a long sum or product is infinite whose terms are large enough for that."""
    found = np.zeros(comparison.actual.shape, bool)
    if comparison.actual.dtype != np.float16 or not whose_result(comparison):
        return found
    if rounds_each_sum(comparison):
        return np.isinf(widen(comparison.actual)) & reaches_largest(comparison)
    for run in comparison.evidence.overflowing_steps():
        found |= ~np.isfinite(widen(round_to(run, comparison.actual.dtype)))
    return found


def rounds_each_sum(comparison: Comparison) -> bool:
    """Does its kernel round each sum, or product, of many terms?"""
    return "narrow_sums" in comparison.classes and not (chooses(comparison) and comparison.direction == "forward")


def chooses(comparison: Comparison) -> bool:
    """Does an argument ask for the largest or the smallest of its terms?"""
    return any(isinstance(value, str) and value in CHOICES for value in comparison.call.given.values())


def reaches_largest(comparison: Comparison) -> bool:
    """Do as many terms, or factors, as the largest argument has reach the largest number of the output's dtype?"""
    arrays = [array for array in comparison.call.all_arrays if is_floating(array.dtype)]
    of_arguments, of_incoming = (
        max((float(np.max(np.abs(widen(array)), initial=0.0)) for array in group), default=0.0)
        for group in (arrays, comparison.case.incoming.values())
    )
    count, factor = max((array.size for array in arrays), default=1), max(of_incoming, 1.0)
    largest = float_format(comparison.actual.dtype).max / factor
    return count * of_arguments >= largest or count * math.log(max(of_arguments, 1.0)) >= math.log(largest)


def gives_wide(comparison: Comparison) -> bool:
    """no result of the call has 16 bit"""
    return not gives_narrow(comparison)


def gives_narrow(comparison: Comparison) -> bool:
    """a result of the call has 16 bit"""
    arrays = (value for value in comparison.case.forward.values() if isinstance(value, np.ndarray))
    return any(value.dtype.name == comparison.case.narrow for value in arrays)


def is_narrow_or_of_narrow(comparison: Comparison) -> bool:
    """16 bit, or a gradient of a 16-bit result"""
    # In float32 it would hide an accumulator of 16 bit. Gradients of 16-bit results come of numbers of 16 bit.
    narrow = float_format(comparison.precision).precision < SINGLE
    return narrow or (comparison.direction == "backward" and gives_narrow(comparison))


def of_real_numbers(comparison: Comparison) -> bool:
    """real numbers"""
    return comparison.expected.dtype.kind == "f"


def with_narrower_argument(comparison: Comparison) -> bool:
    """float64 with a narrower argument"""
    return comparison.single is not None


def of_large_call(comparison: Comparison) -> bool:
    """a large call"""
    return comparison.large
