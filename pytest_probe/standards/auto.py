"""The default: the judge of the API's class, else noise, and a warning where the API's table disagrees with it."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.arguments import BoundCall
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.standards.api_class import details
from pytest_probe.standards.base import Standard
from pytest_probe.standards.classes.discrete import Discrete, OwnIntegers
from pytest_probe.standards.classes.factorisation import Factorisation
from pytest_probe.standards.classes.indexed_writes import Writes
from pytest_probe.standards.classes.nearest_resize import Neighbours
from pytest_probe.standards.classes.random import Random
from pytest_probe.standards.classes.selection import SelectionStandard, is_index
from pytest_probe.standards.classes.ties import Ties
from pytest_probe.standards.classes.without_reference import OwnDtype, Uninitialised
from pytest_probe.standards.exact import Exact
from pytest_probe.standards.msprobe_check import with_table
from pytest_probe.standards.noise.standard import NoiseStandard
from pytest_probe.standards.tools.table import Table, packaged

# The first class of the API decides. Those that cannot be compared come first, bit for bit comes last.
FORWARD: tuple[tuple[str, Standard], ...] = (
    ("uninitialised", Uninitialised()),
    ("random", Random()),
    ("discrete", Discrete()),
    ("selection", SelectionStandard()),
    ("factorisation", Factorisation()),
    ("own_dtype", OwnDtype()),
    ("writes", Writes()),
    ("exact", Exact()),
)
BACKWARD: tuple[tuple[str, Standard], ...] = (
    ("random", Random()),
    ("ties", Ties()),
    ("factorisation", Factorisation()),
    ("exact_backward", Exact()),
)


class Auto:
    """Which judge decides is a matter of the API and the direction; classes.yaml lists the APIs."""

    name = "auto"

    def __init__(self, table: Table | None = None) -> None:
        self.table = table or packaged()

    def judge(self, comparison: Comparison) -> OutputVerdict:
        judge = _by_arguments(comparison) if comparison.direction == "forward" else None
        verdict = (judge or _by_class(comparison)).judge(comparison)
        if verdict.verdict == "pass" and verdict.standard == "noise":
            return with_table(comparison, verdict, self.table, self.name)
        return verdict


class OneRule:
    """One rule for all outputs, but for those that have no one right value: they are judged by what they promise."""

    def __init__(self, standard: Standard) -> None:
        self.name = standard.name
        self._standard = standard

    def judge(self, comparison: Comparison) -> OutputVerdict:
        promised = not comparison.classes.isdisjoint(("random", "uninitialised"))
        return (_by_class(comparison) if promised else self._standard).judge(comparison)


class BinEdges:
    """Bin edges, by noise as a factory's numbers: they divide a range evenly, and may cross zero in it."""

    name = "noise"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        case = replace(comparison.case, classes=comparison.classes | {"factory"})
        return NoiseStandard().judge(replace(comparison, case=case))


# Lists of "api@argument" in classes.yaml: where the argument is given, or has the value, this judge decides.
BY_ARGUMENT: tuple[tuple[str, Standard], ...] = (
    ("noise_with", NoiseStandard()),
    ("discrete_with", Discrete()),
    ("nearest_with", Neighbours()),
)


def _by_arguments(comparison: Comparison) -> Standard | None:
    """The judge where an argument, a dtype or the output decides: one API, several functions."""
    classes = comparison.classes
    if not comparison.call.name and comparison.actual.dtype.kind in "iu":
        return OwnIntegers()
    if "second_output_selects" in classes and is_index(comparison):
        return SelectionStandard()
    if f"bin_edges@{comparison.name}" in classes:
        return BinEdges()
    if "noise_of_complex" in classes and _is_of_complex(comparison):
        return NoiseStandard()
    if "nearest" in classes:
        return Neighbours()
    for kind, judge in BY_ARGUMENT:
        if any(_is_given(comparison.call, condition) for condition in details(classes, kind)):
            return judge
    return None


def _is_given(call: BoundCall, condition: str) -> bool:
    """Is an argument given and set ("max_norm"), or has it this value ("mode=nearest")?"""
    name, _, wanted = condition.partition("=")
    value = call.argument(name)
    return value == wanted if wanted else isinstance(value, np.ndarray) or bool(value)


def _is_of_complex(comparison: Comparison) -> bool:
    values = comparison.call.argument("input")
    return isinstance(values, np.ndarray) and values.dtype.kind == "c"


def _by_class(comparison: Comparison) -> Standard:
    judges = FORWARD if comparison.direction == "forward" else BACKWARD
    return next((judge for kind, judge in judges if kind in comparison.classes), NoiseStandard())
