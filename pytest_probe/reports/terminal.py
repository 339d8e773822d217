"""What the user reads: header, failures, summary. Text in 80 columns where the data allow it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_probe.model.dump import Dump, Frame, place_lines
from pytest_probe.model.measurement import CaseTime, microseconds
from pytest_probe.model.verdict import PASS_SELF, ArgumentRow, Diagnosis, Element, OutputVerdict, Verdict
from pytest_probe.reports.tally import Tally, Worst
from pytest_probe.system.text import printable

if TYPE_CHECKING:
    import pytest

WIDTH = 80
_MANY_ULP = 1e6
_WORST_APIS = 10
# Arguments of a failing case.
_ARGUMENTS = 10
_QUICK = (
    "causes that need further runs were not tried after so many errors of this API; -vv, or the command below, does"
)
_NOISE_RATIO = "noise ratio"
_ORDER = ("pass", PASS_SELF, "warning", "error", "skip")
# Width of the names in the table, in a terminal of WIDTH columns; and the least, the heading's.
_API_WIDTH, _SHORTEST = 40, 25


def header(conditions: Sequence[str], decides: str, dumps: Sequence[tuple[str, Dump]]) -> list[str]:
    """The lines at the top of a run: what it runs under, what decides, and what each dump holds that runs and that does
    not."""
    lines = ["probe: " + ", ".join(conditions), f"probe: {decides}"]
    for label, dump in dumps:
        lines.append(f"probe: {label}: {holds(dump)}")
        lines += [f"probe: {label}: {note}" for note in dump.notes]
    return list(map(printable, lines))


def holds(dump: Dump) -> str:
    """What a dump holds, in one line: what it was recorded with, how many records, and what does not become an item."""
    what = ", ".join(part for part in (dump.framework, dump.task, dump.level) if part)
    text = f"{count(len(dump.records), 'record')} ({what})" if what else count(len(dump.records), "record")
    if dump.skipped:
        text += "; no items: " + ", ".join(kinds(dump))
    return text


def kinds(dump: Dump) -> list[str]:
    """What a dump holds in addition to records, for example "12 Module entries"."""
    return [f"{n:,} {kind if n != 1 else kind.replace('entries', 'entry')}" for kind, n in dump.skipped.items()]


def sampled_line(cases: int, budget: float) -> str:
    """The line about cases that are too large for a reference in full."""
    takes = "takes" if cases == 1 else "take"
    return (
        f"probe: {count(cases, 'case')} {takes} more than {budget:.3g} float64 operations (--probe-flops): "
        "judged by samples"
    )


def count(number: int, noun: str) -> str:
    """ "1 case", "2,310 cases"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def failure(
    verdict: Verdict,
    *,
    name: str,
    device: str,
    frame: Frame | None,
    library: Frame | None = None,
    module: str = "",
    saved: str,
    command: str,
    gate: tuple[str, Sequence[str]] = ("", ()),
    whole: bool = False,
    width: int = WIDTH,
) -> str:
    """The text of a case that failed: what a kernel engineer needs and nothing else, in so many columns. gate: what it
    is compared with the baseline, and the lines that show it. whole: with all arguments."""
    beside, shown = gate
    dtype = f" in {verdict.dtype}" if verdict.dtype else ""
    # A project's own function may run anywhere.
    where = f" by {verdict.replaced}" if verdict.replaced else f" on {device}" if device else ""
    lines = [f"{name}{dtype}{where}: {verdict.verdict}{f', {beside}' if beside else ''}"]
    if verdict.reason and (verdict.kind or not any(output.reason for output in verdict.outputs)):
        lines += wrap(verdict.reason, "", width=width)
    # Outputs that pass, of a case that passes or takes too long, say nothing of what got worse.
    shows = verdict.verdict != "pass" if beside else not verdict.kind
    failed = [output for output in verdict.outputs if output.verdict in ("error", "warning")]
    # Said once, where it is first read.
    meaning = "(noise ratio: the error less the output's own rounding, divided by what rounding inside explains)"
    for output in failed if shows else ():
        lines += _output(output, width, meaning if _NOISE_RATIO in output.reason else "")
        meaning = "" if _NOISE_RATIO in output.reason else meaning
    lines += _time(verdict.time) if verdict.kind and verdict.time is not None else ()
    lines += shown
    if verdict.arguments:
        rows = verdict.arguments if whole else verdict.arguments[:_ARGUMENTS]
        lines += ["", *_arguments(rows)]
        if len(verdict.arguments) > len(rows):
            lines.append(f"  and {count(len(verdict.arguments) - len(rows), 'more argument')}, with -vv")
    for note in verdict.notes:
        lines += wrap(f"note: {note}", width=width)
    places = list(place_lines(frame, library, module))
    if places or saved or command:
        lines.append("")
    for place in places:
        lines += wrap(place, width=width)
    if saved:
        does = "prints what was saved" if verdict.replaced else "makes the call with the framework alone"
        lines.append(f"saved in {saved}; the .py next to it {does}")
    if command:
        lines.append(f"to reproduce: {command}")
    return printable("\n".join(lines))


