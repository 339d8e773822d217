"""The noise standard: is the error what the precision explains? The rule is in docs/standards.md."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pytest_probe.numerics import metrics, noise
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, float_format, round_to, widen
from pytest_probe.numerics.noise import Bias, Limits, Noise, Spread
from pytest_probe.standards.exact import Exact, elements
from pytest_probe.standards.leaps import leaps
from pytest_probe.standards.question import Question
from pytest_probe.standards.verdict import Metric, Outcome, OutputVerdict

STAGES = (0, 1, 2, 4)
AMONG_THEMSELVES = "float32 among themselves"
BETWEEN_STEPS = "16-bit steps"
# What float32 kernels do among themselves shows their own rounding, and nothing else that may explain an error: a
# kernel that rounds inside to 11 bits errs by about 24 times what its runs differ by.
AMONG = Limits(16.0, 4.0)
WITNESS_LARGEST, WITNESS_RMS, WITNESS_HOPELESS = 2.0, 1.5, 1000.0
# Kernels whose 16-bit steps are not known: inputs perturbed by a roundoff of the dtype sample them.
NARROW = Limits(16.0, 2.0)
# Kernels whose steps are written down: a healthy one differs from them where a rounding falls to the other side. Where
# that is rare no element is far off.
STEPS = Limits(16.0, 0.5)
STEPS_LEAST, STEPS_SHARE, STEPS_SMALL = 5.0, 60.0, 3.0
# Another device's steps need not be torch's, but it rounds between them in more than one element.
OTHERS = Limits(5.0, 1.0)
OTHERS_LEAST, OTHERS_SHARE = 2.0, 20.0
STEPS_BIAS = 0.5


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


class NoiseStandard:
    """Floats by the noise rule; integers, booleans and empty outputs exact."""

    name = "noise"

    def judge(self, question: Question) -> OutputVerdict:
        if question.actual.dtype.kind in "iub" or not question.actual.size:
            return Exact().judge(question)
        finding = decide(question)
        if finding.leaping:
            return _verdict(question, finding, *_leapt(question, finding))
        if not finding.content:
            return self._above(question, finding)
        shifted = _shift(question, finding)
        if shifted is None:
            return _verdict(question, finding, "pass")
        stepped = _unshifted(question) if question.narrow and finding.source != BETWEEN_STEPS else None
        if stepped is None:
            return _verdict(question, finding, "error", shifted)
        if question.on_cpu:
            return _verdict(question, stepped, "pass")
        return _verdict(question, finding, "warning", f"rounds between its steps: {shifted}")

    def _above(self, question: Question, finding: Finding) -> OutputVerdict:
        """Above the limits: what else may explain it, in the order of the rule."""
        if question.on_cpu:
            return _verdict(question, finding, "error", finding.reason)
        outcome = _witnessed(question, finding)
        if outcome is not None:
            return _verdict(question, finding, *outcome)
        if question.narrow and self._between(question):
            return _verdict(question, finding, "warning", f"rounds between its steps: {finding.reason}")
        return _verdict(question, finding, "error", finding.reason)

    def _between(self, question: Question) -> bool:
        """Is it what 16-bit steps give: those of the framework's decompositions, or those of the CPU's kernels?"""
        narrow = _pooled(question, _scatter(question, question.runs("narrow", 2)))
        if narrow is not None and _by_other_steps(question, _measure(question, narrow)):
            return True
        sampled = question.runs("coarse", STAGES[-1])
        if not sampled:
            return False
        moved = replace(question, expected=_nearest(question, [question.expected, *sampled]))
        runs = question.runs("float64", STAGES[-1]) + question.runs("fine", STAGES[-1])
        return _measure(moved, _pooled(question, _scatter(question, runs))).within(_limits(question))


def decide(question: Question) -> Finding:
    """The first content finding, else the first that leaping elements made content, else the last with the limits of
    the rule."""
    found: list[Finding] = []
    leapt: list[Finding] = []
    for finding in _findings(question):
        if finding.content:
            beside = _beside(question, finding)
            if beside is None:
                return finding
            leapt.append(beside)
        found.append(finding)
    if leapt:
        return leapt[0]
    return next(finding for finding in reversed(found) if finding.source != AMONG_THEMSELVES)


def _beside(question: Question, finding: Finding) -> Finding | None:
    """The finding where elements that leap grant the others nothing; None where that leaves it content."""
    spread, floor = finding.spread, _floor(question)
    if spread is None or not floor:
        return None
    moved = replace(question, expected=finding.center)
    if _measure(moved, spread, floor=0.0).within(finding.limits):
        return None
    leaping = leaps(question, spread)
    if leaping is None or not leaping.any():
        return None
    calm = _measure(moved, Spread(np.where(leaping, 0.0, spread.size), spread.torn))
    ratios = np.where(leaping, finding.noise.ratios, calm.ratios)
    found = noise.summary(ratios, question.expected, finding.noise.undecided)
    count = int(np.count_nonzero(leaping))
    return None if found.within(finding.limits) else replace(finding, noise=found, leaping=count)


def _leapt(question: Question, finding: Finding) -> tuple[Outcome, str]:
    """A device that chooses otherwise errs in fewer elements than leap, since not each does so in a few runs; one that
    rounds between 16-bit steps may err in all."""
    wrong = int(np.count_nonzero(finding.noise.ratios > finding.limits.largest))
    leap = f"{finding.leaping:,} of {finding.noise.ratios.size:,} elements leap as inputs move by a roundoff"
    if wrong > finding.leaping and (question.on_cpu or not question.narrow):
        return "error", f"{leap}; beside them {finding.reason}, {wrong:,} above it"
    return "warning", f"undecided: {leap}; beside them {finding.reason}"


def _findings(question: Question) -> Iterator[Finding]:
    """Findings as A grows: float64 runs at growing K, then the kernel's own rounding."""
    limits = _limits(question)
    runs: list[AnyArray] = []
    last = -1
    for k in STAGES:
        runs = question.runs("float64", k)
        if len(runs) == last:
            break
        last = len(runs)
        yield _finding(question, _scatter(question, runs), limits, len(runs), "float64")
    if not question.on_cpu:
        runs = runs + question.runs("float32", STAGES[-1])
        yield _finding(question, _scatter(question, runs), limits, STAGES[-1], "float32")
    runs = runs + question.runs("fine", STAGES[-1])
    spread = _pooled(question, _scatter(question, runs))
    yield _finding(question, spread, limits, STAGES[-1], "steps")
    if not question.on_cpu:
        return
    if question.narrow:
        yield _between_steps(question, runs, limits)
    own = _pooled(question, noise.among(question.runs("float32", STAGES[-1]), question.actual.dtype))
    if own is not None:
        wider = own.joined(spread)
        tight = Limits(min(limits.largest, AMONG.largest), min(limits.rms, AMONG.rms * (limits.rms / noise.RMS)))
        yield _finding(question, wider, tight, STAGES[-1], AMONG_THEMSELVES)


