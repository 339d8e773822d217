"""One case on one device: run both sides, ask the standard, and say what was found.

In: a case and the conditions of a run. Out: a verdict, and what the record's other direction may use.
"""

from pytest_probe.core.case import Case, floating_dtypes
from pytest_probe.execution.checked import Checked, PreparedCall
from pytest_probe.execution.checker import Checker, preview
from pytest_probe.execution.conditions import Conditions

__all__ = ["Case", "Checked", "Checker", "Conditions", "PreparedCall", "floating_dtypes", "preview"]
