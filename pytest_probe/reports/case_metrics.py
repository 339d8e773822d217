"""The metrics of a case, one number each, from the worst output. Pages sort by them, a history keeps them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pytest_probe.model.details import LIMIT, limit_share
from pytest_probe.model.result import Result, number, rank
from pytest_probe.numerics.error_plots import round_digits

SHARE = "limit_share"
# What the page calls them; other metrics have their own names.
LABELS = {
    SHARE: "share of limit",
    "noise_ratio": "noise ratio",
    "noise_rms": "noise RMS",
    "max_ulp": "max ULP",
    "mean_ulp": "mean ULP",
    "max_abs": "max abs error",
    "max_rel": "max rel error",
    "mismatch": "share misrounded",
    "nonfinite_mismatch": "NaN or inf apart",
    "time_us": "time, us",
    "time_ratio": "time compared with the other run",
    "gflop_per_s": "GFLOP/s",
    "gb_per_s": "GB/s",
    "peak_bytes": "peak memory, bytes",
    "duration": "time of the check, s",
}
# Metrics that are no measure of an error.
_NO_MEASURE = ("k", "fan_in", "sampled", "repeats")
# Digits of a number.
_DIGITS = 4


def metrics_of(result: Result) -> Iterator[tuple[str, float]]:
    """The metrics that a case has, by name."""
    found: dict[str, float] = {}
    shares = [share for output in result.outputs if (share := limit_share(output.metrics)) is not None]
    if shares:
        found[SHARE] = max(shares)
    for output in result.outputs:
        for name, value in output.metrics.items():
            is_number = isinstance(value, (int, float)) or value in ("nan", "inf", "-inf")
            if is_number and not (name.endswith(LIMIT) or name in _NO_MEASURE or isinstance(value, bool)):
                own = number(value)
                known = found.get(name)
                found[name] = own if known is None or rank(own) > rank(known) else known
    yield from found.items()
    time, memory = result.time, result.memory
    if time is not None and time.median_us is not None:
        yield "time_us", time.median_us
        if time.beside is not None:
            yield "time_ratio", time.beside.ratio
        if time.throughput is not None:
            rates = {"gflop_per_s": time.throughput.gflop_per_s, "gb_per_s": time.throughput.gb_per_s}
            yield from ((name, rate) for name, rate in rates.items() if rate is not None)
    if memory is not None and memory.peak_bytes is not None:
        yield "peak_bytes", float(memory.peak_bytes)
    yield "duration", result.duration


def short(value: float) -> float | int | str:
    """A number in few letters, as JSON takes it."""
    if not math.isfinite(value):
        return str(value)
    rounded = round_digits(value, _DIGITS)
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e6 else rounded
