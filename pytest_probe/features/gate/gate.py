"""Is a case worse than in the baseline? How far may the metrics of a healthy output move? And what do a run and a
failing item say of it?

A case that got worse has to fail as its own item, so each process compares. `Result.verdict` stays what float64 says,
`Result.gate` says how the case compares with the baseline; a known failure is pytest's xfail.

RMSE decides. Distances in ULP near zero differ by factors of thousands between healthy kernels, and the RMSE of a few
large elements is luck. So the limit depends on the elements that make the RMS, not on their number.
benchmarks/gate_spread.py measures both kinds of errors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from msgspec import Struct, field, structs

from pytest_probe.features.gate.baseline import Baseline, Comparable
from pytest_probe.model.baseline import WORSE, Change, Compared, KeptCase, KeptOutput, Spread, number
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import SEVERITY, Outcome
from pytest_probe.reports.terminal import listed

# Elements below which a factor holds: benchmarks/gate_spread.py measures it, docs/ci.md shows what it found.
CALIBRATED = ((10, 6.5), (30, 3.4), (math.inf, 1.8))
# The same of noise ratios, which are the largest of all elements: for ratios above 1, whatever the number of elements.
_NOISE_RATIO = 60.0
# So many elements make luck: fewer may all be nearly exact by chance.
_FEW_ELEMENTS = 30
# How the one line of pytest's summary begins.
SHORT = {"worse": "worse", "bits": "other bits"}
# How many cases of each kind are listed.
_MAX_LISTED = 10
# How the summary counts them, in its order, and whether it lists them: pytest lists what failed.
COUNTED: dict[Change, tuple[str, bool]] = {
    "worse": ("worse", False),
    "bits": ("with other bits", False),
    "same": ("as before", False),
    "known": ("known to fail", True),
    "better": ("better", True),
    "new": ("new", True),
    "changed": ("changed, not compared", True),
    "gone": ("no longer judged", True),
}
_VANISHED = "vanished"


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


def rmse_limit(elements: float) -> float:
    """The factor by which the RMSE of so many elements differs between healthy runs, at most."""
    return next(factor for below, factor in CALIBRATED if elements < below)


def rows(before: KeptOutput, now: KeptOutput, spread: Spread | None) -> tuple[Row, ...]:
    """The metrics that both sides have, the one that decides first; none of equal bits. spread: the output's own, where
    it was measured."""
    if before.rmse is None or now.rmse is None or (before.crc is not None and before.crc == now.crc):
        return ()
    found = [
        Row("relative RMSE", number(before.rmse), number(now.rmse), _limit_of_rmse(before, now, spread)),
        Row("mean ULP", number(before.mean_ulp), number(now.mean_ulp)),
        Row("max ULP", number(before.max_ulp), number(now.max_ulp)),
    ]
    if before.noise_ratio is not None and now.noise_ratio is not None and before.k == now.k:
        ratio = number(before.noise_ratio)
        limit = _NOISE_RATIO if ratio >= 1 else _NOISE_RATIO / ratio if ratio else math.inf
        # A ratio of 0 has no factor.
        beyond = not ratio and number(now.noise_ratio) > _NOISE_RATIO
        found.append(Row(f"noise ratio, k {now.k}", ratio, number(now.noise_ratio), _NOISE_RATIO if beyond else limit))
    return tuple(found)


def _limit_of_rmse(before: KeptOutput, now: KeptOutput, spread: Spread | None) -> float:
    # A few large elements may make the RMS, and their errors are a matter of luck. Where the mean ULP, which all
    # elements make, grew as well, luck would have come twice.
    grown = number(now.mean_ulp) > number(before.mean_ulp) * _limit(now.elements, spread.mean_ulp if spread else None)
    count = now.elements if grown else min(before.carriers or 0, now.carriers or 0)
    # Any healthy kernel may have an error within the noise scale: that it was smaller before was luck.
    if (count < _FEW_ELEMENTS or number(before.rmse) == 0) and number(now.noise_ratio) <= 1:
        return math.inf
    return _limit(count, spread.rmse if spread else None)


def _limit(elements: float, measured: float | None) -> float:
    """A measured spread comes from few runs, so it is multiplied by the root of the calibrated one. With that no
    healthy output was worse (benchmarks/gate_spread.py)."""
    factor = rmse_limit(elements)
    return factor if measured is None else measured * math.sqrt(factor)


class OutputRows(Struct, frozen=True):
    """One output compared with the baseline; crcs where its bits differ."""

    name: str
    rows: tuple[Row, ...]
    crcs: tuple[str, str] | None

    @property
    def worst(self) -> Row | None:
        """The metric that makes it worse; None where none does."""
        return next((row for row in self.rows if row.worse), None)


class Judgement(Struct, frozen=True):
    """What a case is compared with the baseline, with what a report shows of it. before is the baseline's verdict;
    fails: the comparison fails the case; known: the case may fail, since it did before."""

    compared: Compared
    outputs: tuple[OutputRows, ...] = ()
    before: Outcome | None = None
    fails: bool = False
    known: bool = False


class Gate(Struct, frozen=True):
    """Compares cases with a baseline, None before the first one is written.

    update: nothing fails, since the baseline takes it. strict: a warning fails its item, and so do other bits. judges:
    cases have verdicts; else they have times alone, and what the baseline says of their results stays.
    """

    baseline: Baseline | None
    comparable: Comparable = field(default_factory=Comparable)
    update: bool = False
    strict: bool = False
    judges: bool = True

    def judge(self, now: KeptCase) -> Judgement:
        before = self.baseline.cases.get(now.id) if self.baseline is not None else None
        if before is None:
            return Judgement(Compared("new", "", now))
        if now.signature != before.signature:
            why = "it is another call than the baseline's: shapes, dtypes or arguments differ"
            return Judgement(Compared("changed", why, now), before=before.verdict)
        now = self._with_time(before, now)
        if not self.judges:
            return Judgement(Compared("same", "", now), before=before.verdict)
        bits = self.comparable.of(PortableId.parse(now.id).label)
        outputs = tuple(_outputs(before, now, bits))
        change, reason = self._change(before, now, outputs)
        # How many outputs have the same bits, of how many whose bits are known.
        crcs = {output.name: output.crc for output in before.outputs}
        both = [(crcs[each.name], each.crc) for each in now.outputs if bits and each.crc and crcs.get(each.name)]
        return Judgement(
            Compared(change, reason, now, sum(old == new for old, new in both), len(both)),
            outputs,
            before.verdict,
            fails=change in WORSE and not self.update,
            known=change == "known" or (self.update and self._failed_before(before, now)),
        )

    def _with_time(self, before: KeptCase, now: KeptCase) -> KeptCase:
        """The case with the times of all runs on this device, and with the results that were judged before where none
        are judged now."""
        if not self.comparable.same_device:
            return now
        time = before.time if now.time is None or before.time is None else before.time.joined(now.time)
        return structs.replace(now if self.judges else before, time=time or now.time)

    def _change(self, before: KeptCase, now: KeptCase, outputs: Sequence[OutputRows]) -> tuple[Change, str]:
        if now.verdict == "skip" or before.verdict == "skip":
            if before.verdict == now.verdict:
                return "same", ""
            if now.verdict != "skip":
                return "new", ""
            return "gone", f"it was judged before ({before.verdict}), and now it is a skip"
        if SEVERITY[now.verdict] > SEVERITY[before.verdict]:
            return "worse", f"the verdict was {before.verdict}, now it is {now.verdict}"
        lost = [name for name, held in now.relations.items() if held != "pass" and before.relations.get(name) == "pass"]
        if lost:
            return "worse", f"the relation {lost[0]} held, now it does not"
        for each in outputs:
            if each.worst is not None:
                return "worse", f"{_change_text(each.worst)} ({each.name})"
        other = next((output for output in outputs if output.crcs is not None), None)
        if self.strict and other is not None:
            return "bits", f"{other.name} has other bits on the same inputs and device"
        if self._failed_before(before, now):
            return "known", f"it was {before.verdict} in the baseline as well"
        if SEVERITY[now.verdict] < SEVERITY[before.verdict]:
            return "better", f"the verdict was {before.verdict}, now it is {now.verdict}"
        # What would have got worse the other way round.
        for old, output, spread in _pairs(before, now):
            if worse := next((row for row in rows(output, old, spread) if row.worse), None):
                return "better", f"{worse.metric}: {worse.now:.3g} before, {worse.before:.3g} now ({output.name})"
        return "same", ""

    def _failed_before(self, before: KeptCase, now: KeptCase) -> bool:
        fails = self._fails(now.verdict)
        broken = [name for name, outcome in now.relations.items() if self._fails(outcome)]
        known = all(before.relations.get(name) == now.relations[name] for name in broken)
        return bool(fails or broken) and known and SEVERITY[before.verdict] >= SEVERITY[now.verdict]

    def _fails(self, outcome: Outcome) -> bool:
        return outcome == "error" or (outcome == "warning" and self.strict)


def _change_text(row: Row) -> str:
    """ "3 times the relative RMSE: 3.1e-08 before, 9.3e-08 now; the limit is 1.8 times"."""
    if not row.before or math.isinf(row.factor):
        return f"{row.metric}: {row.before:.3g} before, {row.now:.3g} now"
    numbers = f"{row.before:.3g} before, {row.now:.3g} now"
    return f"{row.factor:.3g} times the {row.metric}: {numbers}; the limit is {row.limit:.3g} times"


def _outputs(before: KeptCase, now: KeptCase, bits: bool) -> Iterator[OutputRows]:
    for old, output, spread in _pairs(before, now):
        differ = bits and old.crc is not None and output.crc is not None and old.crc != output.crc
        yield OutputRows(output.name, rows(old, output, spread), (old.crc or "", output.crc or "") if differ else None)


def _pairs(before: KeptCase, now: KeptCase) -> Iterator[tuple[KeptOutput, KeptOutput, Spread | None]]:
    """The outputs that both have, with the old one's spread."""
    known = {output.name: (output, spread) for output, spread in zip_longest(before.outputs, before.spread or ())}
    for output in now.outputs:
        if output.name in known:
            old, spread = known[output.name]
            yield old, output, spread


