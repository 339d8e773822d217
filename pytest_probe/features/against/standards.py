"""Rules that compare outputs with outputs alone: equal bits, the tolerances of torch.testing and ptdbg, statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from pytest_probe.features.against.sides import STATISTICS_ROUNDOFFS, TensorPair
from pytest_probe.model.verdict import Outcome
from pytest_probe.numerics.arrays import PASS, blocks
from pytest_probe.numerics.dtypes import widen


class Closeness(Protocol):
    """Says why outputs are not close. outcome is what that is."""

    outcome: Outcome
    help: str
    # Are outputs close whose inputs are not?
    asks_inputs: bool = False

    def refused(self, pair: TensorPair) -> str:
        """The reason; "" where they are close, or where the dumps do not hold what the rule looks at."""


class Exact(Closeness):
    """Equal bits, or equal checksums."""

    outcome: Outcome = "error"
    help = "the other side, bit for bit"

    def refused(self, pair: TensorPair) -> str:
        if pair.equal or pair.basis == "nothing":
            return ""
        if pair.found is None:
            return f"{pair.basis} differ"
        return f"{1 - pair.found.equal_bits:.3g} of the elements have other bits"


# rtol and atol of torch.testing.assert_close in torch 2.13; dtypes without an entry are exact.
_TOLERANCES: Mapping[str, tuple[float, float]] = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


class Close(Closeness):
    """|A - B| <= atol + rtol |B| for all elements, with torch.testing's defaults; NaN is close to NaN."""

    outcome: Outcome = "error"
    help = "torch.testing's tolerances"

    def refused(self, pair: TensorPair) -> str:
        if pair.basis != "values" or pair.equal:
            return ""
        known = [_TOLERANCES.get(side.dtype, (0.0, 0.0)) for side in (pair.a, pair.b)]
        rtol, atol = (max(values) for values in zip(*known, strict=True))
        far = 0
        for one, other in blocks(pair.a.array(), pair.b.array(), PASS):
            close = np.isclose(widen(one), widen(other), rtol=rtol, atol=atol, equal_nan=True)
            far += int(np.count_nonzero(~close))
        size = pair.a.spec.size
        return f"{far:,} of {size:,} elements are not close (rtol {rtol:g}, atol {atol:g})" if far else ""


class Ptdbg(Closeness):
    """The limits of ptdbg_ascend: cosine below 0.99 and an error above 0.001; in 4.0 also cosine below 0.9 or an error
    above 1 alone."""

    outcome: Outcome = "error"

    def __init__(self, *, alone: bool, release: str) -> None:
        self._alone = alone
        self.help = f"the limits of ptdbg_ascend {release}"

    def refused(self, pair: TensorPair) -> str:
        if pair.found is None:
            return ""
        cosine, largest = 1.0 if pair.found.cosine is None else pair.found.cosine, pair.found.largest
        both = cosine < 0.99 and largest > 0.001
        alone = self._alone and (cosine < 0.9 or largest > 1)
        return f"cosine {cosine:.6f}, largest error {largest:.6g}" if both or alone else ""


class ByStatistics(Closeness):
    """Max, Min, Mean and Norm within 16 roundoffs of the dtype."""

    outcome: Outcome = "warning"
    asks_inputs = True
    help = f"Max, Min, Mean and Norm within {STATISTICS_ROUNDOFFS} roundoffs of the dtype"

    def refused(self, pair: TensorPair) -> str:
        gap = pair.statistics
        if gap is None or gap <= 1:
            return ""
        return f"statistics differ by {gap:.3g} times what roundings explain ({pair.words()})"


CLOSENESS: Mapping[str, Closeness] = {
    "exact": Exact(),
    "close": Close(),
    "ptdbg": Ptdbg(alone=True, release="4.0"),
    "ptdbg-2.3": Ptdbg(alone=False, release="2.3"),
    "statistics": ByStatistics(),
}
