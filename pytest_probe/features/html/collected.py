"""What the page shows of each case, taken in one at a time and kept as JSON already; and of the sides of
--probe-against, a row for each pair, which refers to that of its case.

So the process that reports holds bytes, and a page of 20,000 cases is written in 85 MB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import heappush, heapreplace
from typing import Any

import msgspec

from pytest_probe.model.details import limit_share
from pytest_probe.model.result import OutputResult, Result, number
from pytest_probe.model.verdict import PASS_SELF, SEVERITY
from pytest_probe.numerics.error_plots import round_digits
from pytest_probe.reports.answers import Row
from pytest_probe.reports.case_metrics import LABELS, SHARE, metrics_of, short
from pytest_probe.reports.groups import GroupKey, GroupMember, Groups, cause_of, place_of
from pytest_probe.system.decoding import to_json

# Bytes of a case that is not shown in detail, without its line over the runs of a history; and of an error or a
# warning, whose reason a table shows.
ROW, LONG_ROW = 176, 400
# What a row holds before its numbers; the last of them is the reason.
FIXED = 14
# Longest name, in letters, that a row holds in full, so that numbers have room next to it.
_NAME = 88
# What the page calls a case whose call builds the model; its table leaves out the passing ones where nothing is asked.
INITIALISES = "initialises the model"
# How many metrics have a column, in addition to the metrics with a label.
_OTHERS = 6
# So many of the passing cases, and so many of the skipped ones, are shown in detail.
WORST = 200
# Outputs and notes of a case that are shown, and letters of a reason or a note: what is more is counted.
_OUTPUTS, _NOTES, _TEXT = 8, 8, 600
_DIGITS = 5


class Collected:
    """The cases of a run. names holds the texts that cases share, by kind, each with its place; columns the metrics
    that any case has; groups those of errors and warnings; pairs how each case compares with another dump's."""

    KINDS = ("labels", "dtypes", "apis", "directions", "devices", "verdicts", "modules", "kinds", "causes", "places")

    def __init__(self) -> None:
        self.names: dict[str, dict[str, int]] = {kind: {} for kind in self.KINDS}
        self.group_places: dict[GroupKey, int] = {}
        self.columns = {SHARE: 0}
        self.rows: list[bytes] = []
        self.ids: list[str] = []
        self.verdicts: Counter[str] = Counter()
        self.listed: list[tuple[str, str, str]] = []
        self.groups = Groups()
        self.pairs = Pairs()
        self.seconds = 0.0
        self._details: dict[int, bytes] = {}
        # The least share of a limit, and the row that has it, first.
        self._worst: list[tuple[float, int]] = []

    def add(self, result: Result) -> int:
        """Take in a case; gives its row."""
        row = len(self.rows)
        numbers = dict(metrics_of(result))
        bad = SEVERITY[result.verdict] > SEVERITY["pass"]
        member = GroupMember.of(result) if bad else None
        self.rows.append(self._row(result, numbers, member))
        self.ids.append(result.id)
        self.verdicts[result.verdict] += 1
        self.seconds += result.duration
        self.pairs.add(row, result)
        if member is not None:
            self._details[row] = _details(result)
            self.groups.add(member)
            self.listed.append((result.verdict, result.id, result.reason or result.kind))
        else:
            self._among_worst(row, numbers.get(SHARE, 0.0) if result.verdict in ("pass", PASS_SELF) else -1.0, result)
        return row

    def _among_worst(self, row: int, share: float, result: Result) -> None:
        entry = share, -row
        if len(self._worst) < WORST:
            heappush(self._worst, entry)
        elif entry <= self._worst[0]:
            return
        else:
            del self._details[-heapreplace(self._worst, entry)[1]]
        self._details[row] = _details(result)

    def _row(self, result: Result, numbers: dict[str, float], member: GroupMember | None) -> bytes:
        """What a table needs of a case. member: of a group, where it is an error or a warning."""
        most = LONG_ROW if result.verdict in ("error", "warning") else ROW
        identity, place = result.portable_id, self._place
        name = identity.name
        # The kind of cause that an error looks like.
        families = (output.diagnosis.family for output in result.outputs if output.diagnosis is not None)
        row = [
            place("labels", identity.label),
            _short_name(name),
            place("dtypes", result.dtype),
            place("apis", result.api),
            place("directions", result.direction),
            place("devices", result.device),
            place("verdicts", result.verdict),
            -1 if result.place is None else result.place,
            place("modules", result.module),
            place("kinds", result.kind or next(filter(None, families), INITIALISES if result.initialises else "")),
            place("causes", cause_of(result)),
            place("places", place_of(result) if member is None else member.place),
            -1 if member is None else self.group_places.setdefault(member.key, len(self.group_places)),
            "",
            *self._numbers(numbers),
        ]
        reason = (result.reason or result.kind) if member is None else member.why
        row[FIXED - 1] = _fitting(reason, most - len(_encoded(row)))
        # Without its last numbers where it is too long.
        encoded = _encoded(row)
        while len(encoded) > most and len(row) > FIXED:
            row.pop()
            encoded = _encoded(row)
        return encoded

    def _place(self, kind: str, text: str) -> int:
        return self.names[kind].setdefault(text, len(self.names[kind]))

    def _numbers(self, numbers: dict[str, float]) -> list[Any]:
        """The numbers in the order of the columns; "" where the case has none."""
        for name in numbers:
            if name in LABELS or len(self.columns.keys() - LABELS.keys()) < _OTHERS:
                self.columns.setdefault(name, len(self.columns))
        found: list[Any] = [short(numbers[name]) if name in numbers else "" for name in self.columns]
        while found and found[-1] == "":
            found.pop()
        return found

    def details(self) -> Iterator[tuple[int, bytes]]:
        """The cases in detail, each with its row, in the order of the rows."""
        yield from sorted(self._details.items())