def table(judgement: Judgement) -> Iterator[str]:
    """The lines of a failing item, for each output that differs."""
    compared = judgement.compared
    if judgement.before != compared.case.verdict:
        yield ""
        yield f"verdict in the baseline: {judgement.before}, now: {compared.case.verdict}"
    for output in judgement.outputs:
        if output.crcs is not None or any(row.factor != 1 for row in output.rows):
            yield ""
            yield f"{output.name:<20} {'baseline':>11} {'now':>11} {'factor':>8} {'limit':>7}"
            for row in output.rows:
                factor, limit = ("" if math.isinf(each) else f"{each:.3g}" for each in (row.factor, row.limit))
                mark = "  worse" if row.worse else ""
                numbers = f"{row.before:>11.4g} {row.now:>11.4g} {factor:>8} {limit:>7}"
                yield f"  {row.metric:<18} {numbers}{mark}".rstrip()
            if output.crcs is not None:
                yield f"  {'CRC-32':<18} {output.crcs[0]:>11} {output.crcs[1]:>11}"


class GateTally(Struct):
    """The cases of a run by what they are compared with the baseline; listed holds the first of each kind, with
    reasons."""

    changes: Counter[Change] = field(default_factory=Counter)
    listed: dict[Change, list[tuple[str, str]]] = field(default_factory=dict)
    same_bits: int = 0
    bits: int = 0

    def add(self, result: Result) -> None:
        compared = result.gate
        if compared is None:
            return
        self.changes[compared.change] += 1
        self.same_bits += compared.same_bits
        self.bits += compared.bits
        found = self.listed.setdefault(compared.change, [])
        if COUNTED[compared.change][1] and len(found) < _MAX_LISTED:
            found.append((result.id, compared.reason))

    def counts(self, vanished: int) -> str:
        """All counts in one line."""
        parts = [f"{self.changes[change]:,} {words}" for change, (words, _) in COUNTED.items() if self.changes[change]]
        return ", ".join([*parts, *([f"{vanished:,} {_VANISHED}"] if vanished else [])]) or "no case was compared"

    def lines(self, vanished: Sequence[str], width: int) -> Iterator[str]:
        """The listed cases, by kind."""
        for change, (words, lists) in COUNTED.items():
            if lists and self.changes[change]:
                yield from listed(f"{words}:", self.listed[change], width, _more(self.changes[change]))
        if vanished:
            found = [(id, "") for id in vanished[:_MAX_LISTED]]
            yield from listed(f"{_VANISHED}, the dump has them no more:", found, width, _more(len(vanished)))


def _more(number: int) -> str:
    return f"{number - _MAX_LISTED:,} more" if number > _MAX_LISTED else ""