def _between_steps(question: Question, runs: list[AnyArray], limits: Limits) -> Finding:
    """Against the rounding that 16-bit tensors undergo between kernels, and inside those that are known to round.

    Such rounding is sampled as it happens, not estimated, so the limits are close; and where each step is known the
    output is measured against the nearest sample, not against the reference.
    """
    sampled = question.runs("coarse", STAGES[-1])
    inside = _rounds_inside(question)
    if inside:
        runs = runs + question.runs("narrowed", STAGES[-1]) + question.runs("narrow", STAGES[-1])
    elif "attention" in question.facts.name:
        # All of a row hangs on few roundings there, and one that falls to the other side moves all of it.
        runs = runs + _drawn_anew(question)
    spread = _pooled(question, _scatter(question, runs + sampled))
    center = question.expected if inside or not sampled else _nearest(question, [question.expected, *sampled])
    measured = _measure(replace(question, expected=center), spread)
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


def _unshifted(question: Question) -> Finding | None:
    """What explains a bias: a constant that was rounded to 16 bits between two steps moves all elements alike."""
    if _rounds_inside(question) or not question.runs("coarse", STAGES[-1]):
        return None
    runs = question.runs("float64", STAGES[-1]) + question.runs("fine", STAGES[-1])
    stepped = _between_steps(question, runs, _limits(question))
    return stepped if stepped.content and _shift(question, stepped) is None else None


