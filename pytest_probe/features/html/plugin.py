"""--probe-html: a page about the run; and what plots and tables of a case draw, which --probe-out keeps for a page.

Each process chooses the cases that are shown in detail: errors, warnings and its 200 worst others so far, of which
about 200 ln(N / 200) turn out not to be among the worst.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import heappush, heapreplace
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.check.judging import argument_rows
from pytest_probe.check.outcome import CaseOutcome
from pytest_probe.errors import BrokenCall
from pytest_probe.model.details import Details, OperandPlot, Plots, limit_share
from pytest_probe.model.result import Result
from pytest_probe.model.scaled_product import operands
from pytest_probe.model.verdict import SEVERITY, ArgumentRow, OutputVerdict, Verdict
from pytest_probe.numerics.dtypes import AnyArray, is_inexact, is_packed, unpacked
from pytest_probe.numerics.error_plots import LEAST_OF_ALL, error_map, errors_of, histogram, points, sample
from pytest_probe.plugin.feature import Feature, Trait
from pytest_probe.plugin.item_verdict import ItemVerdict
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.reports.result_set import ResultSet, RunFile
from pytest_probe.standards.tables import classes_of
from pytest_probe.system.text import printable_line

if TYPE_CHECKING:
    from pytest_probe.check import CaseOutcome
    from pytest_probe.check.digits import Digits
    from pytest_probe.features.html.collected import Collected
    from pytest_probe.features.html.other_runs import Comparison


# Numbers of an operand that are decoded, in float64, about: of a larger one evenly spaced rows.
_DECODED = 1 << 22


def arguments_of(checked: CaseOutcome) -> tuple[ArgumentRow, ...]:
    """The arguments of a case that ran."""
    return () if checked.worst is None else argument_rows(checked.worst.replay)


def operands_of(checked: CaseOutcome) -> tuple[OperandPlot, ...]:
    """The operands of a product of two scaled matrices, with their scales; none of any other case."""
    if checked.worst is None:
        return ()
    call = checked.worst.replay.reference.bound
    if "scaled_products" not in classes_of(call.name):
        return ()
    try:
        both = operands(call)
    except BrokenCall:
        return ()  # of groups, or numbers without scales
    plots = []
    for name, operand in zip(("input", "mat2"), both, strict=True):
        if operand.matrix.size:
            step = max(1, math.prod(operand.shape) // _DECODED)
            with np.errstate(all="ignore"):
                found = histogram(np.abs(operand.scaled_rows(step)), LEAST_OF_ALL)
            found = replace(found, step=step * found.step)
            plots.append(OperandPlot(call.paths[name], found, operand.blocks().describe()))
    return tuple(plots)


def plots_of(checked: CaseOutcome, verdict: Verdict) -> Plots | None:
    """The plots of the worst output that both sides have; None where the case did not run, or gave no arrays of
    numbers."""
    sides = checked.worst
    if sides is None:
        return None
    found = [output for output in verdict.outputs if output.name in sides.actual and output.name in sides.expected]
    if not found:
        return None
    worst = max(found, key=lambda each: (SEVERITY[each.verdict], limit_share(each.metrics) or 0.0))
    actual, expected = _array(sides.actual[worst.name]), _array(sides.expected[worst.name])
    if actual is None or expected is None or actual.shape != expected.shape or not actual.size:
        return None
    with np.errstate(all="ignore"):
        taken = sample(actual, expected)
        errors = errors_of(*taken)
        measured = is_inexact(actual.dtype)
        return Plots(
            worst.name,
            worst.noise_ratios,
            histogram(errors) if measured else None,
            points(*taken, errors),
            error_map(actual, expected, _index_of_worst(worst, actual, errors)),
        )


def _index_of_worst(output: OutputVerdict, actual: AnyArray, errors: AnyArray) -> tuple[int, ...]:
    """Where the worst element is; of a sample the index in the whole tensor says nothing. errors: of evenly spaced
    elements."""
    if output.worst and output.shape == actual.shape:
        return output.worst[0].index
    place = int(np.argmax(errors))  # NaN is the largest of all
    step = max(1, -(-actual.size // errors.size))
    return tuple(map(int, np.unravel_index(min(place * step, actual.size - 1), actual.shape)))


def _array(value: Any) -> AnyArray | None:
    """Numbers, both of each pair, and truth values as an array; None for all else."""
    if isinstance(value, (bool, int, float, complex)):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        return None
    if is_packed(value):
        return unpacked(value)
    numeric = is_inexact(value.dtype) or value.dtype.kind in "biu"
    return value if numeric else None


# How many passing cases, the nearest to their limits, are shown in detail.
MAX_DETAILED_PASSES = 200


class Html(Feature):
    def __init__(self, probe: ProcessSession) -> None:
        super().__init__(probe)
        self._shown = ShownInDetail()
        self._collected: Collected | None = None
        self._comparison: Comparison | None = None

    @property
    def traits(self) -> Sequence[Trait]:
        return ("plots",) if self.probe.settings.html is None else ("plots", "needs run")

    def judge(self, judged: ItemVerdict) -> None:
        if not self._shown.takes(judged.verdict):
            return
        digits: Sequence[Digits] = ()
        # They take a run of the reference, which a page is worth, and not a folder of results.
        if self.probe.settings.html is not None:
            from pytest_probe.check.digits import digits_of

            digits = judged.digits or digits_of(judged.checked, self.probe.checker)
        judged.details = details_of(judged.checked, judged.verdict, judged.command(), digits)

    def begin(self, reporting: Reporting) -> None:
        if self.probe.settings.html is None:
            return
        from pytest_probe.features.html.collected import Collected
        from pytest_probe.features.html.other_runs import Comparison, OtherCase

        self._collected = Collected()
        for other in self.probe.others[:1]:
            cases = {id: OtherCase.of(case) for id, case in other.cases.items()}
            self._comparison = Comparison(ResultSet(other.kind, other.name, cases))

    def add(self, result: Result) -> None:
        if self._collected is None:
            return
        row = self._collected.add(result)
        if self._comparison is not None:
            self._comparison.add(row, result)

    def close(self, reporting: Reporting) -> None:
        path, collected = self.probe.settings.html, self._collected
        if path is None or collected is None:
            return
        from pytest_probe.features.html.other_runs import sparklines
        from pytest_probe.features.html.page import Page

        lines = sparklines(self.probe.settings.history, collected.ids)
        try:
            Page(RunFile.of(reporting.run), collected, self._comparison, lines).write(path)
        except OSError as error:
            reporting.trouble(f"the page {path} cannot be written ({error.strerror})")


class ShownInDetail:
    """Chooses while the run goes on: errors, warnings, and other cases that are among the worst so far."""

    def __init__(self) -> None:
        self._worst: list[float] = []

    def takes(self, verdict: Verdict) -> bool:
        """Is a case with this verdict shown in detail?"""
        if verdict.verdict != "pass":
            return verdict.verdict != "skip"
        share = max((limit_share(output.metrics) or 0.0 for output in verdict.outputs), default=0.0)
        if len(self._worst) < MAX_DETAILED_PASSES:
            heappush(self._worst, share)
            return True
        if share <= self._worst[0]:
            return False
        heapreplace(self._worst, share)
        return True


def details_of(checked: CaseOutcome, verdict: Verdict, command: str, digits: Iterable[Digits] = ()) -> Details:
    """What is shown of a case: its verdict may have been changed since it was checked."""
    from pytest_probe.records import user_frame

    case = checked.case
    stack = case.dump.stack(f"{case.record.name}.{case.direction}")
    rows = verdict.arguments or arguments_of(checked)
    right = {printable_line(each.output): str(each) for each in digits}
    return Details.of(command, rows, stack, user_frame(stack), plots_of(checked, verdict), right, operands_of(checked))
