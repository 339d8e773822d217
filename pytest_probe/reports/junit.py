"""What junit shows with an item: properties named `probe.*`, builtins only (xdist and XML take nothing else)."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from pytest_probe.model.result import Result, plain, worst_metric
from pytest_probe.reports.groups import Groups
from pytest_probe.system.text import printable

_PREFIX = "probe."
_TEXTS = ("id", "api", "direction", "dtype", "device", "verdict", "standard", "reason", "kind")
_METRICS = {
    name: _PREFIX + name for name in ("max_ulp", "max_abs", "max_rel", "noise_ratio", "noise_rms", "spread_ulp")
}


def other_properties(found: Iterable[tuple[str, object]]) -> list[tuple[str, object]]:
    """The properties that are not ours."""
    return [pair for pair in found if not pair[0].startswith(_PREFIX)]


def properties(result: Result) -> list[tuple[str, str | int | float]]:
    """The properties of a result: its texts, and of each metric the worst over all outputs."""
    texts = ((name, str(getattr(result, name))) for name in _TEXTS)
    found: list[tuple[str, str | int | float]] = [_shared(name, text) for name, text in texts if text]
    if result.is_emulated:
        found.append((_PREFIX + "emulated", "16 bit in float32"))
    if result.folded:
        found.append((_PREFIX + "folded", f"+{result.folded}"))
    for metric, name in _METRICS.items():
        value = worst_metric(result, metric)
        if value is not None:
            found.append((name, plain(value)))
    return found + _measured(result) + _gate(result) + _against(result) + _diagnosis(result)


def group_properties(groups: Groups) -> Iterator[tuple[str, str]]:
    """The properties of the whole file: a line for each group of errors."""
    yield from ((f"{_PREFIX}group.{number}", printable(line)) for number, line in enumerate(groups.lines(), 1))


@functools.lru_cache(1024)
def _shared(name: str, text: str) -> tuple[str, str]:
    """One pair for all results that have it, since pytest keeps the pairs of each item."""
    return _PREFIX + name, text


def _measured(result: Result) -> list[tuple[str, str | int | float]]:
    """What the case takes, where the run measures it, and how many times as much as in another run."""
    time, memory = result.time, result.memory
    values = (
        ("time_us", None if time is None else time.median_us),
        ("time_ratio", None if time is None or time.beside is None else time.beside.ratio),
        ("peak_bytes", None if memory is None else memory.peak_bytes),
    )
    return [(_PREFIX + name, value) for name, value in values if value is not None]


def _gate(result: Result) -> list[tuple[str, str | int | float]]:
    """What the case is compared with the baseline, and why."""
    if result.gate is None:
        return []
    texts = (("gate", result.gate.change), ("gate_reason", result.gate.reason))
    return [(_PREFIX + name, text) for name, text in texts if text]


def _against(result: Result) -> list[tuple[str, str | int | float]]:
    """What the call is beside the other side, which side is wrong, and what both differ by."""
    if result.against is None:
        return []
    found = result.against
    texts = (("against", found.status), ("suspect", found.suspect), ("difference", found.difference))
    return [_shared(name, printable(text)) for name, text in texts if text]


def _diagnosis(result: Result) -> list[tuple[str, str | int | float]]:
    """How much of the output that decides is wrong, where, and what it looks like."""
    failed = next((output for output in result.outputs if output.verdict == result.verdict), None)
    if failed is None or failed.diagnosis is None:
        return []
    found = failed.diagnosis
    texts = (("wrong", found.wrong), ("where", found.where), ("cause", found.cause), ("cause_family", found.family))
    return [(_PREFIX + name, value) for name, value in texts if value]
