"""Outputs that a float64 run does not define: by the output's own dtype, or by nothing."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from pytest_probe.errors import NoReference
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.standards.exact import Exact


class OwnDtype:
    """Bit for bit NumPy's function of the same name in the output's dtype: nextafter and the like."""

    name = "own_dtype"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        arguments = comparison.call.arrays
        if len(arguments) != len(comparison.call.given):
            raise NoReference(f"{comparison.call.name} is defined by its dtype, and not all arguments are tensors")
        wanted = getattr(np, comparison.call.name)(*arguments)
        verdict = Exact().judge(replace(comparison, expected=wanted.astype(comparison.expected.dtype)))
        return replace(verdict, standard=self.name)


class Uninitialised:
    """Any values pass: shape and dtype are checked before, and nothing else is defined."""

    name = "uninitialised"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        return OutputVerdict(comparison.name, comparison.actual.shape, comparison.actual.dtype.name, "pass", self.name)
