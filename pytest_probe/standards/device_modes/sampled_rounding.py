"""Rounding that is known by its size alone: samples of it are among the runs of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.model.comparison import Assumption, Comparison, Evidence, RunKind
from pytest_probe.model.device_modes import Behaviour, Mode
from pytest_probe.numerics import allowed_scale, noise_ratio
from pytest_probe.numerics.dtypes import AnyArray, round_to, ulp, widen
from pytest_probe.standards.device_modes.signature import MOST_LOST, fitted_factor, share
from pytest_probe.standards.exact import correctly_rounded

# Sampled rounding is what the device does, but for where: limits of 8 and 1.
_SAMPLED_RMS = 1.0
# Rounding has no direction: a common factor this many times its standard error away from 1 is something else.
_SCALED_T = 6.0
# Of the share of elements that the mode would change. Chosen: a device that rounds so changes about as many, one that
# does not changes next to none.
_IN_USE = 0.25
# Least share of what samples lose that an output shows where it was cut, and standard errors that it is away from zero,
# or that the share of the right sample is away from 1.
# Chosen: a device that cuts at one bit later loses half; sums that are rounded to nearest lose nothing on average.
_LEAST_LOST, _SHARE_ERRORS = 0.15, 4.0


class SampledEvidence(Evidence, Struct, frozen=True):
    """Another evidence's runs, and samples of a mode's rounding among the perturbed ones. signed: errors must have the
    signature of these."""

    source: Evidence
    samples: list[AnyArray]
    signed: bool

    def runs(self, kind: RunKind, count: int) -> list[AnyArray]:
        if kind == "perturbed_less":
            return []  # samples do not shrink with the inputs: next to them each element would seem to jump
        plain = self.source.runs(kind, count)
        shown = self.samples if self.signed and count else self.samples[:count]
        return plain + shown if kind == "perturbed" else plain

    def alternative(self, comparison: Comparison, assumption: Assumption) -> Comparison | None:
        return self.source.alternative(comparison, assumption)


def of_sampled_rounding(comparison: Comparison, behaviour: Behaviour) -> Iterator[Comparison]:
    """The comparison with the mode's own rounding among its runs, and limits as close as sampled rounding deserves."""
    # Is the output the reference times a number that is not 1, beyond what chance gives?
    factor, error = fitted_factor(comparison)
    scaled, variants = abs(factor - 1) > _SCALED_T * error, behaviour.variants
    if scaled and not behaviour.centred and not all(mode.approximate for mode in variants):
        return
    samples = samples_of(comparison, variants)
    # A common factor, or an output that the mode left as it was, is no sampled rounding.
    if not samples or not _in_use(comparison, samples):
        return
    if behaviour.centred:
        yield from _cut_sums(comparison, samples)
    elif not scaled or _approximated(comparison, samples):
        yield with_samples(comparison, samples)


def samples_of(comparison: Comparison, modes: Sequence[Mode], first: int = 0) -> list[AnyArray]:
    """What modes give, each in a sample of its rounding; fewer where one changes nothing."""
    found = (
        comparison.evidence.alternative(comparison, Assumption(mode, sample=index))
        for index, mode in enumerate(modes, first)
    )
    return [other.expected for other in found if other is not None]


def with_samples(comparison: Comparison, samples: list[AnyArray], *, signed: bool = False) -> Comparison:
    # Both limits shrink by what brings that of the RMS to _SAMPLED_RMS, but where errors must have a signature.
    close = 1.0 if signed else _SAMPLED_RMS / noise_ratio.usual_limits(comparison.elementwise).rms
    allowance = replace(comparison.allowance, factor=comparison.allowance.factor * close, emulated=True)
    evidence = SampledEvidence(comparison.evidence, list(samples), signed)
    return replace(comparison, evidence=evidence, allowance=allowance)


def _cut_sums(comparison: Comparison, samples: list[AnyArray]) -> Iterator[Comparison]:
    """The comparison to each sample that the output may be, to the last place; then with what the nearest one loses
    added to the reference, as much of it as the output shows: what a device cuts differs from one generation to the
    next. That only where it is shown beyond chance: few elements, or ones of 16 bits, may lie as far off otherwise."""
    expected, dtype = comparison.expected, comparison.actual.dtype
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        losses = [sample - expected for sample in samples]
        # What an element may be off by: what is cut, and the rounding of the result.
        size = np.maximum(np.max(np.abs(losses), axis=0), ulp(expected, dtype) / 2)
        found = (widen(comparison.actual) - expected) / size
        shown = [share(loss / size, found) for loss in losses]
    order = sorted(range(len(losses)), key=lambda place: -shown[place][0] / shown[place][1])
    for place in order:
        if abs(shown[place][0] - 1) <= _SHARE_ERRORS * shown[place][1]:
            allowance = replace(comparison.allowance, emulated=True)
            yield replace(comparison.moved_by(losses[place]), allowance=allowance)
    most, error = shown[order[0]]
    if most >= max(_LEAST_LOST, _SHARE_ERRORS * error):
        by = np.clip(most, 0.0, MOST_LOST) * losses[order[0]]
        yield with_samples(comparison.moved_by(by), samples)


def _in_use(comparison: Comparison, samples: Sequence[AnyArray]) -> bool:
    """Does the output differ from the correctly rounded reference about as often as the mode makes it? Where most of
    it does not, the mode was not in use, and does not explain the rest."""
    wanted = correctly_rounded(comparison.expected, comparison.actual.dtype)
    usual = np.mean([np.mean(round_to(sample, comparison.actual.dtype) != wanted) for sample in samples])
    return bool(np.mean(comparison.actual != wanted) >= _IN_USE * usual)


def _approximated(comparison: Comparison, samples: Sequence[AnyArray]) -> bool:
    """Is the common factor within what an approximation errs by? Its error depends on the argument and not on chance,
    so that it need not have a mean of zero."""
    usable = np.isfinite(comparison.expected) & (comparison.expected != 0)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        errors = [np.abs(sample / comparison.expected - 1)[usable] for sample in samples]
    usual = allowed_scale.root_mean_square(np.concatenate(errors))
    return abs(fitted_factor(comparison)[0] - 1) <= usual
