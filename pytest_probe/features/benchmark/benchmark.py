"""This run's verdicts compared with another run's results: --probe-benchmark."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.errors import SettingsError
from pytest_probe.export.details import measures_of
from pytest_probe.model.result import OutputResult, Result
from pytest_probe.model.verdict import OutputVerdict, Verdict, conclusion
from pytest_probe.reports.result_set import ResultSet, RunFolder
from pytest_probe.reports.results_file import RESULTS, read_results, refused
from pytest_probe.standards.tables import classes_of
from pytest_probe.standards.tools import COMPARES, DEFAULT

OPTION = "--probe-benchmark"
MISSING, NOTHING = "the benchmark's results do not have this case", "the benchmark has no outputs of this case"


def open_benchmark(folder: Path) -> ResultSet[Result]:
    """Raises SettingsError where the folder holds no run."""
    give = "give a folder of --probe-out"
    if any(next(folder.glob(name), None) for name in ("output", "*/output")):
        give += ", or add --probe-outputs=DIR, whose outputs are then compared with those in it"
    with refused(OPTION, folder, f"{give}; {{error.strerror}}: {{error.filename}}", f"{give}; {{error}}"):
        found = RunFolder.read(OPTION, folder)
        if early := found.early_end():
            wanted = f"{early}; go on with --probe-resume, or give the folder of a whole run"
            raise SettingsError(OPTION, str(folder), wanted)
        cases = {result.id: result for result in read_results(folder / RESULTS)}
    return ResultSet("benchmark", folder.name, cases, found.run.identity)


def judge(verdict: Verdict, other: Result | None, api: str) -> Verdict:
    """The verdict, with the benchmark's result of the case taken into account. A tool's standard judges by all three
    sides. By one of our own standards, an output that passes but is an error compared with the benchmark becomes a
    warning."""
    if verdict.verdict == "skip":
        return verdict
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
    ratios = {f"benchmark_{item.metric}": item.value for item in decision.compared}
    outcome = decision.ruling.verdict
    judged = replace(output, metrics={**output.metrics, **ratios})
    if outcome == "skip":
        return judged
    if standard in COMPARES:
        return replace(judged, verdict=outcome, reason=decision.ruling.reason)
    if outcome == "error" and output.verdict == "pass":
        return replace(judged, verdict="warning", reason=decision.ruling.reason)
    return judged
