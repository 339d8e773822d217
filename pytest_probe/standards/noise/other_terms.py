"""Sums of which a healthy device takes other terms than the reference does. Elements where zero times NaN, or times an
infinity, decides: some kernels multiply, some leave such terms out. And terms that each lose a part of a roundoff,
towards zero, as those of tensor cores do in 16 bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from pytest_probe.model.comparison import Assumption, Comparison
from pytest_probe.model.device_modes import CUT_SUMS
from pytest_probe.model.verdict import UNDECIDED
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, is_complex, is_floating, widen
from pytest_probe.numerics.noise_ratio import Spread
from pytest_probe.standards.noise.stages import noise_of

# What stands in for NaN and infinities, first one and then the other: what zero takes leaves no trace of either.
STAND_INS = (1.0, -2.0)
# Of what single terms lose: a device that cuts sixteen together loses a tenth. Steps of an eighth are too coarse where
# all loses 8,000 roundoffs.
SHARES = tuple(np.linspace(0.02, 1.0, 50))
CUT_SUMS_WORDS = "sums of products are cut towards zero, as by tensor cores"


class OtherTerms(Struct, frozen=True):
    """The comparison with what a kernel gives that takes other terms, and what is said of the elements that differ."""

    comparison: Comparison
    words: str


def multiplied(comparison: Comparison) -> OtherTerms | None:
    """The output beside a reference that is NaN as well where the framework's own kernels of the CPU are, in the case's
    dtype. None where that is so nowhere, or all arguments are finite."""
    there = np.isnan(widen(comparison.actual)) & np.isfinite(comparison.expected)
    if not there.any() or not any(_stand_ins(comparison)):
        return None
    evidence = comparison.evidence
    kernel = evidence.reference_on_cpu()
    if kernel is None or kernel.shape != there.shape or not (there := there & np.isnan(widen(kernel))).any():
        return None

    return OtherTerms(
        comparison.with_reference(lambda run: np.where(there, np.nan, run)),
        f"{UNDECIDED}{np.count_nonzero(there):,} elements are NaN where the reference has numbers, as in the CPU's own "
        "kernel: zeros, such as those of padding, may have met NaN or an infinity of the arguments",
    )


def left_out(comparison: Comparison) -> OtherTerms | None:
    """The output beside a reference that leaves out terms with a factor of zero, in elements that are numbers where the
    reference is NaN for such a term alone. None where there are none, or where all kernels of the CPU multiply."""
    wide = widen(comparison.actual)
    numbers = np.isnan(comparison.expected) & np.isfinite(wide)
    if not numbers.any() or not (numbers & _differ(comparison)).any():
        return None
    runs = [comparison.evidence.with_arguments(values) for values in _stand_ins(comparison)]
    if len(runs) < len(STAND_INS) or any(run is None or run.shape != wide.shape for run in runs):
        return None
    first, second = (widen(run) for run in runs if run is not None)
    there = numbers & (first == second)
    if not there.any():
        return None

    return OtherTerms(
        comparison.with_reference(lambda run: np.where(there, first, run)),
        f"{UNDECIDED}{np.count_nonzero(there):,} elements are numbers where the reference is NaN: there zero meets NaN "
        "or an infinity of the arguments, and of the CPU's own kernels some leave such terms out",
    )


def _differ(comparison: Comparison) -> BoolArray:
    """Where a kernel of the CPU has a number and the reference, by another, NaN."""
    evidence = comparison.evidence
    kernels = [evidence.cpu_result(), *evidence.float32(1)]
    found: BoolArray = np.zeros(comparison.expected.shape, dtype=bool)
    for values in kernels:
        if values is not None and values.shape == found.shape:
            found |= np.isfinite(widen(values)) & np.isnan(comparison.expected)
    return found


def _stand_ins(comparison: Comparison) -> Iterator[Mapping[str, AnyArray]]:
    """The arguments and incoming gradients that are not finite, with numbers in place of NaN and infinities; each of
    them twice."""
    call = comparison.call
    given = {call.paths.get(name, name): value for name, value in call.given.items()}
    if comparison.direction == "backward":
        given |= {f"incoming.{name}": value for name, value in comparison.case.incoming.items()}
    odd = {
        path: value
        for path, value in given.items()
        if isinstance(value, np.ndarray) and (is_floating(value.dtype) or is_complex(value.dtype))
        if not np.isfinite(widen(value)).all()
    }
    if odd:
        for number in STAND_INS:
            yield {
                path: np.where(np.isfinite(widen(value)), value, np.asarray(number, value.dtype)).astype(value.dtype)
                for path, value in odd.items()
            }


def with_cut_sums(comparison: Comparison, spread: Spread | None) -> Comparison | None:
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
        shifted = {share: comparison.moved_by(share * lost) for share in (0.0, *SHARES)}
    noise = {share: noise_of(each, spread).rms for share, each in shifted.items()}
    share = min(noise, key=lambda each: noise[each])
    return shifted[share] if share else None
