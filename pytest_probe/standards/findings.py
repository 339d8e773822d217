"""An output against one allowed scale after the other: perturbed runs, then the kernel's own rounding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pytest_probe.numerics import noise
from pytest_probe.numerics.dtypes import AnyArray, widen
from pytest_probe.numerics.noise import Limits, Noise, Spread
from pytest_probe.standards.question import Question

STAGES = (0, 1, 2, 4)
AMONG_THEMSELVES = "float32 among themselves"
BETWEEN_STEPS = "16-bit steps"
# What float32 kernels do among themselves shows their own rounding, and nothing else that may explain an error: a
# kernel that rounds inside to 11 bits errs by about 24 times what its runs differ by.
AMONG = Limits(16.0, 4.0)
# Kernels whose 16-bit steps are not known: inputs perturbed by a roundoff of the dtype sample them.
NARROW = Limits(16.0, 2.0)
# Kernels whose steps are written down: a healthy one differs from them where a rounding falls to the other side. Where
# that is rare no element is far off.
STEPS = Limits(16.0, 0.5)
STEPS_LEAST, STEPS_SHARE, STEPS_SMALL = 5.0, 60.0, 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """Noise ratios against one spread, their limits, the K that they took, and from what runs.

    center is what the output was measured against: the reference, or a run that rounds as the device does. leaping
    counts elements that leap; where there are any the others were measured without them, and are above the limits.
    """

    noise: Noise
    limits: Limits
    k: int
    source: str
    spread: Spread | None
    center: AnyArray
    leaping: int = 0

    @property
    def content(self) -> bool:
        return self.noise.within(self.limits)

    @property
    def reason(self) -> str:
        parts = []
        if not self.noise.largest <= self.limits.largest:
            parts.append(f"noise ratio {self.noise.largest:,.4g} (limit {self.limits.largest:,.4g})")
        if not self.noise.rms <= self.limits.rms:
            parts.append(f"RMS noise ratio {self.noise.rms:,.4g} (limit {self.limits.rms:,.4g})")
        return ", ".join(parts)


def in_turn(question: Question) -> Iterator[Finding]:
    """Findings as A grows: float64 runs at growing K, then the kernel's own rounding."""
    limits = limits_of(question)
    runs: list[AnyArray] = []
    last = -1
    for k in STAGES:
        runs = question.runs("float64", k)
        if len(runs) == last:
            break
        last = len(runs)
        yield _finding(question, scatter(question, runs), limits, len(runs), "float64")
    if not question.on_cpu:
        runs = runs + question.runs("float32", STAGES[-1])
        yield _finding(question, scatter(question, runs), limits, STAGES[-1], "float32")
    runs = runs + question.runs("fine", STAGES[-1])
    spread = pooled(question, scatter(question, runs))
    yield _finding(question, spread, limits, STAGES[-1], "steps")
    if not question.on_cpu:
        return
    if question.narrow:
        yield between_steps(question, runs, limits)
    own = pooled(question, noise.among(question.runs("float32", STAGES[-1]), question.actual.dtype))
    if own is not None:
        wider = own.joined(spread)
        tight = Limits(min(limits.largest, AMONG.largest), min(limits.rms, AMONG.rms * (limits.rms / noise.RMS)))
        yield _finding(question, wider, tight, STAGES[-1], AMONG_THEMSELVES)


def between_steps(question: Question, runs: list[AnyArray], limits: Limits) -> Finding:
    """Against the rounding that 16-bit tensors undergo between kernels, and inside those that are known to round.

    Such rounding is sampled as it happens, not estimated, so the limits are close; and where each step is known the
    output is measured against the nearest sample, not against the reference.
    """
    sampled = question.runs("coarse", STAGES[-1])
    inside = rounds_inside(question)
    if inside:
        runs = runs + question.runs("narrowed", STAGES[-1]) + question.runs("narrow", STAGES[-1])
    elif "attention" in question.facts.name:
        # All of a row hangs on few roundings there, and one that falls to the other side moves all of it.
        runs = runs + _drawn_anew(question)
    spread = pooled(question, scatter(question, runs + sampled))
    center = question.expected if inside or not sampled else nearest(question, [question.expected, *sampled])
    measured = noise_of(replace(question, expected=center), spread)
    if inside:
        growth = limits.rms / (noise.ELEMENTWISE_RMS if question.facts.elementwise else noise.RMS)
        close = Limits(min(limits.largest, NARROW.largest), NARROW.rms * growth)
    else:
        close = Limits(_outlying(measured), STEPS.rms * (1 + STEPS_SMALL / max(measured.count, 1) ** 0.5))
    return Finding(measured, close, STAGES[-1], BETWEEN_STEPS, spread, center)


