"""What would explain an error: causes that are tried one after the other on an output that failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from pytest_probe.core.comparison import Assumption, Comparison
from pytest_probe.core.device_modes import ACCUMULATIONS, MODES, Behaviour
from pytest_probe.core.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import BoolArray, float_format
from pytest_probe.numerics.ulp import ulp
from pytest_probe.standards.api_class import details
from pytest_probe.standards.base import Standard
from pytest_probe.standards.device_modes.emulate import closer, emulations, fitted_factor, judged, metrics_text
from pytest_probe.standards.exact import correctly_rounded, identical
from pytest_probe.standards.noise.standard import decide

# What frameworks and models use for eps, 1e-3 to 1e-12, and an eps that was forgotten.
EPS_VALUES = (1e-3, 1e-5, 1e-6, 1e-8, 1e-12, 0.0)
# Of an output's elements: where more are wrong, "a few elements" says nothing.
FEW_SHARE = 0.05
# Of a row's or an edge's elements. Not all of a wrong row need be far off, some are right by chance.
COVERED = 0.5
# Elements: as many as a kernel of 7 x 7 pads. Chosen.
WIDEST_EDGE = 3


@dataclass(frozen=True, slots=True)
class Trouble:
    """An output that failed, and the standard that says so."""

    standard: Standard
    comparison: Comparison
    verdict: OutputVerdict


class Cause(Protocol):
    def explain(self, trouble: Trouble) -> str | None:
        """The cause in words, where it explains the whole error."""


def diagnose(standard: Standard, comparison: Comparison, verdict: OutputVerdict) -> str:
    """The likeliest cause of an error, "" where none of the known ones fits, or where the sign of zero is all of it."""
    # Other judges name what is wrong themselves.
    if verdict.standard not in ("noise", "ties", "exact") or comparison.actual.dtype.kind in "iub":
        return ""
    # Only signs of zeros differ.
    if verdict.metrics.get("mismatch") == 0:
        return ""
    trouble = Trouble(standard, comparison, verdict)
    return next((words for cause in CAUSES if (words := cause.explain(trouble))), "")


@dataclass(frozen=True, slots=True)
class DeviceMode:
    """The output is what a device mode gives, or that but for a few elements."""

    behaviours: Sequence[Behaviour]

    def explain(self, trouble: Trouble) -> str | None:
        nearly = None
        for behaviour in self.behaviours:
            for emulated in emulations(trouble.comparison, behaviour):
                if not self._near(trouble.comparison, emulated, behaviour):
                    continue
                found = judged(trouble.standard, emulated)
                if found is not None and found.verdict == "pass":
                    return self._words(behaviour, found, trouble.verdict)
                where = confined(emulated) if behaviour.rounds and not behaviour.sampled else None
                nearly = nearly or (where and f"behaves as {behaviour.words}, but for {where}")
        return nearly

    def _near(self, comparison: Comparison, emulated: Comparison, behaviour: Behaviour) -> bool:
        if behaviour.sampled:
            return _of_the_size(comparison, emulated)
        return not behaviour.rounds or closer(comparison, emulated)

    def _words(self, behaviour: Behaviour, found: OutputVerdict, verdict: OutputVerdict) -> str:
        like = "errs as much as by" if behaviour.sampled else "behaves as"
        words = f"{like} {behaviour.words}: {metrics_text(found)} instead of {metrics_text(verdict)}"
        return f"{words} (--probe-allow={behaviour.name} accepts it)" if behaviour.name else words


def _of_the_size(comparison: Comparison, emulated: Comparison) -> bool:
    """Is the error as large as the sampled rounding, neither hidden in it nor above?"""
    sizes = [np.abs(run - comparison.expected) for run in emulated.evidence.perturbed(4)]
    size = float(np.median(np.maximum.reduce(sizes)))
    with np.errstate(invalid="ignore", over="ignore"):
        error = float(np.median(np.abs(comparison.actual.astype(comparison.expected.dtype) - comparison.expected)))
    # Chosen: a binade to either side. Of sampled rounding only the size is known.
    return size / 2 < error < size * 2


@dataclass(frozen=True, slots=True)
class OtherArgument:
    """The output is what another value of one argument gives. kind is the class whose details name that argument."""

    kind: str
    values: Sequence[Any]

    def explain(self, trouble: Trouble) -> str | None:
        comparison = trouble.comparison
        for name in details(comparison.classes, self.kind):
            for value in self.values:
                assumption = Assumption(argument=(name, value))
                other = comparison.evidence.alternative(comparison, assumption)
                found = judged(trouble.standard, other) if other is not None and closer(comparison, other) else None
                if found is not None and found.verdict == "pass":
                    change = f"behaves as {name} = {_shown(value)} instead of {_shown(comparison.call.given.get(name))}"
                    return f"{change}: {metrics_text(found)} instead of {metrics_text(trouble.verdict)}"
        return None


def _shown(value: Any) -> str:
    if value is None:
        return "the default"
    return repr(value) if isinstance(value, str) else f"{value:g}"


class Scale:
    """The output is the reference times a number."""

    def explain(self, trouble: Trouble) -> str | None:
        comparison = trouble.comparison
        for factor in _factors(comparison):
            found = judged(trouble.standard, _scaled(comparison, factor))
            if found is not None and found.verdict == "pass":
                times = 1 + float(f"{factor - 1:.2g}")
                return f"all times {times:.12g}: {metrics_text(found)} instead of {metrics_text(trouble.verdict)}"
        return None


def _scaled(comparison: Comparison, factor: float) -> Comparison:
    return replace(
        comparison,
        expected=comparison.expected * factor,
        evidence=comparison.evidence.transformed(lambda run: run * factor),
    )


def _factors(comparison: Comparison) -> Iterator[float]:
    """By least squares, and the number whose multiples round to the output, which says more of narrow dtypes."""
    fitted, error = fitted_factor(comparison)
    if abs(fitted - 1) <= max(error, comparison.roundoff):
        return
    yield fitted
    actual, expected = comparison.actual.astype(np.float64), comparison.expected
    usable = np.isfinite(actual) & (np.abs(expected) > 2.0 ** float_format(comparison.precision).min_exponent)
    if not usable.any():
        return
    half = ulp(actual[usable], comparison.precision) / 2
    ends = [(np.abs(actual[usable]) + side * half) / np.abs(expected[usable]) for side in (-1, 1)]
    least, most = float(ends[0].max()), float(ends[1].min())
    if least <= most:
        yield (least + most) / 2


class Confined:
    """The error is in one place, and the rest of the output is right."""

    def explain(self, trouble: Trouble) -> str | None:
        where = confined(trouble.comparison, exact=trouble.verdict.standard == "exact")
        return where and f"wrong in {where}"


def confined(comparison: Comparison, exact: bool = False) -> str | None:
    """Where an output is wrong, in words, if the rest of it is right and much the larger part."""
    bad = _wrong_exactly(comparison) if exact else _wrong_by_noise(comparison)
    if bad is None or not bad.any():
        return None
    # One wrong element lies in some row and some edge always; those words would say more than is known.
    places = (_tail, _few) if np.count_nonzero(bad) == 1 else (_tail, _slab, _edge, _few)
    return next((words for place in places if (words := place(bad, comparison))), None)


def _wrong_exactly(comparison: Comparison) -> BoolArray:
    return ~identical(comparison.actual, correctly_rounded(comparison.expected, comparison.actual.dtype))


def _wrong_by_noise(comparison: Comparison) -> BoolArray | None:
    stage = decide(comparison)
    bad: BoolArray = stage.noise.ratios > stage.limits.largest
    rest = stage.noise.ratios[~bad]
    within = not rest.size or float(np.sqrt(np.mean(rest**2))) <= stage.limits.rms
    return bad if within else None


def _tail(bad: BoolArray, comparison: Comparison) -> str | None:
    start = int(np.flatnonzero(bad)[0])
    actual, expected = comparison.actual.reshape(-1)[start:], comparison.expected.reshape(-1)[start:]
    if actual.size < 2 or start == 0 or np.count_nonzero(expected) < 2:
        return None
    for words, there in (("zeros", actual == 0), ("NaN", actual != actual)):
        if there.all():
            return f"the tail: {words} from flat index {start:,} on ({actual.size:,} of {bad.size:,} elements)"
    return None


def _slab(bad: BoolArray, comparison: Comparison) -> str | None:
    """All within one index of one axis, or a few at its end."""
    for axis in range(bad.ndim if bad.ndim > 1 else 0):
        extent = bad.shape[axis]
        found = np.flatnonzero(bad.any(axis=tuple(other for other in range(bad.ndim) if other != axis)))
        first, last = int(found[0]), int(found[-1])
        width = last - first + 1
        # Much of the slab must be wrong: a few elements in one row are no wrong row.
        full = np.count_nonzero(bad) * extent >= COVERED * bad.size * width
        if full and (width == 1 < extent or (last == extent - 1 and width * 4 <= extent)):
            return _slab_words(bad.ndim, axis, first, last, extent)
    return None


def _slab_words(rank: int, axis: int, first: int, last: int, extent: int) -> str:
    kind = "row" if axis == 0 else "column" if axis == rank - 1 else "slice"
    if last > first:
        return f"the last {last - first + 1} {kind}s only (from index {first} of axis {axis} on)"
    name = {0: "the first ", extent - 1: "the last "}.get(first, "one ")
    return f"{name}{kind} only (index {first} of axis {axis})"


def _edge(bad: BoolArray, comparison: Comparison) -> str | None:
    """All at the edges of the dimensions behind batch and channel."""
    spatial = bad.shape[2:]
    if not spatial or min(spatial) < 4:
        return None
    distance = np.full(spatial, max(spatial))
    for axis, extent in enumerate(spatial):
        ends = np.minimum(np.arange(extent), np.arange(extent)[::-1])
        distance = np.minimum(distance, ends.reshape([-1 if axis == other else 1 for other in range(len(spatial))]))
    width = int(np.broadcast_to(distance, bad.shape)[bad].max()) + 1
    edge = int(np.count_nonzero(distance < width)) * (bad.size // distance.size)
    if width > min(WIDEST_EDGE, min(spatial) // 2 - 1) or np.count_nonzero(bad) < COVERED * edge:
        return None
    axes = "dimension" if len(spatial) == 1 else f"{len(spatial)} dimensions"
    return f"the edges only (the outer {width} of the last {axes})"


def _few(bad: BoolArray, comparison: Comparison) -> str | None:
    count = int(np.count_nonzero(bad))
    if count > max(1.0, FEW_SHARE * bad.size) or count == bad.size:
        return None
    first = ", ".join(str(int(index)) for index in np.argwhere(bad)[0])
    return f"{count:,} of {bad.size:,} elements{',' if count == 1 else ', first'} at [{first}]"


# The first that explains an error is named. Accumulations, which explain any error of their size, come last.
CAUSES: Sequence[Cause] = (
    DeviceMode([MODES["ftz"]]),
    DeviceMode([MODES["truncate"]]),
    Confined(),
    DeviceMode([MODES[name] for name in ("tf32", "hf32", "bf16x3", "bf16")]),
    OtherArgument("eps", EPS_VALUES),
    OtherArgument("approximate", ("none", "tanh")),
    Scale(),
    DeviceMode([MODES["reduced-reduction"], *ACCUMULATIONS]),
)
