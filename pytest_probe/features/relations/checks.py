"""Asks relations of a case that was checked: each is one more output of its verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.check import CaseOutcome
from pytest_probe.check.call_again import DifferingOutput
from pytest_probe.check.check import Checker
from pytest_probe.check.judging import argument_rows
from pytest_probe.errors import DeviceRaised, HookFailed, ProbeError, SettingsError
from pytest_probe.features.relations.call_forms import Alias, InPlace, Out
from pytest_probe.features.relations.layouts import Layout, Stream
from pytest_probe.features.relations.memory import Again, AllWritten, Guard
from pytest_probe.features.relations.rows import BATCH, ORDER
from pytest_probe.features.relations.table import AtRisk, Call, Found, Relation, Row, left_out, row
from pytest_probe.model.verdict import RELATION, SEVERITY, Answer, Element, Metric, OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, is_floating, ulp_distance, widen
from pytest_probe.options import RELATION_NAMES
from pytest_probe.standards.tables import classes_of
from pytest_probe.system.decoding import decode
from pytest_probe.system.machine import out_of_memory
from pytest_probe.system.text import check_name
from pytest_probe.user_errors import first_line

RELATIONS: Mapping[str, Relation] = {
    each.name: each
    for each in (AllWritten(), Guard(), Again(), Out(), InPlace(), Alias(), BATCH, ORDER, Layout(), Stream())
}
STANDARD = "relations"
# These are asked of the very same call: that it raises now breaks them.
_SAME_CALL = frozenset(("all-written", "guard", "again"))
# What gives other numbers each time, or leaves memory as it was, promises none of them.
_WITHOUT = frozenset(("random", "uninitialised"))
_DRAWN = "its numbers are drawn anew each time, or left as memory held them"
_WORST, _NOTHING = 5, np.empty(0)


class Relations:
    """Asks relations of cases, by their names; batch says which dimensions of a test's function are rows, at_risk is
    what a call is made in that may end the process. tells: of a relation that is not asked the verdict says why."""

    def __init__(
        self,
        checker: Checker,
        names: Sequence[str],
        at_risk: AtRisk | None = None,
        batch: Mapping[str, Any] | None = None,
        *,
        tells: bool = False,
    ) -> None:
        self._checker, self._names, self._at_risk = checker, names, at_risk
        self._batch, self._tells = batch, tells

    def of(self, checked: CaseOutcome) -> CaseOutcome:
        """The case with a verdict on each relation. Raises SettingsError for a row of the project's that is wrong."""
        verdict = checked.verdict
        asked_already = any(output.name.startswith(RELATION) for output in verdict.outputs)
        if verdict.verdict == "skip" or checked.worst is None or asked_already:
            return checked
        candidate = checked.worst.replay.reference.candidate
        drawn = not _WITHOUT.isdisjoint(classes_of(candidate.name))
        with self._checker.making_calls(checked.case) as engines:
            registry = self._checker.registry
            known = row(candidate.name, checked.case.api, engines.device_name, registry.relations)
            known = known if self._batch is None else replace(known, batch=self._batch)
            call = Call(checked, engines, known, registry, self._at_risk)
            unfit = {name: _DRAWN if drawn else RELATIONS[name].unfit(call) for name in self._names}
            found = [_asked(RELATIONS[name], call) for name, why in unfit.items() if not why]
        if self._tells and not call.backward:  # what is asked of no gradient was asked of the call
            found += [_skip(name, why) for name, why in unfit.items() if why]
        # The verdict is that on a relation where that is worse.
        outputs = (*verdict.outputs, *found)
        verdict = replace(verdict, answers=(*verdict.answers, *map(_answer, found)))
        worst = max(found, key=lambda output: SEVERITY[output.verdict], default=None)
        if worst is None or SEVERITY[worst.verdict] <= SEVERITY[verdict.verdict]:
            return replace(checked, verdict=replace(verdict, outputs=outputs))
        rows, reason = verdict.arguments or argument_rows(call.replay), f"{worst.name}: {worst.reason}"
        broken = replace(verdict, verdict=worst.verdict, reason=reason, outputs=outputs, arguments=rows)
        return replace(checked, verdict=broken)


def _skip(name: str, reason: str, like: AnyArray = _NOTHING) -> OutputVerdict:
    return OutputVerdict(f"{RELATION}{name}", like.shape, like.dtype.name, "skip", STANDARD, reason)


def _answer(output: OutputVerdict) -> Answer:
    if output.verdict == "skip":
        return Answer(output.name, "not checked")
    kept = output.verdict == "pass"
    outcome, words = ("kept", output.reason) if kept else ("broken", "")
    return Answer(output.name, outcome, words, {"holds": (int(kept), 1)})


def _asked(relation: Relation, call: Call) -> OutputVerdict:
    name = f"{RELATION}{relation.name}"
    shown = next(iter(call.replay.actual.outputs.values()), None)
    like = np.asarray(shown) if isinstance(shown, (np.ndarray, float, int, bool)) else _NOTHING
    try:
        if relation.name not in _SAME_CALL and call.unsteady:
            left_out("two equal calls give other bits, or bits that depend on memory that is not the call's")
        found = relation.find(call)
    except (DeviceRaised, HookFailed) as error:
        if relation.name not in _SAME_CALL:
            return _skip(relation.name, first_line(error), like)
        found = Found(f"the same call raises now: {first_line(error)}")
    except MemoryError as error:
        return _skip(relation.name, str(out_of_memory(error)), like)
    except ProbeError as error:
        return _skip(relation.name, first_line(error), like)
    metrics: dict[str, Metric] = {"runs": found.runs}
    if not found.broken:
        return OutputVerdict(name, like.shape, like.dtype.name, "pass", STANDARD, found.unasked, metrics)
    worst: tuple[Element, ...] = ()
    if found.apart is not None:
        like, where = found.apart.wanted, found.apart.where
        worst = _worst(found.apart)
        metrics |= {"apart": like.size if where is None else int(np.count_nonzero(where)), "elements": like.size}
    return OutputVerdict(name, like.shape, like.dtype.name, relation.broken, STANDARD, found.broken, metrics, worst)


def _worst(apart: DifferingOutput) -> tuple[Element, ...]:
    """The elements that are farthest apart."""
    if apart.where is None:
        return ()
    places, found, wanted = np.argwhere(apart.where), apart.found[apart.where], apart.wanted[apart.where]
    units = np.zeros(found.shape)
    if is_floating(found.dtype):
        with np.errstate(all="ignore"):
            units = ulp_distance(found, widen(wanted), found.dtype)
    worst = []
    for place in np.argsort(-np.nan_to_num(units, nan=np.inf), kind="stable")[:_WORST]:
        one, other = (str(each) if np.iscomplexobj(each) else float(each) for each in (found[place], wanted[place]))
        worst.append(Element(tuple(map(int, places[place])), one, other, float(units[place]), float("nan")))
    return tuple(worst)


def asked_by_check(
    checker: Checker, at_risk: AtRisk | None, names: Sequence[str], batch: Mapping[str, Any] | None
) -> Callable[[CaseOutcome], CaseOutcome]:
    """What a test's `relations` and `batch` ask. Raises SettingsError for any other name."""
    for name in names:
        check_name("check: relations", name, RELATION_NAMES)
    if batch is not None and "batch" not in names and "order" not in names:
        raise SettingsError("check: batch", batch, 'it is for relations=["batch"], or "order"')
    if batch is not None:
        decode({"batch": batch}, Row, lambda _: "check")
    return Relations(checker, [name for name in RELATION_NAMES if name in names], at_risk, batch, tells=True).of
