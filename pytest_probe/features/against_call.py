"""--probe-against-call and --probe-against-framework: each recorded call by two implementations."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
from msgspec.structs import replace

from pytest_probe.check import Case, CaseOutcome, CaseRuns, Checker, Question
from pytest_probe.check.difference_names import differences, joined
from pytest_probe.check.pair_metrics import (
    INCOMPARABLE,
    Difference,
    answer_of,
    casts_exactly,
    describe_pair,
    difference,
    pair_of,
)
from pytest_probe.errors import SettingsError
from pytest_probe.model.dump import Dump
from pytest_probe.model.pairing import Status
from pytest_probe.model.result import number
from pytest_probe.model.verdict import SEVERITY, Metric, Outcome, OutputVerdict, Verdict
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.option_types import Given, Type, content
from pytest_probe.plugin.collectors import ProbeFile
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.registry import Registry
from pytest_probe.selection import apis_of, nearest
from pytest_probe.standards.tables import classes_of
from pytest_probe.user_errors import exception_line, reporting_failures_of

OPTION = "--probe-against-call"
HOOK = "pytest_probe_register"


class Module(Type):
    """An import path, or the path of a Python file; None without one."""

    def read(self, given: Given) -> str | None:
        if not given.text:
            return None
        return str(given.path) if given.text.endswith(".py") else given.text

    def identity(self, value: str | None) -> str | None:
        """Two runs with the same file, wherever it lies, are alike."""
        return content(Path(value)) if value is not None and value.endswith(".py") else value


def registered(module: str) -> Registry:
    """What a module's pytest_probe_register adds to a new registry. Raises SettingsError."""
    try:
        found = _of_file(Path(module)) if module.endswith(".py") else import_module(module)
    except Exception as error:
        raise SettingsError(OPTION, module, f"it cannot be imported: {exception_line(error)}") from error
    hook = getattr(found, HOOK, None)
    if hook is None:
        raise SettingsError(OPTION, module, f"it has no function {HOOK}(registry)")
    registry = Registry.default()
    with reporting_failures_of(f"{HOOK} of {module}"):
        hook(registry)
    if not registry.calls:
        raise SettingsError(OPTION, module, f"its {HOOK} adds no calls: registry.calls['Functional.softmax'] = ...")
    return registry