def _drawn_anew(question: Question) -> list[AnyArray]:
    """What the steps round, each time on other inputs, in place of what they round on these: the inputs' own shift is
    taken off, since where scores are large it would hide whatever is wrong."""
    pairs = zip(question.runs("rounded", STAGES[-1]), question.runs("narrowed", STAGES[-1]), strict=False)
    with np.errstate(invalid="ignore"):
        return [question.expected + np.where(rounded == exact, 0.0, rounded - exact) for rounded, exact in pairs]


def nearest(question: Question, sampled: list[AnyArray]) -> AnyArray:
    """NaN stays right where the reference is NaN, though steps may lead to a number."""
    lost = np.isnan(question.expected) & np.isnan(widen(question.actual))
    return np.asarray(np.where(lost, question.expected, noise.nearest(question.actual, sampled)))


def _outlying(measured: Noise) -> float:
    """The largest ratio that goes with what the other elements show."""
    return min(STEPS.largest, max(STEPS_LEAST, STEPS_SHARE * others(measured)))


def others(measured: Noise) -> float:
    """The RMS ratio of all elements but the worst."""
    squares = max(measured.rms**2 * measured.count - measured.largest**2, 0.0)
    return math.sqrt(squares / max(measured.count - 1, 1))


def rounds_inside(question: Question) -> bool:
    facts = question.facts
    if facts.name.startswith("conv_transpose") and _pads_a_stride(question):
        return True
    kind = f"narrow_{question.direction}"
    dtype = "float16" if question.plain else question.precision.name  # float16's are the framework's own
    return kind in facts.classes or f"{kind}@{dtype}" in facts.classes


def _pads_a_stride(question: Question) -> bool:
    """A transposed convolution that pads its output by a stride or more goes to a kernel whose columns are rounded."""
    stride, padding = (
        np.atleast_1d(question.argument(*place)) for place in ((3, "stride", 1), (5, "output_padding", 0))
    )
    return bool(np.any(padding >= stride))


def _finding(question: Question, spread: Spread | None, limits: Limits, k: int, source: str) -> Finding:
    if "factory" in question.facts.classes:
        size = question.roundoff * noise.root_mean_square(np.abs(question.expected[np.isfinite(question.expected)]))
        spread = Spread(np.full(question.expected.shape, size), np.zeros(question.expected.shape, dtype=bool))
    return Finding(noise_of(question, spread), limits, k, source, spread, question.expected)


def scatter(question: Question, runs: list[AnyArray]) -> Spread | None:
    return noise.scatter(runs, question.expected, question.actual.dtype)


def pooled(question: Question, spread: Spread | None) -> Spread | None:
    """Where the API works element by element: the largest spread among elements of like arguments."""
    if spread is None or not question.facts.elementwise:
        return spread
    values = question.argument(0, "input")
    fits = isinstance(values, np.ndarray) and values.shape == question.expected.shape
    order = widen(values) if fits else question.expected
    return noise.pooled(spread, np.abs(order) if order.dtype.kind == "c" else order)


def limits_of(question: Question) -> Limits:
    wide = 2.0 if question.precision.name in ("float64", "complex128") else 1.0
    return noise.limits(
        elementwise=question.facts.elementwise,
        fan_in=question.fan_in,
        count=int(np.count_nonzero(question.expected)),
        winograd=question.winograd,
        factor=question.factor * wide,
    )


def noise_of(question: Question, spread: Spread | None, floor: float | None = None) -> Noise:
    return noise.measure(
        question.actual,
        question.expected,
        spread,
        dtype=question.precision,
        roundoff=question.roundoff,
        floor=floor_of(question) if floor is None else floor,
    )


def floor_of(question: Question) -> float:
    return 0.0 if question.facts.elementwise else noise.FLOOR
