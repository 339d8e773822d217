"""What a baseline keeps of an output, to tell whether it got worse."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import Metric, OutputVerdict
from pytest_probe.numerics import metrics
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.metrics import relative_rmse

# Other numbers each time.
_UNREPEATABLE = frozenset(("random", "uninitialised"))
# Several results are right, so that the distance from one of them says nothing. By the standard that judged, and for
# the standards that judge all alike, by the API's class.
_CHOSEN = frozenset(("selection", "factorisation", "discrete", "own_dtype", "ties"))
_FORWARD_ONLY, _BACKWARD_ONLY = frozenset(("selection", "discrete", "own_dtype")), frozenset(("ties",))


def baseline_metrics(comparison: Comparison, verdict: OutputVerdict) -> Mapping[str, Metric]:
    """elements; crc, the CRC-32 of the device's bytes, in hex; and of floats that have one right value rmse (over the
    reference's RMS, which is made of so many carriers), max_ulp, mean_ulp, and where the noise standard judged
    noise_ratio and its k."""
    actual = comparison.actual
    found: dict[str, Metric] = {"elements": actual.size}
    if verdict.standard in _UNREPEATABLE or not _UNREPEATABLE.isdisjoint(comparison.classes):
        return found
    other = _BACKWARD_ONLY if comparison.direction == "forward" else _FORWARD_ONLY
    chosen = verdict.standard in _CHOSEN or not (_CHOSEN - other).isdisjoint(comparison.classes)
    if (verdict.standard in ("noise", "exact") or not chosen) and actual.dtype.kind not in "iub":
        found |= _distances(comparison, verdict)
    return {**found, "crc": crc(actual)}


def crc(array: AnyArray) -> str:
    """CRC-32 of an array's bytes in their order, as eight hexadecimal digits."""
    return f"{zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data):08x}"


def _distances(comparison: Comparison, verdict: OutputVerdict) -> dict[str, Metric]:
    known = verdict.metrics
    # Under a device mode they are of another reference.
    if "mean_ulp" not in known or "mode" in known:
        known = metrics.describe(comparison.actual, comparison.expected)
    rmse, carriers = relative_rmse(comparison.actual, comparison.expected)
    found: dict[str, Metric] = {
        "rmse": float("inf") if known["nonfinite_mismatch"] else rmse,
        "max_ulp": known["max_ulp"],
        "mean_ulp": known["mean_ulp"],
        "carriers": round(carriers),
    }
    return found | {name: verdict.metrics[name] for name in ("noise_ratio", "k") if name in verdict.metrics}
