"""Which cases a report shows in detail, and those details.

Each process does so for errors, warnings and its 200 worst others so far, of which about 200 ln(N / 200) turn out not
to be among the worst.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappush, heapreplace
from typing import TYPE_CHECKING

from pytest_probe.model.verdict import Verdict
from pytest_probe.system.text import printable_line

if TYPE_CHECKING:
    from pytest_probe.check import Checked
    from pytest_probe.check.digits import Digits
    from pytest_probe.model.details import Details

# How many passing cases, the nearest to their limits, are shown in detail.
MAX_DETAILED_PASSES = 200


class ShownInDetail:
    """Chooses while the run goes on: errors, warnings, and other cases that are among the worst so far."""

    def __init__(self) -> None:
        self._worst: list[float] = []

    def takes(self, verdict: Verdict) -> bool:
        """Is a case with this verdict shown in detail?"""
        if verdict.verdict != "pass":
            return verdict.verdict != "skip"
        from pytest_probe.model.details import limit_share

        share = max((limit_share(output.metrics) or 0.0 for output in verdict.outputs), default=0.0)
        if len(self._worst) < MAX_DETAILED_PASSES:
            heappush(self._worst, share)
            return True
        if share <= self._worst[0]:
            return False
        heapreplace(self._worst, share)
        return True


def details_of(checked: Checked, verdict: Verdict, command: str, digits: Iterable[Digits] = ()) -> Details:
    """What is shown of a case: its verdict may have been changed since it was checked."""
    from pytest_probe.features.html.plots import arguments_of, operands_of, plots_of
    from pytest_probe.model.details import Details
    from pytest_probe.records import user_frame

    case = checked.case
    stack = case.dump.stack(f"{case.record.name}.{case.direction}")
    rows = verdict.arguments or arguments_of(checked)
    right = {printable_line(each.output): str(each) for each in digits}
    return Details.of(command, rows, stack, user_frame(stack), plots_of(checked, verdict), right, operands_of(checked))
