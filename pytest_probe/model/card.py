"""A verdict as a script and a notebook show it: in three lines, and as a card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from pytest_probe.model.details import limit_share
from pytest_probe.model.verdict import SEVERITY, OutputVerdict, Verdict

_COLOURS = {"error": "#d0473e", "warning": "#c07d00", "skip": "#808a95"}
_MARKS = {"error": "✕", "warning": "▲", "skip": "○"}


class Verdicts(tuple[Verdict, ...]):
    """What a check ends in: the verdict on the forward, and that on the backward where it was asked for."""

    __slots__ = ()

    @property
    def passed(self) -> bool:
        """Was something judged, and nothing wrong?"""
        return any(each.verdict != "skip" for each in self) and not any(each.fails(strict=False) for each in self)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self))

    def _repr_html_(self) -> str:
        return "\n".join(map(card, self))


def lines(verdict: Verdict) -> Iterator[str]:
    """What was found, of the output that decides: the verdict, the numbers, and the cause or what would have been
    found."""
    dtype = f" in {verdict.dtype}" if verdict.dtype else ""
    worst = _decides(verdict)
    if worst is None or verdict.kind or (verdict.reason and not any(each.reason for each in verdict.outputs)):
        yield f"{verdict.verdict}{dtype}: {verdict.reason or 'nothing was judged'}"
        return
    others = sum(each.verdict == worst.verdict for each in verdict.outputs) - 1
    more = f", and {others} more" if others and worst.verdict != "pass" else ""
    yield f"{verdict.verdict}{dtype}: {_called(worst)}{more}, by {worst.standard}"
    yield f"  {'; '.join(filter(None, (worst.off_by, worst.reason, _ratios(worst) if not worst.reason else '')))}"
    found = worst.diagnosis
    if found is not None:
        where = f"{found.wrong:,} of {found.size:,} elements are wrong{': ' if found.where else ''}{found.where}"
        yield f"  {where}{'; looks like: ' if found.cause else ''}{found.cause}"
    elif worst.detects is not None:
        yield f"  would have been found: {worst.detects.description}"


def card(verdict: Verdict) -> str:
    """The card of a case, in the colours of the notebook around it."""
    colour, mark = _COLOURS.get(verdict.verdict, "#2e9e5b"), _MARKS.get(verdict.verdict, "●")
    first, *others = lines(verdict)
    word, _, rest = first.partition(" ") if verdict.dtype else first.partition(":")
    shown = [f'<p><b style="color:{colour}">{mark} {escape(word)}</b> {escape(rest)}']
    shown += [f"<br>{escape(line.strip())}" for line in others]
    rows = [(_called(each), each.verdict, _ratios(each), each.detects.description if each.detects else each.summary)
            for each in verdict.outputs]  # fmt: skip
    shown += _table(("output", "verdict", "error", "why, or what would have been found"), rows)
    worst = _decides(verdict)
    elements = worst.worst if worst is not None else ()
    found = [
        (list(each.index), each.actual, each.expected, f"{each.ratio:.4g}", f"{each.ulp:.4g}") for each in elements
    ]
    shown += _table(("index", "actual", "expected", "noise ratio", "ULP"), found)
    given = [(each.name, list(each.shape or ()), each.dtype, each.value) for each in verdict.arguments]
    shown += _table(("argument", "shape", "dtype", "value or range"), given)
    shown += [f"<p>note: {escape(note)}" for note in verdict.notes]
    return f'<div style="border-left:4px solid {colour};padding:0 1em;overflow-x:auto">{"".join(shown)}</div>'


def _decides(verdict: Verdict) -> OutputVerdict | None:
    """The output that decides: if all pass, the one that comes nearest to its limit."""
    return max(
        verdict.outputs, key=lambda each: (SEVERITY[each.verdict], limit_share(each.metrics) or 0.0), default=None
    )


def _called(output: OutputVerdict) -> str:
    return f"{output.name} {list(output.shape)} {output.dtype}" if output.dtype else output.name


def _ratios(output: OutputVerdict) -> str:
    ratio, ulp = (output.metrics.get(name) for name in ("noise_ratio", "max_ulp"))
    if isinstance(ratio, float):
        return f"noise ratio {ratio:.3g} of {output.limit:.3g} allowed"
    return f"{ulp:.3g} ULP at most" if isinstance(ulp, (int, float)) else ""


def _table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    rows = [*rows]
    cells = ["".join(f'<td style="text-align:left">{escape(str(cell))}' for cell in row) for row in rows]
    named = "".join(f'<th style="text-align:left">{head}' for head in heads)
    return [f"<table><tr>{named}{''.join(f'<tr>{row}' for row in cells)}</table>"] if rows else []