def _time(time: CaseTime) -> Iterator[str]:
    """The numbers behind a case that is too slow."""
    if time.beside is None:
        return
    other = time.beside
    yield ""
    yield f"  {'':<20} {'here':>11} {other.where:>11}"
    for name, mine, theirs in (("median", time.median_us, other.median_us), ("least", time.least_us, other.least_us)):
        yield f"  {name:<20} {_us(mine):>11} {_us(theirs):>11}".rstrip()
    yield f"  {'quartiles':<20} {_us(time.lower_us):>11} .. {_us(time.upper_us)}"
    yield f"  {time.calls:,} calls, {time.inputs} inputs, by the clock of the {time.clock}"


def _us(number: float | None) -> str:
    return "" if number is None else microseconds(number)


def _output(output: OutputVerdict, width: int, meaning: str) -> Iterator[str]:
    reasons = "; ".join(filter(None, (output.off_by, output.reason)))
    reason = f": {reasons}" if reasons else ""
    standard = f" ({output.standard})" if output.standard else ""
    yield ""
    # Only tensors have both.
    tensor = f" {shape_text(output.shape)} {output.dtype}" if output.dtype else ""
    yield from wrap(f"{output.name}{tensor}: {output.verdict}{standard}{reason}", width=width)
    yield from wrap(meaning, "    ", "  ", width)
    if output.diagnosis is not None:
        yield from _diagnosis(output.diagnosis, width, sampled="sampled" in output.metrics)
    # The worst elements that the limit does not allow; where it allows all, something else failed: the worst.
    yield from element_lines(output.beyond or output.worst[:1])


def element_lines(elements: Sequence[Element]) -> Iterator[str]:
    """A table of elements, with their noise ratios where they have them; nothing without elements."""
    with_ratio = any(element.ratio == element.ratio for element in elements)
    if elements:
        ratio = f" {'ratio':>10}" if with_ratio else ""
        yield f"  {'index':<18} {'actual':>17} {'expected':>17}{ratio} {'ULP':>10}"
    for each in elements:
        index = f"[{', '.join(map(str, each.index))}]"
        ratio = f" {each.ratio:>10.4g}" if with_ratio else ""
        yield f"  {index:<18} {_value(each.actual):>17} {_value(each.expected):>17}{ratio} {each.ulp:>10.4g}"


def _diagnosis(found: Diagnosis, width: int, *, sampled: bool) -> Iterator[str]:
    """How much is wrong, where, what it looks like, and how the errors are spread."""
    where = f": {found.where}" if found.where else ""
    elements = "sampled elements" if sampled else "elements"
    if found.size > 1:
        share = 100 * found.wrong / found.size
        part = f"{share:.2g} %" if share < 99.5 else "all" if found.wrong == found.size else "nearly all"
        yield from wrap(f"wrong: {found.wrong:,} of {found.size:,} {elements} ({part}){where}", "    ", "  ", width)
    if found.cause:
        yield from wrap(f"looks like: {found.cause}", "    ", "  ", width)
    elif found.quick:
        yield from wrap(_QUICK, "    ", "  ", width)
    counts = [f"{name}: {actual:,}, expected {expected:,}" for name, (actual, expected) in found.not_finite.items()]
    if counts:
        yield f"  {'; '.join(counts)}"
    if found.size > 1:
        yield f"  error: {found.errors}"


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.9g}"


def _arguments(rows: Sequence[ArgumentRow]) -> Iterator[str]:
    shapes = ["" if row.shape is None else shape_text(row.shape) for row in rows]
    widths = [max(map(len, column)) for column in ([row.name for row in rows], shapes, [row.dtype for row in rows])]
    for row, shape in zip(rows, shapes, strict=True):
        cells = (f"{cell:<{width}}" for cell, width in zip((row.name, shape, row.dtype), widths, strict=True))
        yield f"  {'  '.join(cells)}  {row.value}".rstrip()


def shape_text(shape: Sequence[int]) -> str:
    """ "[2, 3]"."""
    return f"[{', '.join(map(str, shape))}]"


def summary(reporter: pytest.TerminalReporter, tally: Tally, *, not_run: int, more: Sequence[str] = ()) -> None:
    """Write the section at the end of a run, and more lines behind it: one of each under -q, nothing under -qq."""
    if reporter.verbosity < -1 or not (tally.verdicts or not_run):
        return
    width = width_of(reporter)
    lines = list(summary_lines(tally, not_run=not_run, width=width))
    if reporter.verbosity < 0:
        for line in (lines[0], *more[:1]):
            reporter.write_line(f"probe: {line}")
        return
    reporter.write_sep("=", "probe")
    for line in (*lines, *more, *group_lines(tally, width)):
        reporter.write_line(line)


def group_lines(tally: Tally, width: int = WIDTH) -> Iterator[str]:
    """The groups of errors, which a summary ends with: its end is what the screen shows."""
    for line in tally.groups.lines():
        yield from wrap(line, width=width)