def _nearest(question: Question, sampled: list[AnyArray]) -> AnyArray:
    """NaN stays right where the reference is NaN, though steps may lead to a number."""
    lost = np.isnan(question.expected) & np.isnan(widen(question.actual))
    return np.asarray(np.where(lost, question.expected, noise.nearest(question.actual, sampled)))


def _by_other_steps(question: Question, measured: Noise) -> bool:
    """Is it of the size that rounding between steps has, torch's own or others? Element by element neighbours show
    that size, and the limits are close."""
    limits = NARROW
    if question.facts.elementwise:
        limits = Limits(OTHERS.largest, OTHERS.rms * (1 + 1 / max(measured.count, 1) ** 0.5))
    largest = min(limits.largest, max(OTHERS_LEAST, OTHERS_SHARE * _others(measured)))
    return measured.within(Limits(largest, limits.rms))


def _outlying(measured: Noise) -> float:
    """The largest ratio that goes with what the other elements show."""
    return min(STEPS.largest, max(STEPS_LEAST, STEPS_SHARE * _others(measured)))


def _others(measured: Noise) -> float:
    """The RMS ratio of all elements but the worst."""
    squares = max(measured.rms**2 * measured.count - measured.largest**2, 0.0)
    return math.sqrt(squares / max(measured.count - 1, 1))


def _scatter(question: Question, runs: list[AnyArray]) -> Spread | None:
    return noise.scatter(runs, question.expected, question.actual.dtype)


def _rounds_inside(question: Question) -> bool:
    facts = question.facts
    if facts.name.startswith("conv_transpose") and _pads_a_stride(question):
        return True
    kind = f"narrow_{question.direction}"
    dtype = "float16" if question.plain else question.precision.name  # float16's are the framework's own
    return kind in facts.classes or f"{kind}@{dtype}" in facts.classes


def _pads_a_stride(question: Question) -> bool:
    """A transposed convolution that pads its output by a stride or more goes to a kernel whose columns are rounded."""
    if question.foreign:
        return True
    stride, padding = (
        np.atleast_1d(question.argument(*place)) for place in ((3, "stride", 1), (5, "output_padding", 0))
    )
    return bool(np.any(padding >= stride))


def _pooled(question: Question, spread: Spread | None) -> Spread | None:
    """Where the API works element by element: the largest spread among elements of like arguments."""
    if spread is None or not question.facts.elementwise:
        return spread
    values = question.expected if question.foreign else question.argument(0, "input")
    fits = isinstance(values, np.ndarray) and values.shape == question.expected.shape
    order = widen(values) if fits else question.expected
    return noise.pooled(spread, np.abs(order) if order.dtype.kind == "c" else order)


def _limits(question: Question) -> Limits:
    wide = 2.0 if question.precision.name in ("float64", "complex128") else 1.0
    return noise.limits(
        elementwise=question.facts.elementwise,
        fan_in=question.fan_in,
        count=int(np.count_nonzero(question.expected)),
        winograd=question.winograd,
        factor=question.factor * wide,
    )


def _measure(question: Question, spread: Spread | None, floor: float | None = None) -> Noise:
    return noise.measure(
        question.actual,
        question.expected,
        spread,
        dtype=question.precision,
        roundoff=question.roundoff,
        floor=_floor(question) if floor is None else floor,
    )


def _floor(question: Question) -> float:
    return 0.0 if question.facts.elementwise else noise.FLOOR


def _finding(question: Question, spread: Spread | None, limits: Limits, k: int, source: str) -> Finding:
    if "factory" in question.facts.classes:
        size = question.roundoff * noise.root_mean_square(np.abs(question.expected[np.isfinite(question.expected)]))
        spread = Spread(np.full(question.expected.shape, size), np.zeros(question.expected.shape, dtype=bool))
    return Finding(_measure(question, spread), limits, k, source, spread, question.expected)


def _is_narrow(question: Question) -> bool:
    return float_format(question.precision).precision < 24