def _short_name(name: str) -> str:
    """The name, without its middle where it is too long."""
    found, letters = name, _NAME
    # Two quotes, and an ellipsis of three bytes.
    while len(found) > _NAME or len(_encoded(found)) > _NAME + 4:
        found = f"{name[: letters // 2]}…{name[-letters // 2 + 1 :]}"
        letters -= 1
    return found


def _fitting(text: str, room: int) -> str:
    """As much of the text as takes so many bytes."""
    if len(_encoded(text)) - 2 <= room:
        return text
    cut = text[: max(0, room)]
    while cut and len(_encoded(cut)) + 1 > room:
        cut = cut[:-1]
    return f"{cut}…" if cut else ""


def _encoded(value: Any) -> bytes:
    """JSON that is safe inside a script element: one letter may take six bytes."""
    return in_script(to_json(value))


def in_script(json: bytes) -> bytes:
    """JSON with what could end a script element, or a line of one, written as escapes."""
    for raw, escaped in _ESCAPES:
        json = json.replace(raw, escaped)
    return json


_ESCAPES = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def _details(result: Result) -> bytes:
    outputs = sorted(
        result.outputs, key=lambda each: (SEVERITY[each.verdict], limit_share(each.metrics) or 0.0), reverse=True
    )
    found: dict[str, Any] = {
        "reason": _cut(result.reason),
        "standard": result.standard,
        "seconds": short(result.duration),
        "notes": [_cut(note) for note in result.notes[:_NOTES]],
        "outputs": [_output(output) for output in outputs[:_OUTPUTS]],
        "left_out": len(outputs[_OUTPUTS:]),
    }
    if result.gate is not None:
        found["gate"] = {"change": result.gate.change, "reason": _cut(result.gate.reason)}
    if result.answers:
        found["answers"] = [(answer.question, Row.of(answer).text(len(answer.shares))) for answer in result.answers]
    for name in ("details", "time", "memory"):
        if getattr(result, name) is not None:
            found[name] = getattr(result, name)
    return _encoded(found)


def _output(output: OutputResult) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": output.name,
        "shape": output.shape,
        "dtype": output.dtype,
        "verdict": output.verdict,
        "standard": output.standard,
        "reason": _cut(output.reason),
        "metrics": {name: _rounded(value) for name, value in output.metrics.items()},
    }
    if output.detects is not None:
        found["detects"] = output.detects.description
    if output.worst:
        found["worst"] = [
            [each.index, each.actual, each.expected, _rounded(each.ulp), _rounded(each.ratio)] for each in output.worst
        ]
    if output.diagnosis is not None:
        found["diagnosis"] = output.diagnosis
    return found


def _rounded(value: Any) -> Any:
    return round_digits(value, _DIGITS) if isinstance(value, float) else value


def _cut(text: str, letters: int = _TEXT) -> str:
    return text if len(text) <= letters else f"{text[:letters]}…"


# Letters of a name or a sentence that are shown.
_SHOWN = 300


class Pairs:
    """The pairs of a run, as JSON; none where it compares no dumps."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self._statuses: dict[str, int] = {}

    def add(self, row: int, result: Result) -> None:
        """row: that of the case."""
        paired = result.against
        if paired is None:
            return
        status = self._statuses.setdefault(paired.status, len(self._statuses))
        # In the order of script/pairs.js; B's entry only where it is another than A's.
        ratios = ("" if value is None else short(number(value)) for value in (paired.noise_a, paired.noise_b))
        other = "" if paired.other == result.portable_id.entry else paired.other
        texts = (other, paired.suspect, paired.difference, paired.sources)
        told: list[Any] = [short(number(paired.gap)), paired.nearer, *ratios, *(_cut(text, _SHOWN) for text in texts)]
        while told and told[-1] in ("", 0):
            told.pop()
        self.rows.append(msgspec.json.encode([row, status, *told]))

    def data(self) -> bytes:
        statuses = msgspec.json.encode([*self._statuses])
        return b'{"statuses":%s,"rows":[%s]}' % (statuses, b",\n".join(self.rows))
