"""Products whose operands a device rounds, such as TF32's, with its own way to break ties, to cut and to transform."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Assumption, Comparison
from pytest_probe.model.device_modes import CUT_SUMS, Behaviour, Cut, Mode
from pytest_probe.numerics import noise_ratio
from pytest_probe.numerics.dtypes import AnyArray, round_to, ulp, widen
from pytest_probe.numerics.noise_ratio import Limits
from pytest_probe.standards.device_modes.sampled_rounding import samples_of, with_samples
from pytest_probe.standards.device_modes.signature import SAMPLES, fitted_factor, parts, relative_size, shares
from pytest_probe.standards.noise.explanation import Stage
from pytest_probe.standards.noise.stages import scale_of
from pytest_probe.standards.noise.standard import decide
from pytest_probe.standards.noise.summed_terms import may_use_winograd

# Of the size of a variant's samples: what is larger no other variant explains, and what is smaller has no tiles.
_TOO_LARGE, _TOO_SMALL = 200.0, 0.75
# Elements of an output that is compared with all samples at once.
_MANY = 1 << 16
# How much larger or smaller in the middle errors are than a mode's. Chosen: HF32's are half of TF32's.
_ALIKE = 1.5


def of_rounded_operands(comparison: Comparison, behaviour: Behaviour) -> Iterator[Comparison]:
    """The comparison with each variant's rounding among its runs, of which few are made first; then nearer to what
    operands give that are cut."""
    stage: Stage | None = None
    for mode in behaviour.variants:
        if mode.tiles and not (may_use_winograd(comparison) and comparison.call.argument("groups") == 1):
            return
        samples: list[AnyArray] = []
        # Of many elements a few lie farther off than a few samples show.
        for count in SAMPLES if comparison.actual.size < _MANY else SAMPLES[-1:]:
            samples += samples_of(comparison, [mode] * (count - len(samples)), len(samples))
            if len(samples) < count:
                return  # no products in this call
            stage, sizes = stage or decide(comparison), []
            for by in _shifts(comparison, mode):
                moved, shifted = comparison.moved_by(by), [run + by for run in samples]
                sizes.append(relative_size(moved, shifted))
                if not mode.tiles or sizes[0] > _TOO_SMALL:
                    yield _nearer(with_samples(moved, shifted, signed=True), stage, tiled=mode.tiles > 0)
            if min(sizes) > _TOO_LARGE:
                return


def _shifts(comparison: Comparison, mode: Mode) -> Iterator[AnyArray]:
    """None of the reference; and what products are smaller by whose operands, or sums, are cut, as much of it as the
    output is."""
    yield np.zeros(comparison.expected.shape)
    losses = _losses(comparison, mode)
    if losses:
        yield np.tensordot(_shares(comparison, losses), losses, 1)


def _losses(comparison: Comparison, mode: Mode) -> list[AnyArray]:
    """What is lost where operands are cut, element by element and, by a device with transforms of its own, on average;
    and where sums are."""
    cuts: tuple[Cut, ...] = ("both", "first", "second")
    both, *others = (_lost(comparison, each) for each in [*(replace(mode, cut=cut) for cut in cuts), CUT_SUMS])
    factor = fitted_factor(replace(comparison, actual=comparison.expected + both))[0]
    return [loss for loss in (both, *others, comparison.expected * (factor - 1)) if np.any(loss)]


def _lost(comparison: Comparison, mode: Mode) -> AnyArray:
    other = comparison.evidence.alternative(comparison, Assumption(mode)) or comparison
    with np.errstate(invalid="ignore"):
        lost = other.expected - comparison.expected
    return np.where(np.isfinite(lost), lost, 0.0)


def _shares(comparison: Comparison, losses: list[AnyArray]) -> list[float]:
    """How much an output shows of each loss."""
    expected, actual = parts(comparison.expected), parts(widen(comparison.actual))
    apart = [parts(loss) for loss in losses]
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.maximum.reduce([*map(np.abs, apart), ulp(expected, comparison.precision) / 2])
        return shares([loss / size for loss in apart], (actual - expected) / size)


def is_as_large(comparison: Comparison, emulated: Comparison, behaviour: Behaviour) -> bool:
    """Are errors as large as where operands are rounded, and neither hidden in that nor above?"""
    samples = samples_of(comparison, behaviour.variants[:1] * SAMPLES[0])
    if emulated.expected is comparison.expected:
        return 1 / _ALIKE < relative_size(comparison, samples) < _ALIKE
    losses = _losses(comparison, behaviour.variants[0])[:1]
    return bool(losses) and _shares(comparison, losses)[0] > 1 / _ALIKE


def _nearer(comparison: Comparison, stage: Stage, *, tiled: bool) -> Comparison:
    """The comparison to an output that is nearer to the reference by what the arithmetic inside explains of each error,
    and of all: little next to a mode's rounding, but where many terms of one sign are summed."""
    limits = stage.limits
    if not tiled and may_use_winograd(comparison):
        limits = Limits(limits.largest / noise_ratio.WINOGRAD_LARGEST, limits.rms / noise_ratio.WINOGRAD_RMS)
    with np.errstate(invalid="ignore", over="ignore"):
        error = widen(comparison.actual) - comparison.expected
        scale = scale_of(comparison, stage.spread)
        granted = scale * noise_ratio.cap(np.abs(error) / scale, limits)
        rest = error * np.maximum(0.0, 1 - granted / np.maximum(np.abs(error), granted))
        actual = round_to(comparison.expected + rest, comparison.actual.dtype)
    return replace(comparison, actual=np.where(np.isfinite(rest), actual, comparison.actual))
