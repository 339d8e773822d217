"""The search: hypothesis draws calls, each is judged, and what fails is shrunk."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase
from hypothesis.errors import Flaky, Unsatisfiable

from pytest_probe.core.verdict import Verdict
from pytest_probe.execution.checker import Checker
from pytest_probe.execution.fuzzing.trial import Judged, Target, judged
from pytest_probe.inputs.fuzz.drawn import DrawnCall
from pytest_probe.inputs.fuzz.every import every_input
from pytest_probe.inputs.fuzz.strategy import calls
from pytest_probe.inputs.fuzz.templates import Template

# Calls that are tried to make one that fails smaller.
SHRINKS = 150


def database(folder: Path | None) -> ExampleDatabase | None:
    """Where failing examples are kept, for the next run."""
    return None if folder is None else DirectoryBasedExampleDatabase(folder)


class WrongNumbers(AssertionError):
    """A drawn call gave wrong numbers. Hypothesis groups failures by type and line: all findings are one."""


class Rejected(Exception):
    """The reference rejects a drawn call."""


@dataclass(frozen=True)
class Effort:
    """How much is searched: examples, whether the same ones each time, where failing ones are kept."""

    examples: int
    derandomized: bool = False
    database: ExampleDatabase | None = None


@dataclass(frozen=True)
class Passed:
    """A call that passed, with the share of its limit that it took."""

    drawn: DrawnCall
    share: float
    verdict: Verdict


@dataclass
class Findings:
    """What a search found. rejected counts calls by the reason for which the reference rejected them, contracts are
    calls by what differs beside numbers; worst is the call that took the largest share of its limit and passed, failed
    the call with wrong numbers, shrunk; its first one had so many examples before it."""

    examples: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    contracts: dict[str, tuple[DrawnCall, Judged]] = field(default_factory=dict)
    worst: Passed | None = None
    failed: tuple[DrawnCall, Judged] | None = None
    found_after: int = 0

    @property
    def share_rejected(self) -> float:
        """Of all calls that were drawn."""
        return sum(self.rejected.values()) / max(1, self.examples)


class Search:
    """A search among the calls of templates, of one API. limited: what each call is judged in, a time limit."""

    def __init__(
        self,
        checker: Checker,
        target: Target,
        templates: Sequence[Template],
        limited: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._checker = checker
        self._target = target
        self._templates = templates
        self._limited = limited
        self._failing: dict[tuple[str, int], None] = {}
        self._shrinks = 0
        self.findings = Findings()

    def run(self, effort: Effort) -> Findings:
        """Search. The contract is kept of the smallest call, the failing one is the one that hypothesis shrank to."""
        test = self._test(effort)
        try:
            with suppress(Rejected):
                self._try_every_input()
            test()
        except (WrongNumbers, Flaky):
            assert self.findings.failed is not None
        except Unsatisfiable:
            pass  # all were rejected: the findings say why
        return self.findings

    def _try_every_input(self) -> None:
        """A function of one tensor of 16 bit is called on all numbers that the dtype has."""
        for drawn, arguments in every_input(self._templates):
            self._judge(drawn, (str(drawn), drawn.seed), judged(self._checker, self._target, drawn.call(), arguments))

    def _test(self, effort: Effort) -> Callable[[], None]:
        def example(drawn: DrawnCall) -> None:
            self._try(drawn)

        test: Any = hypothesis.given(calls(self._templates))(example)
        settings: Mapping[str, Any] = {
            "max_examples": effort.examples,
            "database": None if effort.derandomized else effort.database,
            "derandomize": effort.derandomized,
            "deadline": None,
            "print_blob": False,
            "report_multiple_bugs": False,
            "verbosity": Verbosity.quiet,
            "suppress_health_check": list(HealthCheck),
            # Explaining runs a failing call many times over.
            "phases": (Phase.reuse, Phase.generate, Phase.shrink),
        }
        # What hypothesis' own plugin for pytest does: examples are kept by the item, not by this function.
        digest = hashlib.sha256(f"{self._target.name}\0{self._target.api}".encode()).digest()
        test.hypothesis.inner_test._hypothesis_internal_add_digest = digest
        found: Callable[[], None] = hypothesis.settings(**settings)(test)
        return found

    def _try(self, drawn: DrawnCall) -> None:
        key = (str(drawn), drawn.seed)
        if self.findings.failed is not None and key not in self._failing:
            if self._shrinks >= SHRINKS:
                return
            self._shrinks += 1
        call = drawn.call()
        try:
            with self._limited():
                found = judged(self._checker, self._target, call, drawn.arguments(call))
            self._judge(drawn, key, found)
        except Rejected:
            hypothesis.reject()

    def _judge(self, drawn: DrawnCall, key: tuple[str, int], found: Judged) -> None:
        findings = self.findings
        searching = findings.failed is None
        findings.examples += searching
        if found.contract:
            findings.contracts.setdefault(_kind(found.contract), (drawn, found))
        if found.rejected:
            findings.rejected[found.rejected] += searching
            raise Rejected
        if found.failing is not None:
            if searching:
                findings.found_after = findings.examples
            self._failing[key] = None
            findings.failed = drawn, found
            raise WrongNumbers
        share, verdict = found.worst
        if searching and share > 0 and (findings.worst is None or share > findings.worst.share):
            findings.worst = Passed(drawn, share, verdict)


def _kind(contract: str) -> str:
    """A broken contract without the numbers of one call."""
    return re.sub(r"\[[^\]]*\]|\d+", "#", contract)
