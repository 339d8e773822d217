"""This run's verdicts compared with another run's results: --probe-benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.errors import ResultsError, SettingsError
from pytest_probe.export.details import measures_of
from pytest_probe.model.result import OutputResult, PortableId, Result
from pytest_probe.model.verdict import OutputVerdict, Verdict, conclusion
from pytest_probe.reports.results_file import RESULTS, RUN, Identity, check, read_results
from pytest_probe.reports.selected import RunEnd, check_results
from pytest_probe.standards.tables import classes_of
from pytest_probe.standards.tools import COMPARES, DEFAULT
from pytest_probe.standards.tools.tool import Decision
from pytest_probe.system.files import open_regular

OPTION = "--probe-benchmark"
MISSING, NOTHING = "the benchmark's results do not have this case", "the benchmark has no outputs of this case"


class OtherRun(RunEnd, frozen=True):
    """The parts of another run's run.json that must equal this run's."""

    settings: dict[str, Any] = field(default_factory=dict)
    identity: dict[str, Any] = field(default_factory=dict)


def _run_at(path: Path) -> OtherRun:
    try:
        with open_regular(path) as file:
            return msgspec.json.decode(file.read(), type=OtherRun)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ResultsError(str(path), str(error)) from None


class Benchmark(Struct, frozen=True):
    """Another run: its results by portable id, and by that in any dtype; run is its run.json."""

    folder: Path
    results: Mapping[PortableId, Result]
    run: OtherRun

    @classmethod
    def read(cls, folder: Path) -> Benchmark:
        """Raises SettingsError where the folder holds no run."""
        try:
            run = _run_at(folder / RUN)
            early = check_results(OPTION, folder / RESULTS, run)
            if early:
                wanted = f"{early}; go on with --probe-resume, or give the folder of a whole run"
                raise SettingsError(OPTION, str(folder), wanted)
            results: dict[PortableId, Result] = {}
            for result in read_results(folder / RESULTS):
                results.setdefault(result.portable_id.in_any_dtype, result)
                results[result.portable_id] = result
        except (OSError, ResultsError) as error:
            reason = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)
            has_outputs = any(next(folder.glob(name), None) for name in ("output", "*/output"))
            add = (
                ", or add --probe-outputs=DIR, whose outputs are then compared with those in it" if has_outputs else ""
            )
            raise SettingsError(OPTION, str(folder), f"give a folder of --probe-out{add}; {reason}") from error
        return cls(folder, results, run)

    def check(self, now: Identity) -> None:
        """Is it of the same inputs, against the same references? Raises SettingsError."""
        advice = "the two are not of the same inputs and references; give a benchmark of the same"
        check(OPTION, str(self.folder), self.run.identity, now, "benchmark", advice)

    def of(self, identity: PortableId) -> Result | None:
        """The result of the same case, in the same dtype or, where it has none in that, in another."""
        return self.results.get(identity) or self.results.get(identity.in_any_dtype)

    def only(self, identities: set[PortableId]) -> list[str]:
        """Ids of its cases that are not among these, in whatever dtype."""
        known = {identity.in_any_dtype for identity in identities}
        own = {result.id: result.portable_id for result in self.results.values() if result.api}
        return sorted(id for id, identity in own.items() if identity.in_any_dtype not in known)

    def judge(self, verdict: Verdict, identity: PortableId, api: str) -> Verdict:
        """The verdict, with the benchmark taken into account. A tool's standard judges by all three sides. By one of
        our own standards, an output that passes but is an error compared with the benchmark becomes a warning."""
        if verdict.verdict == "skip":
            return verdict
        other = self.of(identity)
        if other is None:
            return replace(verdict, notes=(*verdict.notes, MISSING))
        rows = {output.name: output for output in other.outputs}
        if not rows:
            return replace(verdict, notes=(*verdict.notes, f"{NOTHING}: {other.reason or other.verdict}"))
        outputs = tuple(_judged(output, rows.get(output.name), verdict.standard, api) for output in verdict.outputs)
        if outputs == verdict.outputs:
            return verdict
        outcome, reason = conclusion(outputs)
        return replace(verdict, verdict=outcome, reason=reason, outputs=outputs)


def _judged(output: OutputVerdict, other: OutputResult | None, standard: str, api: str) -> OutputVerdict:
    """Only numbers that have one right value are compared: where a class judges (signs of factors, random values,
    ties), the distance from the reference says nothing."""
    if other is None or not output.measures or not other.measures:
        return output
    if "random" in classes_of(frameworks.signatures().canonical(api)) or (
        standard not in COMPARES and output.standard != "noise"
    ):
        return output
    compare = standard if standard in COMPARES else DEFAULT
    if "justification" in output.metrics:
        # The project's own rule for the API stays, and so do its limits.
        compare = str(output.metrics["rule"])
        if compare not in COMPARES:
            return output
    device, benchmark = measures_of(output.measures), measures_of(other.measures)
    decision = COMPARES[compare](api, output.dtype, device, benchmark)
    ratios = {f"benchmark_{name}": value for name, value in _ratios(decision)}
    outcome = decision.ruling.verdict
    judged = replace(output, metrics={**output.metrics, **ratios})
    if outcome == "skip":
        return judged
    if standard in COMPARES:
        return replace(judged, verdict=outcome, reason=decision.ruling.reason)
    if outcome == "error" and output.verdict == "pass":
        return replace(judged, verdict="warning", reason=decision.ruling.reason)
    return judged


def _ratios(decision: Decision) -> Iterator[tuple[str, float]]:
    return ((item.metric, item.value) for item in decision.compared)
