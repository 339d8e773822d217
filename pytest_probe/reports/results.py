"""Results as plain data: one dict of builtins an item, their file, and what a run adds up to."""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from pytest_probe.errors import SettingsError
from pytest_probe.execution.repeats import NON_DETERMINISTIC
from pytest_probe.standards.verdict import SEVERITY, Element, OutputVerdict, Verdict

Result: TypeAlias = "dict[str, Any]"

SCHEMA = 1
ALL_RUNS = 4
WARNINGS = 20
RESULTS, RUN = "results.jsonl", "run.json"


def result(verdict: Verdict, *, id: str, api: str, direction: str, dtype: str, device: str, duration: float) -> Result:
    """The result of one item: builtins only, non-finite numbers as the strings "nan", "inf", "-inf".

    id is the portable id, api the namespace and API ("Functional.linear"), dtype what the case ran in, duration
    seconds.
    """
    return {
        "id": id,
        "api": api,
        "direction": direction,
        "dtype": verdict.dtype or dtype,
        "device": device,
        "verdict": verdict.verdict,
        "standard": verdict.standard,
        "reason": verdict.reason,
        "kind": verdict.kind,
        "duration": plain(duration),
        "outputs": [_output(output) for output in verdict.outputs],
        "notes": list(verdict.notes),
    }


def plain(value: Any) -> Any:
    """A metric as a builtin; NumPy's scalars become Python's, non-finite numbers text."""
    if isinstance(value, bool | str) or value is None:
        return value
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def number(value: Any) -> float:
    """The number behind a metric of a result; NaN where it is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def outputs_worst(outcome: Mapping[str, Any], metric: str) -> float | None:
    """The largest value of a metric over a result's outputs, NaN above all; None where no output has it."""
    values = [number(output["metrics"][metric]) for output in outcome["outputs"] if metric in output["metrics"]]
    return max(values, key=_rank, default=None)


def _rank(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _output(output: OutputVerdict) -> Result:
    measured = {"measures": {name: plain(value) for name, value in output.measures.items()}} if output.measures else {}
    return {
        "name": output.name,
        "shape": [int(extent) for extent in output.shape],
        "dtype": output.dtype,
        "verdict": output.verdict,
        "standard": output.standard,
        "reason": output.reason,
        "metrics": {name: plain(value) for name, value in output.metrics.items()},
        "worst": [_element(element) for element in output.worst],
        **measured,
    }


def _element(element: Element) -> Result:
    return {
        "index": [int(position) for position in element.index],
        "actual": plain(element.actual),
        "expected": plain(element.expected),
        "ulp": plain(element.ulp),
        "ratio": plain(element.ratio),
    }


class ResultsWriter:
    """`results.jsonl`, one line an item and flushed with it, and `run.json`.

    Raises SettingsError where the folder holds results already, or cannot be written to.
    """

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        self.folder = folder
        self._run = {"schema": SCHEMA, **run}
        path = folder / RESULTS
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size:
                raise SettingsError("--probe-out", str(folder), f"it holds {RESULTS} of another run; give a new folder")
            self._file = path.open("ab")
            self._write_run()
        except OSError as error:
            raise SettingsError("--probe-out", str(folder), f"it cannot be written to: {error.strerror}") from None

    def write(self, outcome: Result) -> None:
        self._file.write(msgspec.json.encode(outcome) + b"\n")
        self._file.flush()

    def close(self, **summary: Any) -> None:
        """End the run; summary is added to `run.json`."""
        self._file.close()
        self._run |= summary
        self._write_run()

    def _write_run(self) -> None:
        temporary = self.folder / f".{RUN}.{os.getpid()}"
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(self._run), indent=2) + b"\n")
        os.replace(temporary, self.folder / RUN)


def digest(path: Path) -> str:
    """SHA-256 of a file, as "sha256:..."."""
    with path.open("rb") as file:
        state = hashlib.sha256()
        while block := file.read(1 << 20):
            state.update(block)
    return f"sha256:{state.hexdigest()}"


@dataclass(slots=True)
class Worst:
    """The worst of one API: its largest noise ratio with that output's limit, its largest ULP, its worst verdict.

    bound tells that the ratio is an upper bound: the verdict was clear before all perturbed runs were made.
    """

    api: str
    ratio: float = -1.0
    limit: float = math.nan
    ulp: float = math.nan
    verdict: str = "skip"
    bound: bool = False


@dataclass(slots=True)
class Tally:
    """What a run adds up to, kept small: no result is held. differing counts cases whose runs differ, warnings holds
    id and reason of the first WARNINGS."""

    verdicts: Counter[str] = field(default_factory=Counter)
    skips: Counter[str] = field(default_factory=Counter)
    apis: dict[str, Worst] = field(default_factory=dict)
    differing: int = 0
    warnings: list[tuple[str, str]] = field(default_factory=list)

    def add(self, outcome: Mapping[str, Any]) -> None:
        self.differing += any(note.startswith(NON_DETERMINISTIC) for note in outcome["notes"])
        self.verdicts[outcome["verdict"]] += 1
        if outcome["verdict"] == "skip":
            self.skips[outcome["kind"] or outcome["reason"]] += 1
        if outcome["verdict"] == "warning" and len(self.warnings) < WARNINGS:
            self.warnings.append((outcome["id"], _why(outcome)))
        worst = self.apis.setdefault(outcome["api"], Worst(outcome["api"]))
        worst.verdict = max(worst.verdict, outcome["verdict"], key=lambda name: SEVERITY[name])
        for output in outcome["outputs"]:
            _widen(worst, output["metrics"])

    def ranking(self, count: int) -> Sequence[Worst]:
        """The `count` worst APIs by noise ratio; those that reach no ratio above 0 are left out."""
        ranked = sorted(self.apis.values(), key=lambda worst: -_rank(worst.ratio))
        return [worst for worst in ranked[:count] if not worst.ratio <= 0]


def _why(outcome: Mapping[str, Any]) -> str:
    """The reason of a result in one line, that of its worst output where it has none of its own."""
    outputs = (
        f"{item['name']}: {item['reason']}" for item in outcome["outputs"] if item["verdict"] == outcome["verdict"]
    )
    lines = (outcome["reason"] or next(outputs, "")).splitlines()
    return lines[0] if lines else ""


def _widen(worst: Worst, metrics: Mapping[str, Any]) -> None:
    ratio = number(metrics.get("noise_ratio", -1.0))
    if _rank(ratio) > _rank(worst.ratio):
        worst.ratio, worst.limit = ratio, number(metrics.get("noise_ratio_limit"))
        worst.bound = number(metrics.get("k", ALL_RUNS)) < ALL_RUNS
    if "max_ulp" in metrics:
        worst.ulp = max(number(metrics["max_ulp"]), -1.0 if math.isnan(worst.ulp) else worst.ulp, key=_rank)
