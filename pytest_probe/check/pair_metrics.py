"""How far two sides' tensors lie apart, in a few numbers, and what two sides of a call are, in words;
and what a baseline keeps of an output, to tell whether it got worse."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.pairing import Paired, Status
from pytest_probe.model.result import number, plain
from pytest_probe.model.verdict import Answer, Metric, OutputVerdict, Verdict
from pytest_probe.numerics import metrics
from pytest_probe.numerics.arrays import PASS, blocks, equal_bits, same_value
from pytest_probe.numerics.dtypes import (
    AnyArray,
    float_format,
    is_complex,
    is_floating,
    is_inexact,
    numpy_dtype,
    ulp_distance,
    widen,
)
from pytest_probe.numerics.metrics import Vectors, describe, relative_rmse, rescaled

# The kind of a skip whose tensors cannot be compared.
INCOMPARABLE = "another shape or dtype on the other side"


class Difference(Struct, frozen=True):
    """Two arrays of one shape, side A against side B.

    equal_bits is the share of elements with the same bits. ULP are of the coarser dtype of both, at B; inf where one
    side alone is NaN or inf. relative_rmse is relative to B, snr_db is 20 log10 of its inverse. Integers and bool have
    largest, the largest |A - B|, and no ULP.
    """

    size: int
    equal_bits: float
    largest: float
    ulp_max: float | None = None
    ulp_mean: float | None = None
    ulp_p99: float | None = None
    relative_rmse: float | None = None
    snr_db: float | None = None
    cosine: float | None = None

    @property
    def equal(self) -> bool:
        return self.equal_bits == 1.0

    @property
    def gap(self) -> float:
        """The relative RMSE; of integers and bool 1 where they differ."""
        return float(not self.equal) if self.relative_rmse is None else self.relative_rmse

    def metrics(self) -> dict[str, Metric]:
        """The known ones, by their names."""
        found = {name: getattr(self, name) for name in self.__struct_fields__[1:]}
        return {name: value for name, value in found.items() if value is not None}


def difference(a: AnyArray, b: AnyArray) -> Difference:
    """How far A lies from B. Raises ValueError where the shapes differ."""
    if a.shape != b.shape:
        raise ValueError(f"A has shape {a.shape}, B {b.shape}")
    bits = equal_bits(a, b)
    if not is_inexact(a.dtype) or not is_inexact(b.dtype):
        return Difference(a.size, bits, 0.0 if bits == 1.0 else float(describe(a, b)["max_abs"]))
    if bits == 1.0:
        return Difference(a.size, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, math.inf, 1.0)
    ulp, largest = _distances(a, b)
    rmse = relative_rmse(a, b).value if largest < math.inf else math.inf
    # Of the elements that are finite on both sides.
    vectors: Vectors = rescaled(a, b, PASS)
    away = vectors.distance()
    return Difference(
        a.size,
        bits,
        largest,
        float(ulp.max()),
        float(ulp.mean(dtype=np.float64)),
        float(np.quantile(ulp, 0.99, method="inverted_cdf")),
        rmse,
        -20 * math.log10(rmse) if 0 < rmse < math.inf else math.inf if rmse == 0 else -math.inf,
        None if away is None or math.isnan(away) else 1 - away,
    )


def _distances(a: AnyArray, b: AnyArray) -> tuple[AnyArray, float]:
    """In ULP, float32: a percentile needs all of them. Of one real dtype they are the numbers between both. And the
    largest finite |A - B|; inf where one side alone is NaN or inf."""
    # The dtype of both whose numbers are farther apart.
    dtype = max(a.dtype, b.dtype, key=lambda dtype: float_format(dtype).roundoff)
    found, at, largest = np.empty(a.size, np.float32), 0, 0.0
    steps = a.dtype == b.dtype and not is_complex(a.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        for one, other in blocks(a, b, PASS):
            found[at : at + one.size] = _steps(one, other) if steps else ulp_distance(one, other, dtype)
            at += one.size
            gap = np.abs(widen(one) - widen(other))
            gap = np.where(np.isfinite(gap), gap, np.where(same_value(one, other), 0.0, np.inf))
            largest = max(largest, float(gap.max(initial=0.0)))
    return found, largest


def _steps(one: AnyArray, other: AnyArray) -> AnyArray:
    """How many numbers of the dtype lie from one to the other; inf where one of them alone is not finite."""
    ranks = []
    for side in (one, other):
        # The place of each number among all of its dtype, 0 for both zeros, in float64.
        bits = np.ascontiguousarray(side).view(f"u{side.dtype.itemsize}")
        top = bits.dtype.type(1 << (8 * side.dtype.itemsize - 1))
        size = (bits & ~top).astype(np.float64)
        ranks.append(np.where(bits & top, -size, size))
    alike = same_value(one, other)
    finite = np.isfinite(widen(one)) & np.isfinite(widen(other))
    return np.where(alike, 0.0, np.where(finite, np.abs(ranks[0] - ranks[1]), np.inf))


def describe_pair(paired: Paired) -> str:
    """What a pair is, in one line."""
    both = (("A", paired.noise_a), ("B", paired.noise_b))
    noise = ", ".join(f"{name} {number(value):.3g}" for name, value in both if value is not None)
    near = f"; nearer to float64: {paired.nearer} ({noise} noise ratios)" if paired.nearer else ""
    named = f"; {paired.difference}" if paired.difference else ""
    own = f" error of {paired.suspect}" if paired.suspect else ""
    return f"{paired.status}{own}, against {paired.other}{near}{named}"


def answer_of(paired: Paired, apart: Sequence[Difference] = ()) -> Answer:
    """What a pair is, with what its outputs differ by, for tables."""
    equal = sum(round(each.size * each.equal_bits) for each in apart), sum(each.size for each in apart)
    largest = max((each.ulp_max for each in apart if each.ulp_max is not None), default=0.0)
    return Answer(
        "A against B",
        paired.description,
        paired.difference,
        {"equal_bits": equal} if apart else {},
        {f"nearer_{paired.nearer}": 1} if paired.nearer else {},
        {"ulp_max": largest} if largest else {},
        paired,
    )


def noise_of(verdict: Verdict) -> float | None:
    """The largest noise ratio of a side's outputs; None where noise judged none."""
    found = [number(output.metrics["noise_ratio"]) for output in verdict.outputs if "noise_ratio" in output.metrics]
    return max(found, default=None, key=lambda value: math.inf if math.isnan(value) else value)


