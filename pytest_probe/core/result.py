"""What is kept of a case: its result, plain data for JSON, junit and a process boundary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from pytest_probe.core.verdict import Element, OutputVerdict, Verdict

Result: TypeAlias = "dict[str, Any]"


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
    return max(values, key=rank, default=None)


def rank(value: float) -> float:
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
