"""What an output that failed looks like: how much is wrong, where, and the first cause that explains it.

A family of causes is a Recogniser, CAUSES lists them, the most specific first. A cause is looked for with runs for 50
errors of an API, and for ten if they found none. A change of arguments is run only if it may explain what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np

from pytest_probe.model.comparison import Comparison, Standard
from pytest_probe.model.device_modes import ACCUMULATIONS, MODES
from pytest_probe.model.verdict import Diagnosis, OutputVerdict
from pytest_probe.numerics import regions, statistics
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, is_complex, widen
from pytest_probe.standards.diagnosis.arguments import changed_argument
from pytest_probe.standards.diagnosis.copies import argument, moved, other_output
from pytest_probe.standards.diagnosis.failed_output import (
    Recogniser,
    failed_output,
    part_of,
    wrong_elements,
)
from pytest_probe.standards.diagnosis.groups import wrong_groups
from pytest_probe.standards.diagnosis.precision import (
    DeviceMode,
    cancelled,
    integer_step,
    narrower_result,
    one_step,
    rounded_inside,
)
from pytest_probe.standards.diagnosis.ranges import constant, not_finite, value_range
from pytest_probe.standards.diagnosis.scaled import wrong_scales
from pytest_probe.standards.diagnosis.terms import (
    Combination,
    Factor,
    power,
    sign,
    slice_factor,
    slice_offset,
    slice_term,
)
from pytest_probe.standards.exact import distances

# Judges that compare no element with an element name what is wrong themselves.
_OWN_WORDS = frozenset(("random", "factorisation", "uninitialised", "structure", "mutated", "equal inputs"))
# Elements that recognisers look at: of a larger output the part of it that is most wrong.
_PART = 1 << 21

CAUSES: Sequence[Recogniser] = (
    not_finite,
    DeviceMode([MODES["ftz"]]),
    DeviceMode([MODES["truncate"]]),
    wrong_scales,
    wrong_groups,
    constant,
    sign,
    other_output,
    argument,
    moved,
    narrower_result,
    one_step,
    integer_step,
    DeviceMode([MODES[name] for name in ("tf32", "hf32", "bf16x3", "bf16")]),
    Factor(),
    changed_argument,
    Factor(near_one=True),
    power,
    slice_term,
    Combination(sliced=False),
    slice_factor,
    slice_offset,
    Combination(sliced=True),
    value_range,
    DeviceMode([MODES["reduced-reduction"], MODES["short-accumulation"], *ACCUMULATIONS]),
    cancelled,
    rounded_inside,
)


# How far to search for a cause; quick: only causes that need no run of the reference.
Depth: TypeAlias = Literal["none", "quick", "whole"]
# They ask for such runs, some for hundreds.
_RUNNING = tuple(cause for cause in CAUSES if isinstance(cause, DeviceMode) or cause is changed_argument)


def diagnose(
    standard: Standard, comparison: Comparison, verdict: OutputVerdict, depth: Depth = "whole"
) -> Diagnosis | None:
    """What is wrong with an output that failed; None for one that is not judged element by element.

    Arrays of one shape: a number, a place, a cause. Where only the sign of zeros differs there is no cause.
    """
    if verdict.standard in _OWN_WORDS or not comparison.actual.size or comparison.actual.dtype.kind not in "biufcV":
        return None
    wrong, allowed = wrong_elements(comparison, verdict)
    return diagnose_elements(standard, comparison, verdict, wrong, allowed, depth) if wrong.any() else None


def diagnose_elements(
    standard: Standard,
    comparison: Comparison,
    verdict: OutputVerdict,
    wrong: BoolArray,
    allowed: AnyArray,
    depth: Depth = "whole",
    causes: Sequence[Recogniser] = CAUSES,
) -> Diagnosis:
    """What is wrong with an output of whose elements at least one is wrong; allowed is the distance that each of them
    is allowed, both of the output's shape. causes are tried in their order."""
    where = regions.describe(wrong, _names(comparison))
    cause, by_runs, unit = None, False, "" if comparison.actual.dtype.kind in "iub" else " ULP"
    if not is_complex(comparison.actual.dtype):
        part = part_of(failed_output(standard, comparison, verdict, wrong, allowed, where), _PART)
        with np.errstate(all="ignore"):
            for recogniser in causes:
                runs = any(recogniser is each for each in _RUNNING)
                cause = recogniser(part) if depth == "whole" or not runs else None
                if cause is not None:
                    by_runs = runs
                    break
    return Diagnosis(
        wrong=int(np.count_nonzero(wrong)),
        size=wrong.size,
        not_finite=_not_finite(comparison),
        errors=f"{statistics.spread_line(distances(comparison))}{unit}",
        where=where,
        cause=cause.description if cause else "",
        family=cause.family if cause else "",
        quick=depth == "quick",
        by_runs=by_runs,
    )


def _not_finite(comparison: Comparison) -> Mapping[str, tuple[int, int]]:
    """How many elements are NaN, inf and -inf, on the device's side and on the reference's; without those of none."""
    if comparison.actual.dtype.kind in "iub":
        return {}
    sides = [widen(side) for side in (comparison.actual, comparison.expected)]
    kinds = {"NaN": np.isnan, "inf": np.isinf}
    counts = {name: [int(np.count_nonzero(is_such(side))) for side in sides] for name, is_such in kinds.items()}
    return {name: (found[0], found[1]) for name, found in counts.items() if any(found)}


def _names(comparison: Comparison) -> Mapping[int, str]:
    """What dimensions mean, if known for the API."""
    rank, classes = comparison.actual.ndim, comparison.classes
    if "attention" in classes and rank == 4:
        return {1: "head"}
    channels = {"terms_of_kernel", "terms_of_transposed_kernel", "windows", "running_statistics"}
    weight = comparison.name in ("grad.input.1", "grad.kwargs.weight")
    return {1: "channel"} if classes & channels and rank > 2 and not weight else {}


__all__ = ["CAUSES", "Depth", "diagnose", "diagnose_elements"]
