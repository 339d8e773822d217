"""The conventions that tests measure by: the tools', and one without their slips."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy.typing as npt

from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.dtypes import float_format
from pytest_probe.standards.tools.mindspore import MindSpore
from pytest_probe.standards.tools.msprobe_1_0 import Msprobe10
from pytest_probe.standards.tools.msprobe_8 import Msprobe8
from pytest_probe.standards.tools.msprobe_26 import Msprobe26
from pytest_probe.standards.tools.paddleapex import PaddleApex
from pytest_probe.standards.tools.ptdbg import Ptdbg


def own(dtype: npt.DTypeLike, reference: npt.DTypeLike = "float64") -> Convention:
    """NaN and inf by likeness, fractional ULP, nothing small."""
    return Convention(alike=True, ulp="own", ulp_threshold=32.0 if float_format(dtype).name == "float32" else 1.0)


CONVENTIONS: Mapping[str, Callable[..., Convention]] = {
    "own": own,
    **{tool.name: tool.convention for tool in (Msprobe10, Msprobe8, Msprobe26, PaddleApex, MindSpore, Ptdbg)},
}
