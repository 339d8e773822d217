"""A case as a baseline keeps it, and what the comparison with it says: plain data for JSON and a process boundary."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from pytest_probe.model.verdict import Outcome
from pytest_probe.numerics.error_plots import round_digits

# Of a metric; None where the output has none.
Number: TypeAlias = float | Literal["inf"] | None
# same: as before. known: it failed before, and is no worse. new: not in the baseline. changed: another call by the same
# name. bits: no worse, but not the same bits, where those count. gone: it was judged, and now it is a skip.
Change: TypeAlias = Literal["same", "better", "worse", "known", "new", "changed", "bits", "gone"]
# The changes that fail a case, in words.
WORSE: Mapping[str, str] = {"worse": "worse than the baseline", "bits": "other bits than the baseline"}


class KeptOutput(msgspec.Struct, frozen=True, array_like=True):
    """One output. Numbers have four digits, so that they are read and reviewed; crc is eight hexadecimal digits."""

    name: str
    rmse: Number
    max_ulp: Number
    mean_ulp: Number
    noise_ratio: Number
    k: int | None
    crc: str | None
    elements: int
    carriers: int | None

    @classmethod
    def of(cls, name: str, metrics: Mapping[str, Any]) -> KeptOutput:
        rmse, maximum, mean, ratio = (
            _rounded(metrics.get(key)) for key in ("rmse", "max_ulp", "mean_ulp", "noise_ratio")
        )
        k, crc, carriers = metrics.get("k"), metrics.get("crc"), metrics.get("carriers")
        return cls(name, rmse, maximum, mean, ratio, k, crc, metrics["elements"], carriers)


class Spread(msgspec.Struct, frozen=True, array_like=True):
    """How many times larger the metrics of one output were with other inputs, at most."""

    rmse: float
    mean_ulp: float


class KeptTime(msgspec.Struct, frozen=True, array_like=True):
    """The least and the largest median of so many runs, in microseconds."""

    low_us: float
    high_us: float
    runs: int = 1

    @classmethod
    def of(cls, medians: Iterable[float]) -> KeptTime | None:
        """None of no medians."""
        found = [_rounded(median) for median in medians]
        return cls(min(found), max(found), len(found)) if found else None

    def joined(self, other: KeptTime) -> KeptTime:
        return KeptTime(min(self.low_us, other.low_us), max(self.high_us, other.high_us), self.runs + other.runs)

    @property
    def spread(self) -> float:
        """How many times as long the slowest run took as the fastest."""
        return self.high_us / self.low_us if self.low_us else math.inf


class KeptCase(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a baseline. id is portable; signature stands for API, shapes, dtypes and plain arguments; spread is
    that of each output, where it was measured; time where that was; relations are what was found on each relation
    between calls, where the run asked for them."""

    id: str
    signature: str
    verdict: Outcome
    outputs: tuple[KeptOutput, ...] = ()
    spread: tuple[Spread | None, ...] | None = None
    time: KeptTime | None = None
    relations: dict[str, Outcome] = {}


class Compared(msgspec.Struct, frozen=True, omit_defaults=True):
    """A case against the baseline: what changed, why in one line, how many outputs have the same bits, of how many that
    could be compared; and the case as a baseline would keep it now."""

    change: Change
    reason: str
    case: KeptCase
    same_bits: int = 0
    bits: int = 0


def _rounded(value: Any) -> Any:
    """A metric with four digits, as JSON takes it; whole numbers without a fraction."""
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        return "inf"
    return round_digits(number, 4)


def number(value: Number) -> float:
    """The number behind a metric; NaN without one."""
    return math.nan if value is None else float(value)
