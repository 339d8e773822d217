"""The default: the judge of the API's class, else noise. Where noise passes, it is a warning that msprobe's table for
the API is at error, though the correctly rounded result would pass it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison, Evidence, Standard
from pytest_probe.model.run import BoundCall
from pytest_probe.model.verdict import TABLE_METRIC, OutputVerdict
from pytest_probe.numerics.allowed_scale import nearest_run
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, dtype_name, float_format, is_inexact, ulp, widen
from pytest_probe.numerics.noise_ratio import FAN_IN_CAP, FAN_IN_START
from pytest_probe.standards import exact
from pytest_probe.standards.classes.discrete import Discrete, OwnSteps
from pytest_probe.standards.classes.factorisation import Factorisation
from pytest_probe.standards.classes.indexed_writes import Writes
from pytest_probe.standards.classes.nearest_resize import Neighbours
from pytest_probe.standards.classes.random import OwnDtype, Random, Uninitialised
from pytest_probe.standards.classes.selected_indices import SelectionStandard, is_index
from pytest_probe.standards.classes.tied_gradients import Ties
from pytest_probe.standards.exact import Exact, correctly_rounded, judged_apart
from pytest_probe.standards.noise.explanation import Stage
from pytest_probe.standards.noise.scales import one_run_of_steps
from pytest_probe.standards.noise.stages import BETWEEN_STEPS, limits_of
from pytest_probe.standards.noise.standard import NoiseStandard
from pytest_probe.standards.noise.summed_terms import of_few_terms, summed_terms
from pytest_probe.standards.noise.unsampled_suspects import UnsampledSuspects
from pytest_probe.standards.tables import details
from pytest_probe.standards.tools.release import RuleVerdict
from pytest_probe.standards.tools.table import BENCHMARK, Rule, Table, packaged
from pytest_probe.standards.tools.tool import differing, justification, justified, measured_for, ruled

# The first class of the API decides. Classes that cannot be compared come first, bit for bit comes last.
_FORWARD: tuple[tuple[str, Standard], ...] = (
    ("exact_inputs", Exact()),
    ("uninitialised", Uninitialised()),
    ("random", Random()),
    ("discrete", Discrete()),
    ("selection", SelectionStandard()),
    ("factorisation", Factorisation()),
    ("own_dtype", OwnDtype()),
    ("writes", Writes()),
    ("exact", Exact()),
)
_BACKWARD: tuple[tuple[str, Standard], ...] = (
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
        verdict = judged_apart(judge or _by_class(comparison), comparison)
        if verdict.verdict != "pass" or verdict.standard != "noise" or _is_right(comparison, verdict):
            return verdict
        rule = self.table.rule(comparison.call.api, dtype_name(comparison.actual.dtype))
        if comparison.allowance.emulated or not is_inexact(comparison.actual.dtype) or not _asked(rule, comparison):
            return verdict
        found = _judged(comparison, rule)
        # A table that fails the right result as well says nothing of this one.
        rights = (replace(comparison, actual=right) for right in _right(comparison, verdict))
        if found.verdict != "error" or any(_judged(right, rule).verdict == "error" for right in rights):
            return verdict
        # A warning that names the table's metric.
        reason = f"noise passes it, msprobe's table for the API does not: {found.reason}"
        more = {TABLE_METRIC: rule.name, **justification(rule)}
        warned = replace(verdict, verdict="warning", standard=self.name, reason=reason)
        return replace(warned, metrics={**verdict.metrics, **more}, worst=differing(comparison))


class OneRule:
    """One rule for all outputs, but outputs without one right value are judged by what they promise."""

    def __init__(self, standard: Standard) -> None:
        self.name = standard.name
        self._standard = standard

    def judge(self, comparison: Comparison) -> OutputVerdict:
        promised = not comparison.classes.isdisjoint(("random", "uninitialised"))
        return (_by_class(comparison) if promised else self._standard).judge(comparison)


class _BinEdges:
    """Bin edges, by noise as a factory's numbers: they divide a range evenly, and may cross zero in it."""

    name = "noise"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        case = replace(comparison.case, classes=comparison.classes | {"factory"})
        return NoiseStandard().judge(replace(comparison, case=case))


# Lists of "api@argument" in classes.yaml: where the argument is given, or has the value, this judge decides.
_BY_ARGUMENT: tuple[tuple[str, Standard], ...] = (
    ("noise_with", NoiseStandard()),
    ("discrete_with", Discrete()),
    ("nearest_with", Neighbours()),
)


def opening(verdict: OutputVerdict) -> Callable[[AnyArray, AnyArray], BoolArray] | None:
    """Tells which elements of a part of an output, the device's and the reference's, its passing sample does not answer
    for; None where the sample's judge looks at more than elements."""
    if verdict.basis is None or not isinstance(verdict.basis.comparison, Comparison):
        return None
    drawn, stage = verdict.basis.comparison, verdict.basis.measured
    if stage is None:
        return partial(exact.differing, drawn)
    # Others are a little farther off than the drawn ones: how many terms meet there is asked now, as the rule does.
    few = of_few_terms(drawn)
    if few is not drawn and NEAR * stage.noise.largest > limits_of(few).largest:
        drawn = replace(drawn, terms=drawn.evidence.terms())
    return UnsampledSuspects.of(drawn, stage)


