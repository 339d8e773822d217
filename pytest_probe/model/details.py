"""What a report shows of one case besides its metrics: plain data for JSON and a process boundary."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from pytest_probe.model.dump import Frame
from pytest_probe.model.verdict import ArgumentRow
from pytest_probe.numerics.error_plots import ErrorMap, Histogram, Points
from pytest_probe.system.text import printable_line

# What is kept of a case that has more, so that thousands of cases make a file that opens.
ARGUMENTS, FRAMES, LETTERS = 24, 8, 160
LIMIT = "_limit"


class Plots(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data of an output's plots, at most 4 kB as JSON. None where there is nothing to draw: integers have no ULP,
    and only the noise standard has noise ratios."""

    output: str
    noise_ratios: Histogram | None = None
    ulps: Histogram | None = None
    points: Points | None = None
    error_map: ErrorMap | None = None


class OperandPlot(msgspec.Struct, frozen=True):
    """An operand of a scaled product: numbers counts the magnitudes of what its codes and scales stand for together;
    blocks says in words what its blocks hold."""

    name: str
    numbers: Histogram
    blocks: str


class ArgumentResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """One argument: a tensor by shape, dtype and range; anything else by its type and value."""

    name: str
    dtype: str
    value: str
    shape: tuple[int, ...] | None = None

    @classmethod
    def of(cls, row: ArgumentRow) -> ArgumentResult:
        shape = None if row.shape is None else tuple(map(int, row.shape))
        return cls(_cut(row.name), row.dtype, _cut(row.value), shape)


class Details(msgspec.Struct, frozen=True, omit_defaults=True):
    """command runs the case again; stack begins with the innermost frame of the user's own code, if there is one;
    digits says by output how many decimal digits are right."""

    command: str
    arguments: tuple[ArgumentResult, ...] = ()
    stack: tuple[Frame, ...] = ()
    plots: Plots | None = None
    digits: Mapping[str, str] = {}
    operands: tuple[OperandPlot, ...] = ()

    @classmethod
    def of(
        cls,
        command: str,
        arguments: Iterable[ArgumentRow],
        stack: tuple[Frame, ...],
        own: Frame | None,
        plots: Plots | None,
        digits: Mapping[str, str] | None = None,
        operands: tuple[OperandPlot, ...] = (),
    ) -> Details:
        """own: the innermost frame of the user's own code. What the framework does inside is left out."""
        first = stack.index(own) if own is not None and own in stack else 0
        frames = stack[first : first + FRAMES]
        shown = tuple(Frame(_cut(each.file), each.line, _cut(each.function), _cut(each.code)) for each in frames)
        rows = tuple(map(ArgumentResult.of, list(arguments)[:ARGUMENTS]))
        return cls(printable_line(command), rows, shown, plots, digits or {}, operands)


def limit_share(metrics: Mapping[str, Any]) -> float | None:
    """The largest share that a metric has of its limit; None where none has one, inf where it is not finite."""
    pairs = ((metrics.get(name.removesuffix(LIMIT)), metrics[name]) for name in metrics if name.endswith(LIMIT))
    shares = [_share(value, limit) for value, limit in pairs if value is not None]
    return max(shares, default=None)


def _share(value: Any, limit: Any) -> float:
    try:
        own, most = float(value), float(limit)  # inf and NaN are texts in a result
    except (TypeError, ValueError):
        return math.inf
    if math.isnan(own):
        return math.inf
    return own / most if most else math.inf if own else 0.0


def _cut(text: str) -> str:
    line = printable_line(text)
    return line if len(line) <= LETTERS else f"{line[: LETTERS - 3]}..."
