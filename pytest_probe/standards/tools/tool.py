"""What a tool's standard says of itself: everything that knows tools derives from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy.typing as npt

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.conventions import Convention
from pytest_probe.standards.tools.table import Table, packaged
from pytest_probe.standards.tools.thresholds import DtypeLimits, thresholds


class Tool(ABC):
    """A standard that a tool has set. Each is a class in a module of its own, and stands in this package's list.

    name is that of --probe-standard, help one line for the list of standards.
    """

    name: ClassVar[str]
    help: ClassVar[str]

    def __init__(self, table: Table | None = None) -> None:
        self.table = table or packaged()

    @abstractmethod
    def judge(self, comparison: Comparison) -> OutputVerdict:
        """The verdict. Raises Unsupported where the tool has none for such an output."""

    def rule_of(self, api: str, dtype: str) -> str:
        """The rule whose columns the tool's comparison wants filled for a floating dtype."""
        return packaged().rule(api, dtype).name


class ThresholdTool(Tool):
    """A tool with thresholds of its own, under which the columns of msprobe's files are filled.

    limits are those of an output's dtype; counts_ulp: does it take distances in ULP?
    """

    limits: ClassVar[Mapping[str, DtypeLimits]]
    counts_ulp: ClassVar[bool] = True

    @classmethod
    def convention(cls, dtype: npt.DTypeLike, reference: npt.DTypeLike = "float64") -> Convention:
        """For outputs of a floating or complex dtype, compared with a reference of another."""
        return thresholds(cls.limits, dtype, reference, counts_ulp=cls.counts_ulp)
