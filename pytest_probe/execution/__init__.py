"""One case on one device: run both sides, ask the standard, and say what was found."""

from pytest_probe.execution.case import Case, floating_dtypes
from pytest_probe.execution.checker import Checker, Lent, preview
from pytest_probe.execution.conditions import Conditions, load_framework

__all__ = ["Case", "Checker", "Conditions", "Lent", "floating_dtypes", "load_framework", "preview"]
