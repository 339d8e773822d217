"""Rules that compare outputs with outputs alone: equal bits, the tolerances of torch.testing and ptdbg, statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from pytest_probe.export.dump_metrics import Columns, accuracy, newer, older
from pytest_probe.features.against.sides import STATISTICS_ROUNDOFFS, TensorPair
from pytest_probe.model.verdict import Outcome
from pytest_probe.numerics.arrays import not_close
from pytest_probe.numerics.dtypes import AnyArray


class Closeness(Protocol):
    """Says why outputs are not close. outcome is what that is."""

    outcome: Outcome
    help: str
    # Are outputs close whose inputs are not?
    asks_inputs: bool = False

    def sees(self, pair: TensorPair) -> bool:
        """Do the dumps hold what the rule looks at?"""
        return pair.equal or pair.found is not None

    def refused(self, pair: TensorPair) -> str:
        """The reason; "" where they are close."""


class Exact(Closeness):
    """Equal bits, or equal checksums."""

    outcome: Outcome = "error"
    help = "the other side, bit for bit"

    def sees(self, pair: TensorPair) -> bool:
        return pair.basis != "nothing"

    def refused(self, pair: TensorPair) -> str:
        if pair.equal:
            return ""
        if pair.found is None:
            return f"{pair.basis} differ"
        return f"{1 - pair.found.equal_bits:.3g} of the elements have other bits"


class Close(Closeness):
    """|A - B| <= atol + rtol |B| for all elements, with torch.testing's defaults; NaN is close to NaN."""

    outcome: Outcome = "error"
    help = "torch.testing's tolerances"

    def refused(self, pair: TensorPair) -> str:
        if pair.basis != "values" or pair.equal:
            return ""
        return not_close(pair.a.array(), pair.b.array(), (pair.a.dtype, pair.b.dtype))


class Ptdbg(Closeness):
    """What ptdbg_ascend's tables call not accurate: cosine below 0.99 and an error above 0.001; in 4.0 also cosine
    below 0.9 or an error above 1 alone, and NaN or inf at other places."""

    outcome: Outcome = "error"

    def __init__(self, columns: Callable[[AnyArray, AnyArray], Columns], *, is_older: bool) -> None:
        self._columns, self._is_older = columns, is_older
        self.help = f"the limits of ptdbg_ascend {'2.3' if is_older else '4.0'}"

    def refused(self, pair: TensorPair) -> str:
        if pair.basis != "values":
            return ""
        found = self._columns(pair.a.array(), pair.b.array())
        if accuracy(found, is_older=self._is_older) != "No":
            return ""
        return found[-1] if found[0] == "N/A" else f"cosine {found[0]}, largest error {float(found[1]):.6g}"


class ByStatistics(Closeness):
    """Max, Min, Mean and Norm within 16 roundoffs of the dtype."""

    outcome: Outcome = "warning"
    asks_inputs = True

    def sees(self, pair: TensorPair) -> bool:
        return pair.statistics is not None or pair.equal

    help = f"Max, Min, Mean and Norm within {STATISTICS_ROUNDOFFS} roundoffs of the dtype"

    def refused(self, pair: TensorPair) -> str:
        gap = pair.statistics
        if gap is None or gap <= 1:
            return ""
        return f"statistics differ by {gap:.3g} times what roundings explain ({pair.words()})"


CLOSENESS: Mapping[str, Closeness] = {
    "exact": Exact(),
    "close": Close(),
    "ptdbg": Ptdbg(newer, is_older=False),
    "ptdbg-2.3": Ptdbg(older, is_older=True),
    "statistics": ByStatistics(),
}
