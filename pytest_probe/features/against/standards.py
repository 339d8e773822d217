"""Rules that compare outputs with outputs alone: equal bits, the tolerances of torch.testing and ptdbg, statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from pytest_probe.export.dump_metrics import Columns, accuracy, newer, older
from pytest_probe.features.against.sides import STATISTICS_ROUNDOFFS, TensorPair
from pytest_probe.model.verdict import Outcome
from pytest_probe.numerics.arrays import not_close


class Closeness(Struct, frozen=True):
    """refused gives the reason why unequal outputs are not close, "" where they are; outcome is what that is. sees: do
    the dumps hold what it looks at? asks_inputs: outputs are close whose inputs are not."""

    help: str
    refused: Callable[[TensorPair], str]
    sees: Callable[[TensorPair], bool] = lambda pair: pair.equal or pair.found is not None
    outcome: Outcome = "error"
    asks_inputs: bool = False


def _other_bits(pair: TensorPair) -> str:
    if pair.found is None:
        return f"{pair.basis} differ"
    return f"{1 - pair.found.equal_bits:.3g} of the elements have other bits"


def _inaccurate(found: Columns, *, is_older: bool = False) -> str:
    """What ptdbg_ascend's tables call not accurate: cosine below 0.99 and an error above 0.001; in 4.0 also cosine
    below 0.9 or an error above 1 alone, and NaN or inf at other places."""
    if accuracy(found, is_older=is_older) != "No":
        return ""
    return found[-1] if found[0] == "N/A" else f"cosine {found[0]}, largest error {float(found[1]):.6g}"


def _other_statistics(pair: TensorPair) -> str:
    gap = pair.statistics
    return (
        ""
        if gap is None or gap <= 1
        else f"statistics differ by {gap:.3g} times what roundings explain ({pair.words()})"
    )


CLOSENESS: Mapping[str, Closeness] = {
    # Equal checksums as well.
    "exact": Closeness("the other side, bit for bit", _other_bits, lambda pair: pair.basis != "nothing"),
    "close": Closeness(
        "torch.testing's tolerances",
        lambda pair: not_close(pair.a.array(), pair.b.array(), (pair.a.dtype, pair.b.dtype)),
    ),
    "ptdbg": Closeness(
        "the limits of ptdbg_ascend 4.0", lambda pair: _inaccurate(newer(pair.a.array(), pair.b.array()))
    ),
    "ptdbg-2.3": Closeness(
        "the limits of ptdbg_ascend 2.3",
        lambda pair: _inaccurate(older(pair.a.array(), pair.b.array()), is_older=True),
    ),
    "statistics": Closeness(
        f"Max, Min, Mean and Norm within {STATISTICS_ROUNDOFFS} roundoffs of the dtype",
        _other_statistics,
        lambda pair: pair.statistics is not None or pair.equal,
        outcome="warning",
        asks_inputs=True,
    ),
}
