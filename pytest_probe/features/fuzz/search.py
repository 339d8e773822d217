"""The search: hypothesis draws calls, each is judged, and what fails is shrunk.

A drawn call runs as an ordinary case, so one judge serves dumps and searches. Each is announced in a file that survives
its process. After a death the next worker draws the same calls from the same seed, and leaves out the one that ended
the process.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import hypothesis
import hypothesis.core
import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase
from hypothesis.errors import Flaky, Unsatisfiable
from msgspec import Struct, field

from pytest_probe.features.fuzz.drawn import DrawnCall, DrawnTensor
from pytest_probe.features.fuzz.strategy import calls
from pytest_probe.features.fuzz.templates import Template, TensorSlot
from pytest_probe.features.fuzz.trial import JudgedCall, Trials
from pytest_probe.model.run import Arguments, Leaf
from pytest_probe.model.verdict import Verdict
from pytest_probe.numerics.dtypes import NARROW_DTYPES, numpy_dtype

Fails: TypeAlias = Callable[[JudgedCall], bool]
# Calls that are tried to make one that fails smaller.
_SHRINKS = 150
# All numbers that 16 bits can be.
_COUNT = 1 << 16


def database(folder: Path | None) -> ExampleDatabase | None:
    """Where failing examples are kept, for the next run."""
    return None if folder is None else DirectoryBasedExampleDatabase(folder)


class _Found(AssertionError):
    """A drawn call is what is searched for. Hypothesis groups failures by type and line: all are one."""


class _Rejected(Exception):
    """The reference rejects a drawn call."""


class Effort(Struct, frozen=True):
    """How much is searched: examples, whether the same ones in each run, where failing ones are kept; seed: the same
    examples for the same one, unless --hypothesis-seed gives another."""

    examples: int
    derandomized: bool = False
    database: ExampleDatabase | None = None
    seed: int | None = None


class Findings(Struct):
    """What a search found. rejected counts calls by the reason for which the reference rejected them, contracts are the
    first calls by what differs other than numbers, known the first verdicts by the known finding of the framework that
    they show; worst is the call that took the largest share of its limit and passed, with that share, failed the call
    that is searched for, shrunk; its first one had so many examples before it."""

    examples: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    contracts: dict[str, JudgedCall] = field(default_factory=dict)
    worst: tuple[DrawnCall, float, Verdict] | None = None
    known: dict[str, Verdict] = field(default_factory=dict)
    failed: tuple[DrawnCall, JudgedCall] | None = None
    found_after: int = 0


def wrong(found: JudgedCall) -> bool:
    """Has a call wrong numbers?"""
    return found.failing is not None


def breaking(kind: str) -> Fails:
    """Does a call break that contract, one of the keys of Findings.contracts?"""
    return lambda found: bool(found.contract) and _kind(found.contract) == kind


class Search:
    """A search among the calls of templates, of one API, for calls that fail."""

    def __init__(self, trials: Trials, templates: Sequence[Template], fails: Fails = wrong) -> None:
        self._trials = trials
        self._templates = templates
        self._fails = fails
        self._failing: set[str] = set()
        self._drawn: set[str] = set()
        self._shrinks = 0
        self.findings = Findings()

    def run(self, effort: Effort) -> Findings:
        """Search. The failing call is the one that hypothesis shrank to."""
        test = self._test(effort)
        try:
            with suppress(_Rejected):
                # A function of one tensor of 16 bit is called on all numbers that the dtype has.
                for drawn, arguments in _calls_on_all_numbers(self._templates):
                    self._judge(drawn, self._trials.judged(drawn.call(), arguments, drawn.with_seed))
            test()
        except (_Found, Flaky):
            assert self.findings.failed is not None
        except Unsatisfiable:
            pass  # all were rejected: the findings say why
        return self.findings

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
        target = self._trials.target
        digest = hashlib.sha256(f"{target.name}\0{target.api}".encode()).digest()
        test.hypothesis.inner_test._hypothesis_internal_add_digest = digest
        if effort.seed is not None and not effort.derandomized and hypothesis.core.global_force_seed is None:
            test = hypothesis.seed(effort.seed)(test)
        found: Callable[[], None] = hypothesis.settings(**settings)(test)
        return found

    def _try(self, drawn: DrawnCall) -> None:
        if self.findings.failed is None:
            # Nearly half of the first calls that hypothesis draws are the simplest one.
            if drawn.with_seed in self._drawn:
                hypothesis.reject()
        elif drawn.with_seed not in self._failing:
            if self._shrinks >= _SHRINKS:
                return
            self._shrinks += 1
        call = drawn.call()
        try:
            self._judge(drawn, self._trials.judged(call, drawn.arguments(call), drawn.with_seed))
        except _Rejected:
            self._drawn.add(drawn.with_seed)
            hypothesis.reject()
        # Only now: what raises is tried again by hypothesis, and has to raise again.
        self._drawn.add(drawn.with_seed)

    def _judge(self, drawn: DrawnCall, found: JudgedCall) -> None:
        findings = self.findings
        searching = findings.failed is None
        findings.examples += searching
        if found.contract:
            findings.contracts.setdefault(_kind(found.contract), found)
        if self._fails(found):
            if searching:
                findings.found_after = findings.examples
            self._failing.add(drawn.with_seed)
            findings.failed = drawn, found
            raise _Found
        if found.rejected:
            findings.rejected[found.rejected] += searching
            raise _Rejected
        if found.known is not None:
            findings.known.setdefault(found.known.reason.partition(" (")[0], found.known)
        elif searching and found.worst is not None:
            share, verdict = found.worst
            if share > 0 and (findings.worst is None or share > findings.worst[1]):
                findings.worst = drawn, share, verdict


def _kind(contract: str) -> str:
    """A broken contract without the numbers of one call."""
    return re.sub(r"\[[^\]]*\]|\d+", "#", contract)


def _calls_on_all_numbers(templates: Sequence[Template]) -> Iterator[tuple[DrawnCall, Arguments]]:
    """For each dtype of 16 bit that is drawn for a function of one tensor element by element: the call on all its
    numbers, NaN once."""
    for template in templates:
        slots = list(template.slots.values())
        if len(slots) != 1 or not isinstance(slots[0], TensorSlot) or slots[0].pattern.words != ("*s",):
            continue
        # An operator with limits on its inputs does not get all numbers.
        if slots[0].dtype or template.power or template.finite or template.largest < np.inf:
            continue
        for dtype in (dtype for dtype in template.dtypes if dtype in NARROW_DTYPES):
            numbers = np.arange(_COUNT, dtype=np.uint16).view(numpy_dtype(dtype))
            with np.errstate(invalid="ignore"):
                unknown = np.isnan(numbers)
            numbers = np.concatenate([numbers[~unknown], numbers[unknown][:1]])
            tensor = DrawnTensor(numbers.shape, dtype, regime="every number", requires_grad=True)
            args, kwargs = template.signatures.call(template.api, {next(iter(template.slots)): tensor})
            drawn = DrawnCall(template.api, args, kwargs, 0, template.signatures)
            yield drawn, Arguments((Leaf(numbers, True),), {}, ())
