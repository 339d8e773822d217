"""What the cases of a run answer to its questions, added up by question, API, dtype and direction: for the end of a
run, for answers.csv and answers.json, and for a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict

from pytest_probe.model.pairing import OWN_ERROR
from pytest_probe.model.result import Result, rank
from pytest_probe.model.verdict import Answer
from pytest_probe.reports.results_file import write_rows
from pytest_probe.reports.terminal import count, wrap
from pytest_probe.system.decoding import to_json
from pytest_probe.system.files import replacing

CSV, JSON = "answers.csv", "answers.json"
# Of the JSON file.
_SCHEMA = 1
# Rows of a question, the worst first; messages of a row, the most frequent first; and shares, the least first.
_ROWS, _MESSAGES, _SHARES = 10, 3, 3
# Question, API, dtype and direction.
Key: TypeAlias = tuple[str, str, str, str]


class Row(Struct):
    """What answers add up to. messages has by each message how many say so, and the first case that does."""

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    shares: dict[str, tuple[int, int]] = field(default_factory=dict)
    totals: dict[str, int | float] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)
    messages: dict[str, tuple[int, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, answer: Answer, case: str = "") -> Row:
        messages = {answer.message: (1, case)} if answer.message else {}
        return cls(1, Counter([answer.outcome]), dict(answer.shares), dict(answer.totals), dict(answer.most), messages)

    def add(self, other: Row) -> None:
        self.cases += other.cases
        self.outcomes.update(other.outcomes)
        for name, (part, whole) in other.shares.items():
            known = self.shares.get(name, (0, 0))
            self.shares[name] = known[0] + part, known[1] + whole
        for name, value in other.totals.items():
            self.totals[name] = self.totals.get(name, 0) + value
        for name, value in other.most.items():
            self.most[name] = max(value, self.most.get(name, value), key=rank)
        for message, (times, case) in other.messages.items():
            before, first = self.messages.get(message, (0, case))
            self.messages[message] = before + times, min(first, case, key=_by_number)

    @property
    def share(self) -> float:
        """Of all that is asked, how much is as it should be; 1 where nothing is asked."""
        parts, wholes = (sum(pair[side] for pair in self.shares.values()) for side in (0, 1))
        return parts / wholes if wholes > 0 else 1.0

    @property
    def has_own_errors(self) -> bool:
        """Is a side wrong? That says more than how many bits are equal."""
        return any(outcome.startswith(OWN_ERROR) for outcome in self.outcomes)

    def text(self, shares: int = _SHARES) -> str:
        """In one line; of one case without counts. shares: how many of several are named."""
        alone = self.cases == 1
        found = [", ".join(each if alone else f"{times:,} {each}" for each, times in sorted(self.outcomes.items()))]
        # A share of cases is what the outcomes say.
        if len(self.shares) > 1:
            below = sorted((part / of, name) for name, (part, of) in self.shares.items() if of > 0 and part < of)
            least = ", ".join(f"{name} {_percent(share)}" for share, name in below[:shares])
            found.append(f"{_percent(self.share)} found" + (f", least {least}" if least else ""))
        elif any(whole > self.cases for _, whole in self.shares.values()):
            found.append(f"{_displayed(*self.shares)} {_percent(self.share)}")
        found += [f"{_displayed(name)} {value:,.3g}" for name, value in self.most.items()]
        for name, total in self.totals.items():
            found.append(f"{_displayed(name)} {f'{total:,}' if isinstance(total, int) else f'{total:,.3g}'}")
        frequent = sorted(self.messages.items(), key=lambda item: (-item[1][0], item[0]))
        for message, (times, first) in frequent[:_MESSAGES]:
            found.append(message if alone else f"{message} in {times:,}{f', as {first}' if first else ''}")
        return "; ".join(found)


class Answers(Struct):
    """Collects results as they come, in any order."""

    rows: dict[Key, Row] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        for answer in result.answers:
            self.count(answer, result.api, result.dtype, result.direction, result.portable_id.name)

    def count(self, answer: Answer, api: str, dtype: str, direction: str, case: str) -> None:
        self.rows.setdefault((answer.question, api, dtype, direction), Row()).add(Row.of(answer, case))

    def lines(self, width: int) -> Iterator[str]:
        """Of each question all cases, and the rows that are not wholly as they should be, the worst first; width: the
        columns of the terminal."""
        for question in sorted({key[0] for key in self.rows}):
            rows = {key[1:]: row for key, row in self.rows.items() if key[0] == question}
            whole = Row()
            for row in rows.values():
                whole.add(row)
            yield from wrap(f"{question}, {count(whole.cases, 'case')}: {whole.text(0)}", "    ", width=width)
            if len(whole.shares) > 1:
                yield f"  {'':<38} {'found':>8} {'of':>8}"
                yield from (f"  {name:<38} {part:>8,} {of:>8,}" for name, (part, of) in whole.shares.items())
            wanting = ((key, row) for key, row in rows.items() if row.share < 1 or row.has_own_errors)
            worst = sorted((not row.has_own_errors, row.share, key) for key, row in wanting)
            for _, _, key in worst[:_ROWS]:
                yield from wrap(f"{' '.join(filter(None, key))}: {rows[key].text()}", "    ", "  ", width)
            if len(worst) > _ROWS:
                yield f"  and {len(worst) - _ROWS:,} more, which --probe-out=DIR keeps in {CSV}"

    def write(self, folder: Path) -> Sequence[Path]:
        """All rows, as a CSV and a JSON file; none where nothing was asked. Raises OSError."""
        if not self.rows:
            return ()
        found = []
        for key, row in sorted(self.rows.items()):
            # In an order that is not that in which results came.
            sums = {name: dict(sorted(each.items())) for name, each in asdict(row).items() if name != "cases"}
            names = zip(("question", "api", "dtype", "direction"), key, strict=True)
            found.append({**dict(names), "cases": row.cases, **sums})
        with replacing(folder / JSON) as temporary:
            content = to_json({"schema": _SCHEMA, "answers": found})
            temporary.write_bytes(msgspec.json.format(content, indent=1) + b"\n")
        cells = [dict(_cells(row)) for row in found]
        columns = dict.fromkeys(name for each in cells for name in each)
        lines = ([each.get(name, "") for name in columns] for each in cells)
        return write_rows(folder / CSV, [[*columns], *lines]), folder / JSON


def _cells(row: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """A row in columns: of a share how much it is, and of how many."""
    for name, value in row.items():
        if name == "messages":
            yield name, "; ".join(value)
        elif name != "shares":
            yield from value.items() if isinstance(value, dict) else ((name, value),)
        else:
            for share, (part, whole) in value.items():
                yield from ((f"{share} share", part / whole if whole else ""), (f"{share} of", whole))


def _displayed(name: str) -> str:
    return name.replace("_", " ")


def _percent(share: float) -> str:
    """A share of which some is missing is not 100 %."""
    return "100 %" if share == 1 else f"{min(100 * share, 99.9):.3g} %"


def _by_number(name: str) -> list[tuple[int, str]]:
    """Orders names by the numbers in them."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]
