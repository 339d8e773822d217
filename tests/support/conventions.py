"""The conventions that tests measure by: the tools', and one without their slips."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy.typing as npt

from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.dtypes import float_format
from pytest_probe.standards.tools import TOOLS


def own(dtype: npt.DTypeLike, reference: npt.DTypeLike = "float64") -> Convention:
    """NaN and inf by likeness, fractional ULP, nothing small."""
    return Convention(alike=True, ulp="own", ulp_threshold=32.0 if float_format(dtype).name == "float32" else 1.0)


CONVENTIONS: Mapping[str, Callable[..., Convention]] = {
    "own": own,
    **{name: tool.release.convention_of for name, tool in TOOLS.items() if tool.release.rule == "status"},
}
