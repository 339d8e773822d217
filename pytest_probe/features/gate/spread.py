"""How far the metrics of a healthy output may move: measured for this output, or calibrated by number of elements.

RMSE decides. Distances in ULP near zero differ by factors of thousands between healthy kernels, and the RMSE of a few
large elements is luck. So the limit depends on the elements that make the RMS, not on their number.
benchmarks/gate_spread.py measures both kinds of errors.
"""

from __future__ import annotations

import math

from msgspec import Struct

from pytest_probe.model.baseline import KeptOutput, Spread, number

# Elements below which a factor holds: benchmarks/gate_spread.py measures it, docs/gate.md shows what it found.
CALIBRATED = ((10, 6.5), (30, 3.4), (math.inf, 1.8))
# The same of noise ratios, which are the largest of all elements: of those above 1, whatever the number of elements.
NOISE_RATIO = 60.0
# So many elements make luck: fewer may all be nearly exact by chance.
MANY = 30


class Row(Struct, frozen=True):
    """One metric, before and now. limit is the factor above which it alone makes the output worse, inf where it never
    does."""

    metric: str
    before: float
    now: float
    limit: float = math.inf

    @property
    def factor(self) -> float:
        """How many times as large it is; inf where it was zero."""
        if self.now == self.before:
            return 1.0
        return self.now / self.before if self.before else math.inf

    @property
    def worse(self) -> bool:
        return self.now > self.before and self.factor > self.limit


def calibrated(elements: float) -> float:
    """The factor by which the RMSE of so many elements differs between healthy runs, at most."""
    return next(factor for below, factor in CALIBRATED if elements < below)


def rows(before: KeptOutput, now: KeptOutput, spread: Spread | None) -> tuple[Row, ...]:
    """The metrics that both sides have, the one that decides first. spread: that of the output, where it was
    measured."""
    if before.rmse is None or now.rmse is None:
        return ()
    found = [
        Row("relative RMSE", number(before.rmse), number(now.rmse), _limit_of_rmse(before, now, spread)),
        Row("mean ULP", number(before.mean_ulp), number(now.mean_ulp)),
        Row("max ULP", number(before.max_ulp), number(now.max_ulp)),
    ]
    if before.noise_ratio is not None and now.noise_ratio is not None and before.k == now.k:
        ratio = number(before.noise_ratio)
        limit = NOISE_RATIO if ratio >= 1 else NOISE_RATIO / ratio if ratio else math.inf
        # Of a ratio of 0 there is no factor.
        beyond = not ratio and number(now.noise_ratio) > NOISE_RATIO
        found.append(Row(f"noise ratio, k {now.k}", ratio, number(now.noise_ratio), NOISE_RATIO if beyond else limit))
    return tuple(found)


def _limit_of_rmse(before: KeptOutput, now: KeptOutput, spread: Spread | None) -> float:
    # A few large elements may make the RMS, and their errors are a matter of luck. Where the mean ULP, which all
    # elements make, grew as well, luck would have come twice.
    grown = number(now.mean_ulp) > number(before.mean_ulp) * _limit(now.elements, spread.mean_ulp if spread else None)
    count = now.elements if grown else min(before.carriers or 0, now.carriers or 0)
    # An error within the noise scale is that of any healthy kernel: that it was smaller before was luck.
    if (count < MANY or number(before.rmse) == 0) and number(now.noise_ratio) <= 1:
        return math.inf
    return _limit(count, spread.rmse if spread else None)


def _limit(elements: float, measured: float | None) -> float:
    """A measured spread is that of few runs: the root of the calibrated one comes on top, with which no healthy output
    was worse (benchmarks/gate_spread.py)."""
    factor = calibrated(elements)
    return factor if measured is None else measured * math.sqrt(factor)
