"""All numbers of a dtype of 16 bit, as one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pytest_probe.features.fuzz.drawn import DrawnCall, DrawnTensor
from pytest_probe.features.fuzz.templates import Template, TensorSlot
from pytest_probe.model.arguments import Arguments, Leaf
from pytest_probe.numerics.dtypes import NARROW_DTYPES, numpy_dtype

_COUNT = 1 << 16


def every_input(templates: Sequence[Template]) -> Iterator[tuple[DrawnCall, Arguments]]:
    """For each dtype of 16 bit that is drawn for a function of one tensor element by element: the call on all its
    numbers, NaN once."""
    for template in templates:
        slots = list(template.slots.values())
        if len(slots) != 1 or not isinstance(slots[0], TensorSlot) or slots[0].pattern.words != ("*s",):
            continue
        # What computes with more than its result's own numbers is not given all of them.
        if slots[0].dtype or template.power or template.finite or template.largest < np.inf:
            continue
        for dtype in (dtype for dtype in template.dtypes if dtype in NARROW_DTYPES):
            yield _call(template, dtype)


def _call(template: Template, dtype: str) -> tuple[DrawnCall, Arguments]:
    numbers = np.arange(_COUNT, dtype=np.uint16).view(numpy_dtype(dtype))
    with np.errstate(invalid="ignore"):
        unknown = np.isnan(numbers)
    numbers = np.concatenate([numbers[~unknown], numbers[unknown][:1]])
    tensor = DrawnTensor(numbers.shape, dtype, regime="every number", requires_grad=True)
    args, kwargs = template.signatures.call(template.api, {next(iter(template.slots)): tensor})
    return DrawnCall(template.api, args, kwargs, 0, template.signatures), Arguments((Leaf(numbers, True),), {}, ())
