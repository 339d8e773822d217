"""What a run may ask of its cases in place of the plain check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pytest_probe.check.outcome import Checked
    from pytest_probe.model.case import Case


class Question(Protocol):
    """How a case is run for its item. CaseRuns asks the plain question.

    device made the results, "" for the device under test, which then runs. placed: do all results have the place of
    their record? suffix stands behind the names of its items, where a run asks several questions of each case. options:
    what the command that runs an item again has in place of the run's options, by their names, where it asks this
    question alone.
    """

    device: str = ""
    placed: bool = False
    suffix: str = ""
    options: Mapping[str, str] = {}

    def run(self, case: Case) -> Checked:
        """The verdict, and what else the run leaves. What a forward leaves may serve its backward, which comes next."""
