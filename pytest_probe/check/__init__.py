"""One case on one device: run both sides, ask the standard, and say what was found.

In: a case and a run's request. Out: a verdict, and what the record's other direction may use.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pytest_probe.model.case import Case, floating_dtypes

if TYPE_CHECKING:
    from pytest_probe.check.check import CaseRuns as CaseRuns
    from pytest_probe.check.check import Checker as Checker
    from pytest_probe.check.check import preview as preview
    from pytest_probe.check.engines import RunRequest as RunRequest
    from pytest_probe.check.outcome import CaseOutcome as CaseOutcome
    from pytest_probe.check.outcome import PreparedCall as PreparedCall
    from pytest_probe.check.outcome import Question as Question

__all__ = [
    "Case",
    "CaseOutcome",
    "CaseRuns",
    "Checker",
    "PreparedCall",
    "Question",
    "RunRequest",
    "floating_dtypes",
    "preview",
]
# A process that hands its cases to others runs none, and its start is paid for by each run.
_EXPORTS = {
    "CaseOutcome": "outcome",
    "PreparedCall": "outcome",
    "CaseRuns": "check",
    "Checker": "check",
    "preview": "check",
    "RunRequest": "engines",
    "Question": "outcome",
}


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)


class _CallableRoom(ModuleType):
    """`pytest_probe.check(...)` is a call, though the name is this package's."""

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        from pytest_probe.check.notebook import check

        return check(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableRoom
