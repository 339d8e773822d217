"""What a run of two implementations says at its end, by API and dtype. Of two frameworks it has a table by direction as
well, as a CSV and a JSON file."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from pytest_probe.model.pairing import Status
from pytest_probe.model.result import Result, number, plain
from pytest_probe.reports.results_file import RESULTS, read_results
from pytest_probe.reports.tables import api_lines, write_csv, write_json
from pytest_probe.reports.terminal import count, wrap

CSV, JSON = "against_framework.csv", "against_framework.json"
_WORDS: Mapping[Status, str] = {
    "equal": "equal",
    "rounding": "rounding",
    "own": "own errors",
    "random": "random",
    "incomparable": "not compared",
}
_UNJUDGED: tuple[Status, ...] = ("random", "incomparable")
# What the forward and the gradients are called.
_OF = {"forward": "forward", "backward": "gradient"}


class _Api(Struct):
    """The results of an API in a dtype: how many elements they have, and how many of those have equal bits; how many
    outputs differ, and by what."""

    cases: int = 0
    size: int = 0
    equal: float = 0.0
    differing: int = 0
    statuses: Counter[Status] = field(default_factory=Counter)
    suspects: Counter[str] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        assert result.against is not None
        self.cases += 1
        self.statuses[result.against.status] += 1
        if result.against.suspect:
            self.suspects[result.against.suspect] += 1
        for output in result.outputs:
            if "equal_bits" in output.metrics:
                size, share = prod(output.shape), number(output.metrics["equal_bits"])
                self.size += size
                self.equal += size * share
                self.differing += share < 1
            if "difference" in output.metrics:
                self.differences[str(output.metrics["difference"])] += 1

    def words(self) -> str:
        found = [f"{_percent(self.equal / self.size)} bit-equal"] if self.size else []
        for words, times in self.differences.most_common(2):
            some = "" if times == self.differing else f" in {times:,} of {self.differing:,} outputs"
            found.append(f"{words}{some}")
        unjudged = [status for status in _UNJUDGED if self.statuses[status]]
        found += [f"{self.statuses[status]:,} {_WORDS[status]}" for status in unjudged]
        suspects = self.suspects.most_common()
        found += [f"own errors of {side} in {times:,} of {self.cases:,}" for side, times in suspects]
        return "; ".join([*found, "both within noise"] if self.size and not suspects else found)


class CallReport:
    """Collects results as they come, in any order."""

    def __init__(self) -> None:
        self._apis = defaultdict[tuple[str, str], _Api](_Api)

    def add(self, result: Result) -> None:
        if result.against is not None:
            self._apis[result.api, result.dtype].add(result)

    def lines(self, width: int) -> Iterator[str]:
        """width: the columns of the terminal."""
        if not self._apis:
            return
        found = sum((each.statuses for each in self._apis.values()), Counter[Status]())
        counts = ", ".join(f"{found[status]:,} {words}" for status, words in _WORDS.items() if found[status])
        yield from wrap(f"A against B, {count(found.total(), 'case')}: {counts}", width=width)
        yield from api_lines({key: [each.words()] for key, each in sorted(self._apis.items())}, width)


class Bits(Struct):
    """What was found of an API in a dtype and a direction, A against B: cases, those without a counterpart or otherwise
    not compared, elements, the share of those with equal bits, ULP of the others, and how often which side was nearer
    to float64. differences counts the names of what the sides differ by."""

    cases: int = 0
    skipped: int = 0
    elements: int = 0
    equal: float = 0.0
    ulp_max: float = 0.0
    ulps: float = 0.0
    a_nearer: int = 0
    b_nearer: int = 0
    differences: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        self.cases += 1
        paired = result.against
        if paired is None or result.verdict == "skip" or paired.status == "random":
            self.skipped += 1
            return
        self.a_nearer += paired.nearer == "A"
        self.b_nearer += paired.nearer == "B"
        self.differences.update([paired.difference] if paired.difference else [])
        for output in result.outputs:
            if "equal_bits" in output.metrics:
                size = prod(output.shape)
                self.elements += size
                self.equal += size * number(output.metrics["equal_bits"])
                self.ulp_max = max(self.ulp_max, number(output.metrics.get("ulp_max", 0.0)))
                self.ulps += size * number(output.metrics.get("ulp_mean", 0.0))

    @property
    def share(self) -> float:
        """Of elements with equal bits."""
        return self.equal / self.elements if self.elements else 1.0

    @property
    def ulp_mean(self) -> float:
        """Of the elements whose bits differ."""
        differing = self.elements - self.equal
        return self.ulps / differing if differing else 0.0

    @property
    def nearer(self) -> str:
        """The side that was nearer to float64 in more cases, "" for neither."""
        return {1: "A", -1: "B"}.get((self.a_nearer > self.b_nearer) - (self.a_nearer < self.b_nearer), "")

    @property
    def difference(self) -> str:
        """The name that most differences have."""
        return self.differences.most_common(1)[0][0] if self.differences else ""

    def words(self, direction: str) -> str:
        if not self.elements:
            return f"{_OF[direction]} not compared"
        found = f"{_OF[direction]} {_percent(self.share)}"
        if self.share == 1:
            return found
        nearer = f", {self.nearer} nearer to float64" if self.nearer else ""
        name = f", {self.difference}" if self.difference else ""
        return f"{found}, else {self.ulp_max:.3g} ulp{nearer}{name}"


class FrameworkReport:
    """Collects results as they come, in any order."""

    def __init__(self) -> None:
        self._rows = defaultdict[tuple[str, str, str], Bits](Bits)

    def add(self, result: Result) -> None:
        # What is wrong with a dump as a whole is no case.
        if result.direction:
            self._rows[result.api, result.dtype, result.direction].add(result)

    def lines(self, width: int) -> Iterator[str]:
        """width: the columns of the terminal."""
        found = defaultdict[tuple[str, str], list[str]](list)
        # Forward first.
        for (api, dtype, direction), bits in sorted(self._rows.items(), key=lambda row: row[0][2], reverse=True):
            found[api, dtype].append(bits.words(direction))
        if found:
            yield "A against B, elements with equal bits:"
        yield from api_lines(dict(sorted(found.items())), width)

    def table(self) -> Iterator[Mapping[str, Any]]:
        """A row an API, dtype and direction."""
        for (api, dtype, direction), bits in sorted(self._rows.items()):
            yield {
                "api": api,
                "dtype": dtype,
                "direction": direction,
                "cases": bits.cases,
                "skipped": bits.skipped,
                "elements": bits.elements,
                "equal_bits": bits.share,
                "ulp_max": plain(bits.ulp_max),
                "ulp_mean": plain(bits.ulp_mean),
                "nearer": bits.nearer,
                "difference": bits.difference,
            }

    def write(self, folder: Path) -> Sequence[Path]:
        """The table as CSV and as JSON. Raises OSError."""
        rows = list(self.table())
        return write_csv(folder / CSV, rows), write_json(folder / JSON, "apis", rows)


def write_tables(folder: Path) -> Sequence[Path]:
    """Of the results in a folder. Raises OSError."""
    report = FrameworkReport()
    for result in read_results(folder / RESULTS):
        report.add(result)
    return report.write(folder)


def _percent(share: float) -> str:
    """A share of which some is missing is not 100 %."""
    return "100 %" if share == 1 else f"{min(100 * share, 99.9):.3g} %"