def pair_of(
    status: Status,
    other: str,
    verdicts: Mapping[str, Verdict],
    wrong: Sequence[str],
    difference: str,
    gap: float,
    *,
    one_dtype: bool = True,
) -> Paired:
    """What a pair is, by both sides' verdicts, where they were judged. one_dtype: each side's noise is that of its own
    dtype, so only then one is nearer."""
    a, b = (noise_of(verdicts[side]) if side in verdicts else None for side in ("A", "B"))
    near = "" if a is None or b is None or a == b or not one_dtype else "A" if a < b else "B"
    return Paired(status, other, " and ".join(wrong), near, plain(a), plain(b), difference, plain(gap))


def casts_exactly(one: str, other: str) -> bool:
    """Does one of the two dtypes hold all numbers of the other?"""
    first, second = sorted((numpy_dtype(one), numpy_dtype(other)), key=lambda dtype: dtype.itemsize)
    if is_floating(first) and is_floating(second):
        low, high = float_format(first), float_format(second)
        return low.precision <= high.precision and low.max <= high.max and low.smallest >= high.smallest
    if is_complex(first) or is_complex(second):
        return is_complex(first) and is_complex(second)
    return bool(np.can_cast(first, second)) and first.kind in "biu" and second.kind in "iu"


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
        found |= _kept_errors(comparison, verdict)
    return {**found, "crc": crc(actual)}


def crc(array: AnyArray) -> str:
    """CRC-32 of an array's bytes in their order, as eight hexadecimal digits."""
    return f"{zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data):08x}"


def _kept_errors(comparison: Comparison, verdict: OutputVerdict) -> dict[str, Metric]:
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
