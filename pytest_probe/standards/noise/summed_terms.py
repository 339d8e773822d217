"""How many terms meet in one element of an output: what limits on accumulated rounding grow with."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.numerics.dtypes import AnyArray, is_floating, is_packed, widen
from pytest_probe.numerics.noise_ratio import FAN_IN_START
from pytest_probe.standards.tables import details

# How often a number stands in a tensor whose copies are equal terms of a sum; half of all are such copies, or more.
REPEATED = 8
# A convolution may be computed by Winograd's F4 where its kernel has 3 places or more and moves by one.
WINOGRAD_KERNEL = 3


class Terms(Struct, frozen=True):
    """Terms of one element, and whether that is only assumed, since the API is in no list."""

    count: int
    assumed: bool = False


def summed_terms(comparison: Comparison) -> Terms:
    """The terms of one element of this output, or gradient.

    A gradient has as many as forward output elements go into it. An API in no list is assumed to sum over all of its
    largest argument.
    """
    if comparison.terms is not None:
        return Terms(comparison.terms)
    classes, gradient = comparison.classes, not comparison.name.startswith(("output", "input"))
    forward = max((int(np.size(value)) for value in comparison.case.reference.values()), default=1)
    # Elements of the output, or gradient, as the call has it: a judge may compare sums of them.
    found = comparison.call.at(comparison.name.removeprefix("grad."))
    size = max(found.size if isinstance(found, np.ndarray) else comparison.expected.size, 1)
    terms = _of_product(comparison)
    if terms is not None:
        return Terms(max(1, forward * terms // size) if gradient else terms)
    # Of broadcast arguments a gradient sums what was shown several times.
    if comparison.elementwise or not classes.isdisjoint(("exact", "writes")):
        return Terms(max(1, forward // size))
    arrays = _arrays(comparison)
    largest = max((array.size for array in arrays), default=forward)
    if "terms_of_reduction" in classes:
        return Terms(max(1, max(largest, forward) // size))
    rows = arrays[0].shape if arrays else ()
    if "terms_of_row" in classes and rows:
        return Terms(max(max(rows), forward // size) if gradient else max(rows))
    return Terms(max(largest, forward), assumed=True)


def of_few_terms(comparison: Comparison) -> Comparison:
    """The comparison without the terms that it is assumed to be a sum of."""
    if not summed_terms(comparison).assumed:
        return comparison
    return replace(comparison, terms=FAN_IN_START if "attention" in comparison.classes else 1)


def repeats(comparison: Comparison) -> bool:
    """Does the API sum its input, or its exponentials, and are most terms equal? Zeros are terms of what subtracts
    a mean first; they count where the reference can run in sequence, which shows what they lose.

    A lost term of 2,000 equal ones stays within such limits: a user's function gets them for an API that is named, not
    for what it is compared with.
    """
    if comparison.case.inferred:
        return False
    values = comparison.call.argument("input")
    sums = comparison.classes & {"terms_of_reduction", "terms_of_row", "terms_of_exponentials"}
    if not sums or not isinstance(values, np.ndarray) or not is_floating(values.dtype) or not values.size:
        return False
    terms = [each for each in terms_of(comparison, widen(values)) if _mostly_equal(each)]
    if not terms or comparison.evidence.added("sequence") is not None:
        return bool(terms)
    return any(_mostly_equal(each[each != 0]) for each in terms)


def _mostly_equal(values: AnyArray) -> bool:
    counts = np.unique(values, return_counts=True)[1]
    return bool(0 < counts.sum() <= 2 * counts[counts >= REPEATED].sum())


def terms_of(comparison: Comparison, values: AnyArray) -> list[AnyArray]:
    """The numbers, and their exponentials where those are added."""
    if "terms_of_exponentials" not in comparison.classes:
        return [values]
    with np.errstate(invalid="ignore"):
        return [values, np.exp(values - values.max()).astype(np.float32)]


def _arrays(comparison: Comparison) -> list[AnyArray]:
    """The arguments that are arrays, those inside lists as well. Of a list that has one output for each of its arrays,
    as norms of gradients do, the output's own."""
    call = comparison.call
    lists = [value for value in call.given.values() if isinstance(value, (list, tuple)) and value]
    inside = [value for values in lists for value in values if isinstance(value, np.ndarray)]
    if len(inside) == len(comparison.case.reference) > 1 and not call.arrays:
        _, _, place = comparison.name.rpartition(".")
        return [inside[int(place)]] if place.isdigit() and int(place) < len(inside) else inside
    return call.arrays + inside


def _of_product(comparison: Comparison) -> int | None:
    """Terms of one forward output of a product or convolution; None for any other API."""
    weight = comparison.call.argument("weight")
    if "terms_of_kernel" in comparison.classes and isinstance(weight, np.ndarray):
        return int(np.prod(weight.shape[1:], dtype=np.int64))
    if "terms_of_transposed_kernel" in comparison.classes and isinstance(weight, np.ndarray):
        return int(weight.shape[0] * np.prod(weight.shape[2:], dtype=np.int64))
    for name in details(comparison.classes, "terms_of_last_dimension"):
        operand = comparison.call.argument(name)
        if isinstance(operand, np.ndarray):
            return operand.shape[-1] * (2 if is_packed(operand) else 1) if operand.shape else 1
    return None


def may_use_winograd(comparison: Comparison) -> bool:
    """Is it a convolution that may be computed by Winograd's F4?"""
    weight = comparison.call.argument("weight") if "terms_of_kernel" in comparison.classes else None
    if not isinstance(weight, np.ndarray):
        return False
    stride = comparison.call.argument("stride")
    strides = stride if isinstance(stride, (list, tuple)) else [stride]
    return max(weight.shape[2:], default=1) >= WINOGRAD_KERNEL and all(step == 1 for step in strides)
