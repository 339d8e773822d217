"""What a standard is."""

from __future__ import annotations

from typing import Protocol

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict


class Standard(Protocol):
    """A rule that turns one output's metrics into a verdict."""

    @property
    def name(self) -> str: ...

    def judge(self, comparison: Comparison) -> OutputVerdict:
        """The verdict. Raises Unsupported where the standard has none for such an output."""