def _of_file(path: Path) -> ModuleType:
    """A file as a module of its own name, or of a longer one where another module has that, as conftest has. It can
    import what lies next to the file."""
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_of_{path.parent.name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    found = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(found)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return found


class TwoCalls(Question):
    """Checks cases by two checkers, which keep both sides, and compares what they find. name: what B is called, where
    its verdict does not say it."""

    def __init__(self, a: Checker, b: Checker, name: str = "") -> None:
        self._runs, self._name = (CaseRuns(a), CaseRuns(b)), name

    def run(self, case: Case, other: Case | None = None) -> CaseOutcome:
        """What both sides find, as that of a case. other: the case of B, where it is not the same one."""
        other = other or case
        # Before A runs: the peak of memory is that of one case.
        self._runs[1].release(other)
        a, b = self._runs[0].run(case), self._runs[1].run(other)
        return _beside(self._runs[0].checker, a, b, self._name or b.verdict.replaced or case.id)


def _beside(checker: Checker, a: CaseOutcome, b: CaseOutcome, name_of_b: str) -> CaseOutcome:
    """The verdict on both sides, and what they are compared with one another."""
    verdicts = {"A": a.verdict, "B": b.verdict}
    wrong = [side for side, verdict in verdicts.items() if verdict.verdict == "error"]
    worse = max(verdicts, key=lambda side: _WEIGHT[verdicts[side].verdict])
    apart, unlike = _apart(_outputs(a), _outputs(b))
    differ = not all(each.equal for each in apart.values())
    status: Status = "rounding" if differ else "equal"
    if wrong:
        status = "own"
    elif unlike or any(verdict.verdict == "skip" for verdict in verdicts.values()):
        status = "incomparable"
    elif differ and a.worst is not None:
        drawn = classes_of(a.worst.replay.reference.candidate.name)
        status = "rounding" if drawn.isdisjoint(("random", "uninitialised")) else "random"
    named = differences(checker, a, b) if status in ("rounding", "own") and differ else {}
    metrics = {name: found.metrics() for name, found in apart.items()}
    for name, words in named.items():
        if words and name in metrics:
            metrics[name]["difference"] = words
    gap = max((each.gap for each in apart.values()), default=0.0)
    paired = pair_of(status, name_of_b, verdicts, wrong, joined(named), gap)
    compared = list(apart.values()) if status in ("equal", "rounding", "own") else []
    headed = wrong or ([] if verdicts[worse].verdict == "pass" else [worse])
    verdict = replace(
        verdicts[worse],
        reason="; ".join(f"{'own error of ' if wrong else ''}{side}: {verdicts[side].headline}" for side in headed),
        outputs=tuple(_rows(verdicts, metrics)),
        notes=(describe_pair(paired), *dict.fromkeys((*a.verdict.notes, *b.verdict.notes))),
        answers=(answer_of(paired, compared),),
    )
    if status == "incomparable" and unlike and verdict.verdict == "pass":
        verdict = replace(verdict, verdict="skip", reason=unlike, kind=INCOMPARABLE)
    # What is saved, and shown, is the side that is wrong.
    shown = b if worse == "B" else a
    return replace(shown, case=a.case, verdict=verdict, forward=None, compared=None)


def _apart(a: Mapping[str, AnyArray], b: Mapping[str, AnyArray]) -> tuple[dict[str, Difference], str]:
    """How far outputs lie apart, and which one cannot be compared, in words; "" where all can."""
    apart, unlike = dict[str, Difference](), ""
    for name in sorted(a.keys() & b.keys()):
        one, other = a[name], b[name]
        if one.shape == other.shape and (one.dtype == other.dtype or casts_exactly(one.dtype.name, other.dtype.name)):
            apart[name] = difference(one, other)
        elif not unlike:
            unlike = f"{name} is {one.dtype} {list(one.shape)} and {other.dtype} {list(other.shape)}"
    return apart, unlike


def _rows(verdicts: Mapping[str, Verdict], metrics: Mapping[str, Mapping[str, Metric]]) -> Iterator[OutputVerdict]:
    """The worse side's verdict on each output, with how far both lie apart."""
    rows = [{output.name: output for output in verdict.outputs} for verdict in verdicts.values()]
    for name in dict.fromkeys((*rows[0], *rows[1])):
        side, row = max(
            ((side, found[name]) for side, found in zip("AB", rows, strict=True) if name in found),
            key=lambda item: (SEVERITY[item[1].verdict], number(item[1].metrics.get("noise_ratio", 0.0))),
        )
        reason = f"{side}: {row.reason}" if row.reason else ""
        yield replace(row, reason=reason, metrics={**row.metrics, **metrics.get(name, {})})


# Which side's verdict is that on both: an error before all, and what cannot be judged before what is right.
_WEIGHT: Mapping[Outcome, int] = {"pass": 0, "warning": 1, "skip": 2, "error": 3}


def _outputs(checked: CaseOutcome) -> dict[str, AnyArray]:
    """All outputs that are arrays, or numbers, by the names that verdicts give them."""
    if checked.compared is None:
        return {}
    prefix = "grad." if checked.case.direction == "backward" else ""
    named = ((f"{prefix}{name.removeprefix(prefix)}", value) for name, value in checked.compared.actual.items())
    return {
        name: np.asarray(value)
        for name, value in named
        if isinstance(value, (np.ndarray, bool, float)) or (isinstance(value, int) and -(2**63) <= value < 2**63)
    }


class AgainstCall(Feature):
    @cached_property
    def _second(self) -> Registry:
        """Raises SettingsError."""
        assert self.probe.settings.against_call is not None
        return registered(self.probe.settings.against_call)

    @cached_property
    def _calls(self) -> TwoCalls:
        """Both sides have one reference: the project's, or where it has none that of the module."""
        first, second = self.probe.registry, self._second
        a = replace(
            first,
            references={**second.references, **first.references},
            namespaces={**second.namespaces, **first.namespaces},
        )
        b = replace(a, calls={**first.calls, **second.calls})
        checker = self.probe.checker
        return TwoCalls(checker.changed(a, keeps_sides=True), checker.changed(b, keeps_sides=True))

    def prepare(self) -> None:
        module, calls = str(self.probe.settings.against_call), self._second.calls
        if not self.probe.dumps.paths:
            raise SettingsError(OPTION, module, "it needs recorded calls: add --probe-dump=PATH")
        known = apis_of(dump for _, dump in self.probe.dumps.readable())
        if known and known.isdisjoint(calls):
            near = dict.fromkeys(name for api in calls for name in nearest(api, known))
            advice = f"; near to them: {', '.join(near)}" if near else ""
            raise SettingsError(OPTION, module, f"no record is one of its calls ({', '.join(sorted(calls))}){advice}")

    def header(self) -> Iterable[str]:
        calls = ", ".join(sorted(self._second.calls))
        yield f"probe: A is what runs here, B {self.probe.settings.against_call}: {calls}"

    def items(self, parent: ProbeFile, dump: Dump) -> Iterator[ProbeItem]:
        return parent.cases(dump, self._calls, self._second.calls)


class AgainstFramework(Feature):
    def __init__(self, probe: ProcessSession) -> None:
        super().__init__(probe)
        self._other = str(probe.settings.against_framework)

    @cached_property
    def _calls(self) -> TwoCalls:
        """Both sides have one reference."""
        checker = self.probe.checker
        sides = checker.changed(keeps_sides=True), checker.changed(keeps_sides=True, framework=self._other)
        return TwoCalls(*sides, self._other)

    def header(self) -> Iterable[str]:
        yield f"probe: A is what {', '.join(self.probe.frameworks)} computes, B what {self._other} does"

    def items(self, parent: ProbeFile, dump: Dump) -> Iterator[ProbeItem]:
        return parent.cases(dump, self._calls)