def _shift(question: Question, finding: Finding) -> str | None:
    """The words for a bias, for outputs narrower than float32."""
    if not _is_narrow(question) or finding.noise.largest == 0.0:
        return None
    # Near a tie either neighbour is right: whole classes of quotients lie there.
    rounded = np.where(finding.noise.ratios <= 1, question.actual, round_to(finding.center, question.precision))
    limit = noise.ELEMENTWISE_RMS if question.facts.elementwise else noise.RMS
    if finding.source == BETWEEN_STEPS:
        rounded, limit = round_to(finding.center, question.precision), STEPS_BIAS
    for allowed in _scales_of_bias(question, finding):
        found: tuple[Bias, ...] = noise.biases(question.actual, rounded, question.expected, allowed)
        for shift, words in zip(found, ("shifted", "scaled"), strict=False):
            if shift.beyond(limit):
                return f"{words} on average by {shift.effect:,.4g} noise scales (limit {limit:g}), t = {shift.t:,.4g}"
    return None


def _scales_of_bias(question: Question, finding: Finding) -> Iterator[AnyArray]:
    """Half of float16's smallest subnormal is nothing that rounding shifts an average by: where another scale comes of
    it, float32's counts as well."""
    scales: list[AnyArray] = []
    for dtype in (question.precision, np.dtype(np.float32)):
        with np.errstate(invalid="ignore", over="ignore"):
            scale = noise.scale(
                question.expected,
                finding.spread,
                dtype=dtype,
                roundoff=question.roundoff,
                floor=_floor(question),
            )
        if not any(np.array_equal(scale, known, equal_nan=True) for known in scales):
            scales.append(scale)
            yield scale


def _witnessed(question: Question, finding: Finding) -> tuple[Outcome, str] | None:
    """What the framework's own CPU kernel in the case's dtype says, where it is another device than the tested one."""
    witness = question.witness() if question.witness is not None else None
    if witness is None:
        return None
    lost = _overflown(question, witness)
    alike = lost & np.isinf(widen(question.actual))
    seen = _measure_instead(question, finding, np.where(lost, question.expected, widen(witness)))
    if not np.isfinite(seen.largest):
        return "warning", "undecided: the CPU's own kernel gives NaN"
    if seen.largest > WITNESS_HOPELESS and question.precision.name in ("float32", "complex64"):
        return "warning", f"undecided: the CPU's own kernel has noise ratio {seen.largest:,.4g}, no digits are left"
    ours = _measure_instead(question, finding, np.where(alike, question.expected, widen(question.actual)))
    if ours.within(finding.limits):
        return "pass", "as-cpu: the CPU's own kernel overflows as well"
    if ours.largest <= WITNESS_LARGEST * seen.largest and ours.rms <= WITNESS_RMS * seen.rms:
        return "pass", f"as-cpu: the CPU's own kernel errs as much ({seen.largest:,.4g})"
    return None


def _overflown(question: Question, witness: AnyArray) -> BoolArray:
    """Where the witness overflows and the reference does not: it excuses an overflow there, and no number."""
    return np.asarray(np.isinf(widen(witness)) & np.isfinite(question.expected))


def _measure_instead(question: Question, finding: Finding, values: AnyArray) -> Noise:
    """The noise of other values in the place of the output."""
    return _measure(replace(question, actual=values), finding.spread)


def _verdict(question: Question, finding: Finding, outcome: Outcome, reason: str = "") -> OutputVerdict:
    measured: dict[str, Metric] = dict(metrics.describe(question.actual, question.expected))
    measured |= {
        "noise_ratio": finding.noise.largest,
        "noise_ratio_limit": finding.limits.largest,
        "noise_rms": finding.noise.rms,
        "noise_rms_limit": finding.limits.rms,
        "k": finding.k,
        "scale_from": finding.source,
    }
    if finding.noise.undecided:
        measured["undecided"] = finding.noise.undecided
    if question.fan_in > noise.FAN_IN_START:
        measured["fan_in"] = question.fan_in
        if question.fan_in_assumed:
            measured["fan_in_assumed"] = True
    worst = elements(question, finding.noise.ratios, finding.noise.ratios) if outcome not in ("pass", "skip") else ()
    return OutputVerdict(
        question.name, question.actual.shape, question.actual.dtype.name, outcome, "noise", reason, measured, worst
    )