def known_steps(verdict: OutputVerdict) -> Evidence | None:
    """The evidence of a passing sample, where one run of 16-bit steps gives all its elements bit for bit: others that
    are given like that need no further run."""
    basis = verdict.basis
    if basis is None or not isinstance(basis.comparison, Comparison) or not isinstance(basis.measured, Stage):
        return None
    known = basis.measured.source == BETWEEN_STEPS and one_run_of_steps(basis.comparison) is not None
    return basis.comparison.evidence if known else None


def _by_arguments(comparison: Comparison) -> Standard | None:
    """The judge where an argument, a dtype or the output decides: one API, several functions."""
    classes = comparison.classes
    whole = comparison.actual.dtype.kind
    if (not comparison.call.name and whole in "iub") or ("own_integers" in classes and whole in "iu"):
        return OwnSteps()
    if f"generator_state@{comparison.name}" in classes:
        return Uninitialised()
    if "second_output_selects" in classes and is_index(comparison):
        return SelectionStandard()
    if f"bin_edges@{comparison.name}" in classes:
        return _BinEdges()
    values = comparison.call.argument("input")
    if "noise_of_complex" in classes and isinstance(values, np.ndarray) and values.dtype.kind == "c":
        return NoiseStandard()
    if "nearest" in classes:
        return Neighbours()
    for kind, judge in _BY_ARGUMENT:
        if any(_is_given(comparison.call, condition) for condition in details(classes, kind)):
            return judge
    return None


def _is_given(call: BoundCall, condition: str) -> bool:
    """Is an argument given and set ("max_norm"), or has it this value ("mode=nearest")?"""
    name, _, wanted = condition.partition("=")
    value = call.argument(name)
    return value == wanted if wanted else isinstance(value, np.ndarray) or bool(value)


def _by_class(comparison: Comparison) -> Standard:
    judges = _FORWARD if comparison.direction == "forward" else _BACKWARD
    return next((judge for kind, judge in judges if kind in comparison.classes), NoiseStandard())


# How many times farther off than the farthest drawn element another may be: chosen.
NEAR = 4.0
# Perturbed runs. Chosen; no other number was measured.
_CHECK_RUNS = 2
# Rules that may warn of what noise passes. `thousandth` fails healthy 16-bit numbers, `accumulative` small ones, and
# `benchmark` needs another run.
_WARN = ("absolute_threshold", "ulp", "binary")


def _is_right(comparison: Comparison, verdict: OutputVerdict) -> bool:
    """Is the output the right result itself? A table that fails that says nothing of it. A reason tells that something
    else was measured than the output."""
    own = comparison.precision == comparison.actual.dtype
    return own and not verdict.reason and verdict.metrics["mismatch"] == 0.0


def _right(comparison: Comparison, verdict: OutputVerdict) -> Iterator[AnyArray]:
    """The reference rounded once, to what the output's dtype carries: 16 bit in a float32 gradient of autocast. Then
    references of inputs 4 roundoffs off, and more where sums are long: where the table fails those, no kernel of that
    precision can be sure of it. Where steps of 16 bit explain the output, or the CPU's kernel does, those as well.
    """
    steps = verdict.metrics.get("scale_from") == BETWEEN_STEPS or verdict.reason.startswith("as-cpu")
    for reference in _references(comparison, steps):
        rounded = correctly_rounded(widen(correctly_rounded(reference, comparison.precision)), comparison.actual.dtype)
        yield np.where(_at_a_tie(comparison, reference), comparison.actual, rounded)


def _at_a_tie(comparison: Comparison, reference: AnyArray) -> BoolArray:
    """Where either 16-bit neighbour of a reference is right, the output being one: kernels compute in float32."""
    if float_format(comparison.precision).precision >= float_format("float32").precision:
        return np.zeros(reference.shape, dtype=bool)
    with np.errstate(invalid="ignore", over="ignore"):
        reach = ulp(reference, comparison.precision) / 2 + comparison.roundoff * np.abs(reference)
        return np.asarray(np.abs(widen(comparison.actual) - reference) <= reach)


def _references(comparison: Comparison, steps: bool) -> Iterator[AnyArray]:
    yield comparison.expected
    if steps:
        sampled = comparison.evidence.narrow_steps(_CHECK_RUNS)
        yield from sampled
        # The rest of a vectorised loop may round what the vectors do not.
        yield nearest_run(comparison.actual, [comparison.expected, *sampled])
    # As the limits of the noise rule grow: a table knows nothing of the length of a sum.
    growth = min(FAN_IN_CAP, max(1.0, summed_terms(comparison).count / FAN_IN_START) ** 0.5)
    with np.errstate(all="ignore"):
        for run in comparison.evidence.perturbed_more(_CHECK_RUNS):
            yield comparison.expected + growth * (run - comparison.expected)


def _asked(rule: Rule, comparison: Comparison) -> bool:
    """What a project asks for itself, too; but healthy 16-bit numbers are often a thousandth off."""
    if rule.name in _WARN:
        return True
    narrow = float_format(comparison.actual.dtype).precision < float_format("float32").precision
    return bool(rule.justification) and rule.name != BENCHMARK and not (rule.name == "thousandth" and narrow)


def _judged(comparison: Comparison, rule: Rule) -> RuleVerdict:
    return justified(ruled(rule, comparison.actual.dtype.name, measured_for(comparison, rule)), rule)