def more_line(number: int, kept: str) -> list[str]:
    """What is said of so many that a list leaves out; kept is the file that has them all, "" for none."""
    return [f"  and {number:,} more in {kept}" if kept else f"  and {number:,} more, with -rf"] if number > 0 else []


def width_of(reporter: pytest.TerminalReporter) -> int:
    """The columns of the terminal."""
    return reporter.config.get_terminal_writer().fullwidth


def listed(title: str, found: Iterable[tuple[str, str]], width: int, more: str = "") -> Iterator[str]:
    """Names, each with a reason below it. more: what is said of others that are not listed."""
    yield title
    for name, reason in found:
        yield f"  {name}"
        yield from wrap(reason, "    ", "    ", width)
    if more:
        yield f"  and {more}"


def wrap(text: str, indent: str = "  ", start: str = "", width: int = WIDTH) -> list[str]:
    """The text in lines of at most so many columns, words and paths unbroken; its own lines stay, indented ones as they
    are. start goes before each of those, indent before what they are continued in."""
    wrapper = textwrap.TextWrapper(
        width, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [
        part
        for line in printable(text).splitlines()
        for part in ([line] if line.startswith("  ") else wrapper.wrap(line))
    ]


def summary_lines(tally: Tally, *, not_run: int, width: int = WIDTH) -> Iterator[str]:
    """The summary in so many columns, line by line: the counts first. A name that is longer stays whole."""
    yield from wrap(", ".join([count(tally.verdicts.total(), "case"), *_counts(tally.verdicts)]), width=width)
    if initialising := tally.initialising.total():
        found = _counts(tally.initialising) if tally.initialising["pass"] < initialising else ["all pass"]
        yield from wrap(
            f"{count(initialising, 'case')} of calls that initialise the model: {', '.join(found)}", width=width
        )
    if tally.folded:
        ran = tally.verdicts.total()
        words = f"{ran:,} of {count(ran + tally.folded, 'case')} ran, one of those whose records are alike"
        yield from wrap(f"+{tally.folded:,} folded: {words}", width=width)
    if tally.differing:
        differing = f"{count(tally.differing, 'case')} non-deterministic: runs on the same inputs differ"
        yield from wrap(differing, width=width)
    if tally.undecided:
        undecided = f"{count(tally.undecided, 'case')} undecided: elements of an output could not be judged"
        yield from wrap(undecided, width=width)
    if tally.emulated:
        emulated = f"{count(tally.emulated, 'case')} emulated: 16 bit computed in float32 and rounded"
        yield from wrap(emulated, width=width)
    if tally.drawn["calls"]:
        share = tally.drawn["rejected"] / tally.drawn["calls"]
        yield f"{count(tally.drawn['calls'], 'call')} drawn, {share:.0%} of them rejected by the reference"
    if tally.contracts:
        # Calls whose numbers are right, and that differ in what they accept or return.
        yield from listed("contracts, which fail with --probe-strict:", tally.contracts, width)
    if not_run:
        yield f"{count(not_run, 'item')} did not run"
    if tally.skips:
        yield "skipped:"
        for kind, number in tally.skips.most_common():
            yield from wrap(f"{number:,}  {kind}", " " * 10, " " * (8 - len(f"{number:,}")), width)
    if tally.warnings:
        others = tally.verdicts["warning"] - len(tally.warnings)
        more = f"{count(others, 'warning')} more; --probe-out=DIR keeps all" if others else ""
        yield from listed("warnings:", tally.warnings, width, more)
    yield from _ranked(tally.ranking(_WORST_APIS), width)
    yield from tally.times.lines()


def _counts(verdicts: Mapping[str, int]) -> list[str]:
    return [f"{verdicts[verdict]:,} {verdict}" for verdict in _ORDER if verdicts[verdict]]


def _ranked(ranking: Sequence[Worst], width: int) -> Iterator[str]:
    """A table. In a wider terminal its names have more room, in a narrower one less."""
    longest = max((len(worst.api) for worst in ranking), default=0)
    names = max(_SHORTEST, min(_API_WIDTH + width - WIDTH, max(_API_WIDTH, longest)))
    if ranking:
        yield f"{'worst APIs by noise ratio':<{names}} {'ratio':>10} {'limit':>8} {'max ULP':>10} {'':>7}".rstrip()
    for worst in ranking:
        api = worst.api if len(worst.api) <= names else worst.api[: names - 3] + "..."
        # So many ULP where all is well only say that the reference is near zero.
        says_nothing = math.isnan(worst.ulp) or (worst.verdict == "pass" and worst.ulp > _MANY_ULP)
        ulp = "" if says_nothing else f"{worst.ulp:.4g}"
        ratio = "below" if worst.within else f"{worst.ratio:.4g}"
        yield f"{api:<{names}} {ratio:>10} {worst.limit:>8.4g} {ulp:>10} {worst.verdict:>7}"
