"""Sums that lose a part of a roundoff with each term, towards zero, as those of tensor cores do in 16 bit."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Assumption, Comparison
from pytest_probe.model.device_modes import CUT_SUMS
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.noise_ratio import Spread
from pytest_probe.standards.noise.stages import noise_of

# Of what single terms lose: a device that cuts sixteen together loses a tenth. Steps of an eighth are too coarse where
# all loses 8,000 roundoffs.
SHARES = tuple(np.linspace(0.02, 1.0, 50))
WORDS = "sums of products are cut towards zero, as by tensor cores"


def beside(comparison: Comparison, spread: Spread | None) -> Comparison | None:
    """The comparison with the reference that loses what the device may have lost; None where sums are not made by
    tensor cores, or lose nothing. spread is the scatter of the runs that the output was judged by.

    How many terms are cut together, and to how many digits, differs from one generation to the next: of the shares of
    what single terms would lose, that counts which leaves the least noise in the output as a whole.
    """
    if comparison.case.on_cpu or not comparison.case.narrow or comparison.expected.dtype.kind != "f":
        return None
    other = comparison.evidence.alternative(comparison, Assumption(CUT_SUMS))
    if other is None or not other.expected.shape:
        return None
    with np.errstate(invalid="ignore"):  # of equal infinities
        lost = other.expected - comparison.expected
    lost = np.where(np.isfinite(lost), lost, 0.0)
    if not lost.any():
        return None
    noise = {share: noise_of(_shifted(comparison, share * lost), spread).rms for share in (0.0, *SHARES)}
    share = min(noise, key=lambda each: noise[each])
    return _shifted(comparison, share * lost) if share else None


def _shifted(comparison: Comparison, by: AnyArray) -> Comparison:
    evidence = comparison.evidence.transformed(lambda run: run + by)
    return replace(comparison, expected=comparison.expected + by, evidence=evidence)
