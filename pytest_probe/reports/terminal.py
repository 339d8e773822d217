"""What the user reads: header, failures, summary. Text in 80 columns where the data allow it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_probe.records.model import Dump, Frame
from pytest_probe.reports.results import Tally
from pytest_probe.standards.verdict import ArgumentRow, Element, OutputVerdict, Verdict

if TYPE_CHECKING:
    import pytest

WIDTH = 80
WORST_APIS = 10
_ORDER = ("pass", "warning", "error", "skip")
_API_WIDTH = 40


def header(conditions: Sequence[str], dumps: Sequence[tuple[str, Dump]]) -> list[str]:
    """The lines at the top of a run: what it runs under, and what each dump holds that runs and that does not."""
    lines = ["probe: " + ", ".join(conditions)]
    for label, dump in dumps:
        lines.append(f"probe: {label}: {holds(dump)}")
        lines += [f"probe: {label}: {note}" for note in dump.notes]
    return lines


def holds(dump: Dump) -> str:
    """What a dump holds, in one line: what it was recorded with, how many records, and what is no item."""
    what = ", ".join(part for part in (dump.framework, dump.task, dump.level) if part)
    text = f"{_count(len(dump.records), 'record')} ({what})" if what else _count(len(dump.records), "record")
    if dump.skipped:
        text += "; no items: " + ", ".join(kinds(dump))
    return text


def kinds(dump: Dump) -> list[str]:
    """What a dump holds beside records, as "12 Module entries"."""
    return [f"{n:,} {kind if n != 1 else kind.replace('entries', 'entry')}" for kind, n in dump.skipped.items()]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def failure(verdict: Verdict, *, name: str, device: str, frame: Frame | None, saved: str, command: str) -> str:
    """The text of a case that failed: what a kernel engineer needs and nothing else."""
    dtype = f" in {verdict.dtype}" if verdict.dtype else ""
    where = f" on {device}" if device else ""
    lines = [f"{name}{dtype}{where}: {verdict.verdict}"]
    if verdict.reason and not any(output.reason for output in verdict.outputs):
        lines.append(verdict.reason)
    for output in verdict.outputs:
        lines += _output(output)
    if verdict.arguments:
        lines += ["", *_arguments(verdict.arguments)]
    lines += [f"note: {note}" for note in verdict.notes]
    if frame is not None or saved or command:
        lines.append("")
    if frame is not None:
        lines.append(f"called at {frame.file}:{frame.line} in {frame.function}: {frame.code.strip()}")
    if saved:
        lines.append(f"saved in {saved}")
    if command:
        lines.append(f"to reproduce: {command}")
    return "\n".join(lines)


def _output(output: OutputVerdict) -> Iterator[str]:
    reason = f": {output.reason}" if output.reason else ""
    standard = f" ({output.standard})" if output.standard else ""
    yield ""
    yield f"{output.name} {_shape(output.shape)} {output.dtype}: {output.verdict}{standard}{reason}"
    if output.worst:
        yield f"  {'index':<18} {'actual':>17} {'expected':>17} {'ULP':>10} {'ratio':>10}"
        yield from map(_element, output.worst)


def _element(element: Element) -> str:
    index = ", ".join(map(str, element.index))
    return (
        f"  {f'[{index}]':<18} {_value(element.actual):>17} {_value(element.expected):>17}"
        f" {element.ulp:>10.4g} {element.ratio:>10.4g}"
    )


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.9g}"


def _arguments(rows: Sequence[ArgumentRow]) -> Iterator[str]:
    shapes = ["" if row.shape is None else _shape(row.shape) for row in rows]
    widths = [max(map(len, column)) for column in ([row.name for row in rows], shapes, [row.dtype for row in rows])]
    for row, shape in zip(rows, shapes, strict=True):
        cells = (f"{cell:<{width}}" for cell, width in zip((row.name, shape, row.dtype), widths, strict=True))
        yield f"  {'  '.join(cells)}  {row.value}".rstrip()


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def summary(reporter: pytest.TerminalReporter, tally: Tally, *, not_run: int) -> None:
    """Write the section at the end of a run: one line under -q, nothing under -qq."""
    if reporter.verbosity < -1 or not (tally.verdicts or not_run):
        return
    lines = list(summary_lines(tally, not_run=not_run))
    if reporter.verbosity < 0:
        reporter.write_line(f"probe: {lines[0]}")
        return
    reporter.write_sep("=", "probe")
    for line in lines:
        reporter.write_line(line)


def summary_lines(tally: Tally, *, not_run: int) -> Iterator[str]:
    """The summary, line by line: the counts first."""
    counts = [f"{tally.verdicts[verdict]:,} {verdict}" for verdict in _ORDER if tally.verdicts[verdict]]
    yield ", ".join([_count(tally.verdicts.total(), "case"), *counts])
    if tally.differing:
        yield f"{_count(tally.differing, 'case')} non-deterministic: runs on the same inputs differ"
    if not_run:
        yield f"{_count(not_run, 'item')} did not run"
    if tally.skips:
        yield "skipped:"
        yield from (f"{count:>8,}  {kind}" for kind, count in tally.skips.most_common())
    ranking = tally.ranking(WORST_APIS)
    if ranking:
        yield f"{'worst APIs by noise ratio':<{_API_WIDTH}} {'ratio':>10} {'limit':>8} {'max ULP':>10} {'':>7}".rstrip()
    for worst in ranking:
        api = worst.api if len(worst.api) <= _API_WIDTH else worst.api[: _API_WIDTH - 3] + "..."
        ulp = "" if worst.ulp != worst.ulp else f"{worst.ulp:.4g}"
        ratio = f"{'<= ' if worst.bound else ''}{worst.ratio:.4g}"
        yield f"{api:<{_API_WIDTH}} {ratio:>10} {worst.limit:>8.4g} {ulp:>10} {worst.verdict:>7}"
