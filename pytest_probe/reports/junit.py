"""What junit shows with an item: properties named `probe.*`, builtins only (xdist and XML take nothing else)."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from pytest_probe.model.result import Result, number, plain, rank
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
        values = [number(output.metrics[metric]) for output in result.outputs if metric in output.metrics]
        if values:
            # NaN is above all.
            found.append((name, plain(max(values, key=rank))))
    time, memory, gate, against = result.time, result.memory, result.gate, result.against
    # What the case takes, where the run measures it, and how many times as much as in another run.
    numbers = (
        ("time_us", None if time is None else time.median_us),
        ("time_ratio", None if time is None or time.beside is None else time.beside.ratio),
        ("peak_bytes", None if memory is None else memory.peak_bytes),
    )
    found += [(_PREFIX + name, value) for name, value in numbers if value is not None]
    if gate is not None:
        found += [
            (_PREFIX + name, text) for name, text in (("gate", gate.change), ("gate_reason", gate.reason)) if text
        ]
    if against is not None:
        words = (("against", against.status), ("suspect", against.suspect), ("difference", against.difference))
        found += [_shared(name, printable(text)) for name, text in words if text]
    # Of the output that decides: how much is wrong, where, and what it looks like.
    failed = next((output for output in result.outputs if output.verdict == result.verdict), None)
    if failed is not None and failed.diagnosis is not None:
        wrong = failed.diagnosis
        facts = (("wrong", wrong.wrong), ("where", wrong.where), ("cause", wrong.cause), ("cause_family", wrong.family))
        found += [(_PREFIX + name, value) for name, value in facts if value]
    return found


def group_properties(groups: Groups) -> Iterator[tuple[str, str]]:
    """The properties of the whole file: a line for each group of errors."""
    yield from ((f"{_PREFIX}group.{number}", printable(line)) for number, line in enumerate(groups.lines(), 1))


@functools.lru_cache(1024)
def _shared(name: str, text: str) -> tuple[str, str]:
    """One pair for all results that have it, since pytest keeps the pairs of each item."""
    return _PREFIX + name, text
