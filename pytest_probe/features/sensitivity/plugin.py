"""--probe-sensitivity: each case that passed is spoiled and judged again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check import CaseOutcome
from pytest_probe.check.check import Checker
from pytest_probe.check.comparisons import comparisons
from pytest_probe.check.engines import Engines
from pytest_probe.check.judging import UNREADABLE, judge_with_modes
from pytest_probe.check.structure import OutputPairs
from pytest_probe.check.weak import Extremes, choosing, hidden_by, one_choice
from pytest_probe.errors import HookFailed
from pytest_probe.features.sensitivity.faults import COARSE, SCALE, SCALE_ERROR, Output, spoiled
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import SENSITIVITY, STRONG, WEAK, Answer
from pytest_probe.numerics.dtypes import AnyArray, is_inexact
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.item_verdict import ItemVerdict
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.reports.terminal import count
from pytest_probe.standards.noise.summed_terms import summed_terms

_SCALE = f"scale error of {100 * SCALE_ERROR:.1g} %, by case"
UNSEEN = "its results lose digits: a scale error of 0.4 %, in 16 bit of 8 roundoffs, is not found"
ONE_TERM = "each sum has one term"


class Spoiling:
    """Spoils the outputs of cases, one after the other; what the one before left is a stale result of the next."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._before: AnyArray | None = None

    def of(self, checked: CaseOutcome) -> Answer | None:
        """In how many outputs each fault was found, of those in which it was planted, and why the case proves little.
        None for a case that did not pass, that has nothing to spoil, or for which there is no memory."""
        sides, case = checked.worst, checked.case
        if sides is None or checked.verdict.verdict not in ("pass", "warning"):
            return None
        with self._checker.making_calls(case) as engines:
            try:
                return self._worth(checked, sides, engines, by_class=True)
            except UNREADABLE:
                # A test's function may have other arguments than the API by whose rule it is judged.
                if case.pair is None:
                    raise
                return self._worth(checked, sides, engines, by_class=False)
            except MemoryError:
                return None

    def _worth(self, checked: CaseOutcome, sides: OutputPairs, engines: Engines, *, by_class: bool) -> Answer | None:
        seed = engines.request.seed
        asked = [
            each
            for each in comparisons(sides, checked.case.direction, seed, by_class=by_class)
            if isinstance(each, Comparison) and each.actual.size and "uninitialised" not in each.classes
        ]
        stated = {output.name: output.detects for output in checked.verdict.outputs}
        found: dict[str, tuple[int, int]] = {}
        for comparison in asked:
            for name, values in spoiled(Output(comparison, stated.get(comparison.name), self._before)):
                caught, planted = found.get(name, (0, 0))
                found[name] = caught + _finds(engines, comparison, values), planted + 1
        if not asked:
            return None
        self._before = asked[0].actual
        scale = found[SCALE][0] > 0 if SCALE in found else True
        unseen = not (scale or found.get(COARSE, (0, 0))[0]) and any(each.expected.any() for each in asked)
        weak = _weak(asked, sides) or (UNSEEN if unseen else "")
        return Answer(SENSITIVITY, WEAK if weak else STRONG, weak, {_SCALE: (int(scale), 1), **found})


def _finds(engines: Engines, comparison: Comparison, values: AnyArray) -> bool:
    """Does the run's standard find that these values are wrong? What spoils nothing goes unseen."""
    actual = comparison.actual
    if ((values == actual) | ((values != values) & (actual != actual))).all():
        return False
    standard = engines.standard
    try:
        wrong = replace(comparison, actual=values)
        verdict = judge_with_modes(standard, wrong, lambda: engines.modes_of(comparison), depth=lambda: "none")
    except HookFailed:
        return True
    return verdict.verdict == "error"


def _weak(asked: Sequence[Comparison], sides: OutputPairs) -> str:
    """Why the case proves little, whatever is planted in its outputs; "" where it does not."""
    bound = sides.replay.reference.bound
    arrays = {name: leaf.array for name, leaf in sides.replay.reference.leaves.items()}
    arguments = [Extremes.of_array(name, array) for name, array in arrays.items()]
    incoming = [Extremes.of_array(f"incoming gradient {name}", value) for name, value in sides.replay.incoming.items()]
    floats = [each for each in asked if is_inexact(each.actual.dtype)]
    outputs = [Extremes.of_array(each.name, each.expected) for each in floats]
    if outputs and all(each.constant for each in outputs):
        # Other values for all arguments that are no integers: numbers that most functions take, half of a mask.
        random, others = np.random.default_rng(0), dict[str, AnyArray]()
        given = {**arrays, **{f"incoming.{name}": value for name, value in sides.replay.incoming.items()}}
        for name, value in given.items():
            if value.dtype.kind == "b":
                others[name] = random.random(value.shape) < 0.5
            elif is_inexact(value.dtype):
                others[name] = random.uniform(0.25, 0.75, value.shape).astype(value.dtype)
        varied = [each.evidence.with_arguments(others) for each in floats]
        again = [Extremes.of_array("", values) for values in varied if values is not None]
        moved = all(each.zero for each in outputs) and any(not each.zero for each in again)
        if moved or any(not each.constant for each in again):
            return hidden_by([*incoming, *arguments], outputs, bound)
        unmoved = len(again) == len(outputs) and all(
            (now.low, now.high) == (each.low, each.high) for now, each in zip(again, outputs, strict=True)
        )
        if unmoved and arguments and not floats[0].classes & {"exact", "exact_backward"}:
            return f"{outputs[0]}, whatever the inputs are"
    if not floats:
        return ""
    sums = [each for each in floats if any(kind.startswith("terms_of_") for kind in each.classes)]
    terms = [summed_terms(each) for each in sums if each.direction == "forward"]
    if len(terms) == len(floats) and all(each.count == 1 and not each.assumed for each in terms):
        return ONE_TERM
    # The paths of labels and indices among a record's arguments; a function of a test names none.
    reference = sides.replay.reference
    call, signatures = reference.call, frameworks.signatures(reference.framework.name)
    return one_choice(arguments, choosing(call, signatures.bind(reference.candidate.api, call.args, call.kwargs)))


# APIs that are named.
_APIS = 5


class SensitivityOfPasses(Feature):
    @cached_property
    def _spoiling(self) -> Spoiling:
        return Spoiling(self.probe.checker)

    def judge(self, judged: ItemVerdict) -> None:
        answer = self._spoiling.of(judged.checked) if self.probe.settings.sensitivity else None
        if answer is not None:
            judged.verdict = replace(judged.verdict, answers=(*judged.verdict.answers, answer))

    def end(self, reporting: Reporting) -> None:
        """Fail a run that proves less than so many percent, and name the APIs that need other records."""
        cases, weak, least = Counter[str](), Counter[str](), int(self.probe.settings.sensitivity or 0)
        for (question, api, _, direction), row in reporting.answers.rows.items():
            if question == SENSITIVITY:
                cases[f"{api} {direction}".rstrip()] += row.cases
                weak[f"{api} {direction}".rstrip()] += row.outcomes[WEAK]
        share = 100 * (cases.total() - weak.total()) / max(cases.total(), 1)
        if not cases or share >= least:
            return
        named = [f"{api} ({each:,} of {count(cases[api], 'case')})" for api, each in weak.most_common() if each]
        more = f" and {len(named) - _APIS:,} more APIs" if len(named) > _APIS else ""
        reporting.trouble(
            f"sensitivity: {share:.3g} % of the cases prove something, --probe-sensitivity asks for {least} %; "
            f"other records are needed of {', '.join(named[:_APIS])}{more}"
        )
