"""A case as a baseline keeps it, from its verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pytest_probe.model.baseline import KeptCase, KeptOutput, KeptTime, Spread, number
from pytest_probe.model.verdict import Verdict

# A spread beyond this says that luck decides.
MOST = 1000.0


def kept(id: str, signature: str, verdict: Verdict, others: Sequence[Verdict] = ()) -> KeptCase:
    """others are verdicts on the same case with other inputs, by which the spread of its metrics is measured."""
    if verdict.verdict == "skip":
        return KeptCase(id, signature, "skip")
    times = (each.time for each in (verdict, *others))
    medians = [time.median_us for time in times if time is not None and time.compares and time.median_us is not None]
    outputs = _outputs(verdict)
    spread = None
    if others:
        runs = [{each.name: each for each in _outputs(other)} for other in others]
        found = tuple(spread_of(each, [run[each.name] for run in runs if each.name in run]) for each in outputs)
        spread = found if any(found) else None
    return KeptCase(id, signature, verdict.verdict, outputs, spread, KeptTime.of(medians))


def _outputs(verdict: Verdict) -> tuple[KeptOutput, ...]:
    return tuple(KeptOutput.of(output.name, output.baseline) for output in verdict.outputs if output.baseline)


def spread_of(output: KeptOutput, others: Sequence[KeptOutput]) -> Spread | None:
    """How far the metrics of an output moved with other inputs; None where it has none, or where all runs gave the same
    bits, as on stored inputs, which no seed changes."""
    if output.rmse is None or all(other.crc == output.crc for other in others):
        return None
    rmse = _largest(number(output.rmse), (number(other.rmse) for other in others))
    mean = _largest(number(output.mean_ulp), (number(other.mean_ulp) for other in others))
    return Spread(rmse, mean)


def _largest(own: float, others: Iterable[float]) -> float:
    """How many times as large it becomes, at least once and at most MOST times, rounded up."""
    largest = max((other for other in others if not math.isnan(other)), default=own)
    if own == largest or math.isnan(own):
        return 1.0
    times = largest / own if own else math.inf
    return MOST if times >= MOST else max(1.0, math.ceil(100 * times) / 100)
