"""How far the results of two frameworks lie apart, by API, dtype and direction: the summary, a CSV and a JSON file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from pytest_probe.model.result import Result, number, plain
from pytest_probe.reports.csv_file import write_rows
from pytest_probe.reports.terminal import wrap
from pytest_probe.system.files import replacing

CSV, JSON = "against_framework.csv", "against_framework.json"
_SCHEMA = 1
# What the forward and the gradients are called.
_OF = {"forward": "forward", "backward": "gradient"}


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
                size = math.prod(output.shape)
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
        share = 100 * self.share if self.share == 1 else min(100 * self.share, 99.9)
        found = f"{_OF[direction]} {share:.3g} %"
        if self.share == 1:
            return found
        nearer = f", {self.nearer} nearer to float64" if self.nearer else ""
        name = f", {self.difference}" if self.difference else ""
        return f"{found}, else {self.ulp_max:.3g} ulp{nearer}{name}"


class Report(Struct):
    """Collects results as they come, in any order."""

    rows: dict[tuple[str, str, str], Bits] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        key = result.api, result.dtype, result.direction
        self.rows.setdefault(key, Bits()).add(result)

    def lines(self, width: int) -> Iterator[str]:
        """width: the columns of the terminal."""
        found = dict[str, list[str]]()
        for (api, dtype, direction), bits in sorted(
            self.rows.items(), key=lambda row: (row[0][:2], row[0][2] != "forward")
        ):
            found.setdefault(f"{api} {dtype}".rstrip(), []).append(bits.words(direction))
        if found:
            yield "A against B, elements with equal bits:"
        for name, words in found.items():
            yield from wrap(f"{name}: {', '.join(words)}", "    ", "  ", width)

    def table(self) -> Iterator[Mapping[str, Any]]:
        """A row an API, dtype and direction."""
        for (api, dtype, direction), bits in sorted(self.rows.items()):
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
        with replacing(folder / JSON) as temporary:
            content = {"schema": _SCHEMA, "apis": rows}
            temporary.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
        return write_rows(folder / CSV, _cells(rows)), folder / JSON


def _cells(rows: Sequence[Mapping[str, Any]]) -> Iterable[Sequence[object]]:
    yield list(rows[0]) if rows else []
    yield from (list(row.values()) for row in rows)
