"""What an API's search ends in: its findings, all of them shrunk, as one verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.check import Checker
from pytest_probe.errors import NoReference
from pytest_probe.features.fuzz.drawn import arguments_text
from pytest_probe.features.fuzz.finding import Finding, of_contract, of_fatal, of_numbers
from pytest_probe.features.fuzz.search import Effort, Findings, Search, breaking, wrong
from pytest_probe.features.fuzz.shrinking import shrunk
from pytest_probe.features.fuzz.templates import Template
from pytest_probe.features.fuzz.trial import Judged, Trials
from pytest_probe.model.fatal_call import FUZZED, FatalCall
from pytest_probe.model.verdict import Verdict

# Kinds of broken contracts that are shrunk, each by a search of its own.
CONTRACTS = 3


class SearchResult(Struct, frozen=True):
    """What a search found. numbers is the call with wrong numbers, contracts calls that break one; fatal are the calls
    that ended the process of an earlier try, deaths those of them that were drawn again."""

    findings: Findings
    numbers: Finding | None = None
    contracts: Sequence[Finding] = ()
    fatal: Sequence[FatalCall] = ()
    deaths: Sequence[Finding] = ()

    def failures(self, *, strict: bool) -> list[Finding]:
        """What fails the item. strict: broken contracts do."""
        first = [] if self.numbers is None else [self.numbers]
        return [*first, *self.deaths, *(self.contracts if strict else ())]


def searched(trials: Trials, templates: Sequence[Template], effort: Effort, shown: Checker) -> SearchResult:
    """Search, and shrink what was found. shown judges what is told of: it may say what caused a failure."""
    target = trials.target
    findings = Search(trials, templates).run(effort)
    numbers = None
    if findings.failed is not None:
        numbers = of_numbers(target, shrunk(trials, findings.failed[1], wrong, shown))
    contracts = [
        of_contract(shown, target, _breaking(trials, templates, effort, shown, kind, first))
        for kind, first in list(findings.contracts.items())[:CONTRACTS]
    ]
    fatal = [call for call in trials.fatal.values() if call.kind != NoReference.kind]
    met = ((trials.met.get(call.call.key), call) for call in fatal)
    deaths = [of_fatal(shown, target, found, call) for found, call in met if found is not None]
    return SearchResult(findings, numbers, contracts, fatal, deaths)


def _breaking(
    trials: Trials, templates: Sequence[Template], effort: Effort, shown: Checker, kind: str, first: Judged
) -> Judged:
    """The first call that breaks that contract, shrunk by a search for it alone, which meets it as the first search
    did. Kept in no database: the next run would take it for wrong numbers."""
    fails = breaking(kind)
    again = Search(trials, templates, fails).run(replace(effort, database=None)).failed
    return shrunk(trials, first if again is None else again[1], fails, shown)


def verdict_of(found: SearchResult, standard: str, *, strict: bool) -> Verdict:
    """The verdict on a search: an error where numbers are wrong or a call ended the process, under strict also where a
    contract is broken; a skip where the reference rejected every call."""
    findings, notes = found.findings, tuple(f"{FUZZED}{line}" for line in lines(found))
    failures = found.failures(strict=strict)
    if failures:
        verdict = failures[0].verdict
        return replace(verdict, reason=f"{failures[0]}: {verdict.reason}", notes=(*verdict.notes, *notes))
    if found.fatal:
        first = found.fatal[0]
        return Verdict("error", standard, f"{first.call}: {first.reason}", first.kind, notes=notes)
    if findings.examples == sum(findings.rejected.values()) and not found.contracts:
        why = next(iter(findings.rejected), "no call could be drawn")
        return Verdict("skip", standard, f"the reference rejects every call that was drawn: {why}", "nothing to fuzz")
    if findings.known:
        return replace(next(iter(findings.known.values())), notes=notes)
    if findings.worst is not None:
        return replace(findings.worst.verdict, notes=(*findings.worst.verdict.notes, *notes))
    return Verdict("pass", standard, notes=notes)


def lines(found: SearchResult) -> Iterator[str]:
    """What is told of every search: its size, the worst call, calls that ended the process, broken contracts."""
    findings = found.findings
    yield f"{findings.examples} calls, {sum(findings.rejected.values())} of them rejected by the reference"
    if findings.worst is not None:
        worst = findings.worst
        yield f"worst: {worst.drawn.with_seed}, {worst.share:.2g} of the limit"
    for known in findings.known:
        yield f"known finding: {known}"
    for fatal in found.fatal:
        yield str(fatal)
    for contract in found.contracts:
        yield f"contract: {contract}: {contract.verdict.reason}"
    for other in list(findings.contracts.values())[CONTRACTS:]:
        yield f"contract: {arguments_text(found.contracts[0].api, other.arguments)}: {other.contract}"
