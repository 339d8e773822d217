"""--probe-sensitivity: each case that passed is spoiled and judged again. Which faults would it have found?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check import CaseOutcome
from pytest_probe.check.check import Checker
from pytest_probe.check.comparisons import comparisons
from pytest_probe.check.engines import Engines
from pytest_probe.check.judging import UNREADABLE, judge_with_modes
from pytest_probe.check.structure import OutputPairs
from pytest_probe.check.weak import Extremes, choosing, hidden_by, one_choice
from pytest_probe.errors import HookFailed
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import SENSITIVITY, STRONG, WEAK, Answer, Detects
from pytest_probe.numerics.dtypes import AnyArray, float_format, is_floating, is_inexact, round_to, ulp, widen
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.item_verdict import ItemVerdict
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.reports.terminal import count
from pytest_probe.standards.noise.summed_terms import summed_terms

# Elements of a tile that a kernel may leave unwritten, and pieces of a sum between which its total is rounded.
TILE, PIECES = 16, 16
# One element is off by 1 %, in 16 bit by 8 roundoffs; errors that `detects` states are planted twice as large.
ELEMENT, ROUNDOFFS, TWICE = 0.01, 8, 2.0
# Half of the distance between two numbers of bfloat16, 0.4 %. Of narrow dtypes that is half an ulp, and so many
# roundoffs are what a case must show at least.
SCALE_ERROR = 2.0**-8
SCALE, COARSE = f"times {1 + SCALE_ERROR:g}", "times 1 + 8 roundoffs"
# Differences of linear parts from their whole, as a share of its largest element: float64's roundings.
_LINEAR = 1e-9


class Output:
    """An output to spoil: what its judge compares, what was stated of it, and the result of the case before, None where
    there was none. Spoiled values have the output's dtype and shape."""

    def __init__(self, comparison: Comparison, detects: Detects | None, before: AnyArray | None) -> None:
        self.comparison, self.detects, self.before = comparison, detects, before
        self.actual, self.shape = comparison.actual, comparison.actual.shape
        self.floats = is_inexact(self.actual.dtype)

    @cached_property
    def exact(self) -> AnyArray:
        """What the kernel computed before it rounded its result: the reference, where that rounds to the output."""
        rounded = widen(round_to(self.comparison.expected, self.actual.dtype))
        wide = widen(self.actual)
        return np.where(wide == rounded, self.comparison.expected, wide)

    @cached_property
    def typical(self) -> int | None:
        """Where the element is whose magnitude is nearest to the RMS of all; None where there is no number but zero."""
        size = np.abs(self.comparison.expected).ravel()
        size = np.where(np.isfinite(size), size, 0.0)
        rms = float(np.sqrt(np.mean(np.square(size))))
        return int(np.argmin(np.abs(np.where(size > 0, size, np.inf) - rms))) if rms else None

    def rounded(self, values: AnyArray) -> AnyArray:
        precision: Any = self.comparison.precision
        with np.errstate(all="ignore"):
            return np.asarray(round_to(values, precision)).astype(self.actual.dtype)

    def rerun(self, values: Mapping[str, Any]) -> AnyArray | None:
        """The output where the call has these arguments."""
        found = self.comparison.evidence.with_arguments(values)
        if found is None or found.shape != self.shape:
            return None
        return self.rounded(found) if self.floats else found.astype(self.actual.dtype)


Fault: TypeAlias = Callable[[Output], "AnyArray | None"]


def spoiled(output: Output) -> Iterator[tuple[str, AnyArray]]:
    """Each fault that can be planted, and the output with it."""
    for name, plant in (FAULTS if output.floats else OF_INTEGERS).items():
        with np.errstate(all="ignore"):
            values = plant(output)
        if values is not None:
            yield name, values


def times(factor: float) -> Fault:
    return lambda output: output.rounded(output.exact * factor)


def _coarse(output: Output) -> AnyArray | None:
    size = ROUNDOFFS * float_format(output.comparison.precision).roundoff
    return times(1 + size)(output) if size > SCALE_ERROR else None


def _stated(of: Callable[[Detects], float | None], plant: Callable[[Output, float], AnyArray | None]) -> Fault:
    """Twice an error that `detects` states."""

    def planted(output: Output) -> AnyArray | None:
        found = None if output.detects is None else of(output.detects)
        return None if found is None else plant(output, TWICE * found)

    return planted


def off_in_element(output: Output, ulps: float) -> AnyArray | None:
    """One element of the output's typical size, so many ulps of it farther from zero."""
    if output.typical is None:
        return None
    values = output.exact.flatten()
    values[output.typical] = _farther(output, values[output.typical : output.typical + 1], ulps)[0]
    return output.rounded(values.reshape(output.shape))


def off_in_row(output: Output, ulps: float) -> AnyArray | None:
    """The row of that element, each of its elements so many ulps of its own farther from zero."""
    if output.typical is None or len(output.shape) < 2:
        return None
    values = output.exact.flatten().reshape(-1, output.shape[-1])
    row = output.typical // output.shape[-1]
    values[row] = _farther(output, values[row], ulps)
    return output.rounded(values.reshape(output.shape))


def _farther(output: Output, values: AnyArray, ulps: float) -> AnyArray:
    units = np.nan_to_num(ulp(values, output.comparison.precision))
    return np.asarray(values + ulps * units * np.where(values.real >= 0, 1, -1))


def _one_element(output: Output) -> AnyArray | None:
    values = output.actual.flatten()
    if not output.floats:
        middle = values.size // 2
        values[middle] = ~values[middle] if values.dtype.kind == "b" else values[middle] + 1
        return values.reshape(output.shape)
    if output.typical is None:
        return None
    share = max(ELEMENT, ROUNDOFFS * float_format(output.actual.dtype).roundoff)
    wide = widen(values)
    wide[output.typical] *= 1 + share
    return output.rounded(wide.reshape(output.shape))


def _last_tile(output: Output) -> AnyArray | None:
    if not output.shape or output.shape[-1] < 2:
        return None
    values = np.array(output.actual)
    values[..., -min(TILE, output.shape[-1] // 2) :] = 0
    return values


def _swapped(output: Output, axis: int) -> AnyArray | None:
    extent = output.shape[axis]
    if extent < 2:
        return None
    order = [extent - 1, *range(1, extent - 1), 0]
    return np.take(output.actual, order, axis)


def _without_bias(output: Output) -> AnyArray | None:
    call = output.comparison.call
    bias = call.given.get("bias")
    if not isinstance(bias, np.ndarray) or output.comparison.direction == "backward":
        return None
    return output.rerun({call.paths["bias"]: np.zeros_like(bias)})


def _mask_shifted(output: Output) -> AnyArray | None:
    """By one place, along the last dimension."""
    call = output.comparison.call
    for name, value in call.given.items():
        masks = isinstance(value, np.ndarray) and (value.dtype.kind == "b" or "mask" in name)
        if masks and value.size > 1:
            return output.rerun({call.paths[name]: np.roll(value, 1, axis=-1)})
    return None


def _one_nan(output: Output) -> AnyArray | None:
    values = output.actual.flatten()
    values[values.size // 2] = np.nan
    return values.reshape(output.shape)


def _stale(output: Output) -> AnyArray | None:
    """What the case before left in memory."""
    if output.before is None or not output.before.size:
        return None
    values = np.resize(output.before, output.shape).astype(output.actual.dtype)
    return None if np.array_equal(values, output.actual) else values


def _narrow_sums(output: Output) -> AnyArray | None:
    """The sum of parts of a sum, each the reference with the other terms zero; the total is rounded behind each."""
    comparison, call = output.comparison, output.comparison.call
    values, axis = call.given.get("input"), 1 if "terms_of_kernel" in comparison.classes else -1
    sums = any(kind.startswith("terms_of_") for kind in comparison.classes)
    if not sums or comparison.direction == "backward" or not isinstance(values, np.ndarray) or comparison.large:
        return None
    if values.ndim < 2 or values.shape[axis] < 2 or not is_floating(values.dtype) or summed_terms(comparison).count < 2:
        return None
    path, narrow = call.paths["input"], np.dtype(np.float16)
    if float_format(comparison.precision).precision < float_format("float16").precision:
        narrow = comparison.precision
    rest = comparison.evidence.with_arguments({path: np.zeros_like(values)})
    if rest is None or rest.shape != output.shape or not np.isfinite(rest).all():
        return None
    whole, total = rest, rest
    for piece in np.array_split(np.arange(values.shape[axis]), min(PIECES, values.shape[axis])):
        part = np.zeros_like(values)
        place = [slice(None)] * values.ndim
        place[axis] = slice(int(piece[0]), int(piece[-1]) + 1)
        part[tuple(place)] = values[tuple(place)]
        found = comparison.evidence.with_arguments({path: part})
        if found is None:
            return None
        whole, total = whole + (found - rest), widen(round_to(total + (found - rest), narrow))
    largest = float(np.max(np.abs(comparison.expected), initial=0.0))
    linear = np.allclose(whole, comparison.expected, rtol=0, atol=_LINEAR * largest, equal_nan=True)
    return output.rounded(total) if linear and comparison.expected.dtype.kind == "f" else None


OF_INTEGERS: Mapping[str, Fault] = {
    "one element off": _one_element,
    "last tile zero": _last_tile,
    "two rows swapped": lambda output: _swapped(output, -2) if len(output.shape) > 1 else None,
    "two heads swapped": lambda output: _swapped(output, 1) if len(output.shape) == 4 else None,
    "mask shifted": _mask_shifted,
    "all zero": lambda output: np.zeros_like(output.actual),
    "stale": _stale,
}
FAULTS: Mapping[str, Fault] = {
    "times 1.01": times(1.01),
    SCALE: times(1 + SCALE_ERROR),
    "times 1.001": times(1.001),
    COARSE: _coarse,
    "twice the stated scale": _stated(lambda stated: stated.scale, lambda output, error: times(1 + error)(output)),
    "twice the stated element": _stated(lambda stated: stated.element, off_in_element),
    "twice the stated row": _stated(lambda stated: stated.row, off_in_row),
    "bias dropped": _without_bias,
    "sums in 16 bit": _narrow_sums,
    "one NaN": _one_nan,
    **OF_INTEGERS,
}


_SCALE = f"scale error of {100 * SCALE_ERROR:.1g} %, by case"
UNSEEN = "its results lose digits: a scale error of 0.4 %, in 16 bit of 8 roundoffs, is not found"
ONE_TERM = "each sum has one term"


class Spoiling:
    """Spoils the outputs of cases, one after the other; what the one before left is a stale result of the next."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._before: AnyArray | None = None

    def of(self, checked: CaseOutcome) -> Answer | None:
        """In how many outputs each fault was found, of those in which it was planted, and why the case proves little.
        None for a case that did not pass, that has nothing to spoil, or for which there is no memory."""
        sides, case = checked.worst, checked.case
        if sides is None or checked.verdict.verdict not in ("pass", "warning"):
            return None
        with self._checker.making_calls(case) as engines:
            try:
                return self._worth(checked, sides, engines, by_class=True)
            except UNREADABLE:
                # A test's function may have other arguments than the API by whose rule it is judged.
                if case.pair is None:
                    raise
                return self._worth(checked, sides, engines, by_class=False)
            except MemoryError:
                return None

    def _worth(self, checked: CaseOutcome, sides: OutputPairs, engines: Engines, *, by_class: bool) -> Answer | None:
        seed = engines.request.seed
        asked = [
            each
            for each in comparisons(sides, checked.case.direction, seed, by_class=by_class)
            if isinstance(each, Comparison) and each.actual.size and "uninitialised" not in each.classes
        ]
        stated = {output.name: output.detects for output in checked.verdict.outputs}
        found: dict[str, tuple[int, int]] = {}
        for comparison in asked:
            for name, values in spoiled(Output(comparison, stated.get(comparison.name), self._before)):
                caught, planted = found.get(name, (0, 0))
                found[name] = caught + _finds(engines, comparison, values), planted + 1
        if not asked:
            return None
        self._before = asked[0].actual
        scale = found[SCALE][0] > 0 if SCALE in found else True
        unseen = not (scale or found.get(COARSE, (0, 0))[0]) and any(each.expected.any() for each in asked)
        weak = _weak(asked, sides) or (UNSEEN if unseen else "")
        return Answer(SENSITIVITY, WEAK if weak else STRONG, weak, {_SCALE: (int(scale), 1), **found})


def _finds(engines: Engines, comparison: Comparison, values: AnyArray) -> bool:
    """Does the run's standard find that these values are wrong? What spoils nothing goes unseen."""
    actual = comparison.actual
    if ((values == actual) | ((values != values) & (actual != actual))).all():
        return False
    standard = engines.standard
    try:
        wrong = replace(comparison, actual=values)
        verdict = judge_with_modes(standard, wrong, lambda: engines.modes_of(comparison), depth=lambda: "none")
    except HookFailed:
        return True
    return verdict.verdict == "error"


def _weak(asked: Sequence[Comparison], sides: OutputPairs) -> str:
    """Why the case proves little, whatever is planted in its outputs; "" where it does not."""
    bound = sides.replay.reference.bound
    arrays = {name: leaf.array for name, leaf in sides.replay.reference.leaves.items()}
    arguments = [Extremes.of_array(name, array) for name, array in arrays.items()]
    incoming = [Extremes.of_array(f"incoming gradient {name}", value) for name, value in sides.replay.incoming.items()]
    floats = [each for each in asked if is_inexact(each.actual.dtype)]
    outputs = [Extremes.of_array(each.name, each.expected) for each in floats]
    if outputs and all(each.constant for each in outputs):
        # Other values for all arguments that are no integers: numbers that most functions take, half of a mask.
        random, others = np.random.default_rng(0), dict[str, AnyArray]()
        given = {**arrays, **{f"incoming.{name}": value for name, value in sides.replay.incoming.items()}}
        for name, value in given.items():
            if value.dtype.kind == "b":
                others[name] = random.random(value.shape) < 0.5
            elif is_inexact(value.dtype):
                others[name] = random.uniform(0.25, 0.75, value.shape).astype(value.dtype)
        varied = [each.evidence.with_arguments(others) for each in floats]
        again = [Extremes.of_array("", values) for values in varied if values is not None]
        moved = all(each.zero for each in outputs) and any(not each.zero for each in again)
        if moved or any(not each.constant for each in again):
            return hidden_by([*incoming, *arguments], outputs, bound)
        unmoved = len(again) == len(outputs) and all(
            (now.low, now.high) == (each.low, each.high) for now, each in zip(again, outputs, strict=True)
        )
        if unmoved and arguments and not floats[0].classes & {"exact", "exact_backward"}:
            return f"{outputs[0]}, whatever the inputs are"
    if not floats:
        return ""
    sums = [each for each in floats if any(kind.startswith("terms_of_") for kind in each.classes)]
    terms = [summed_terms(each) for each in sums if each.direction == "forward"]
    if len(terms) == len(floats) and all(each.count == 1 and not each.assumed for each in terms):
        return ONE_TERM
    # The paths of labels and indices among a record's arguments; a function of a test names none.
    reference = sides.replay.reference
    call, signatures = reference.call, frameworks.signatures(reference.framework.name)
    return one_choice(arguments, choosing(call, signatures.bind(reference.candidate.api, call.args, call.kwargs)))


# APIs that are named.
_APIS = 5


class SensitivityOfPasses(Feature):
    @cached_property
    def _spoiling(self) -> Spoiling:
        return Spoiling(self.probe.checker)

    def judge(self, judged: ItemVerdict) -> None:
        answer = self._spoiling.of(judged.checked) if self.probe.settings.sensitivity else None
        if answer is not None:
            judged.verdict = replace(judged.verdict, answers=(*judged.verdict.answers, answer))

    def end(self, reporting: Reporting) -> None:
        """Fail a run that proves less than so many percent, and name the APIs that need other records."""
        cases, weak, least = Counter[str](), Counter[str](), int(self.probe.settings.sensitivity or 0)
        for (question, api, _, direction), row in reporting.answers.rows.items():
            if question == SENSITIVITY:
                cases[f"{api} {direction}".rstrip()] += row.cases
                weak[f"{api} {direction}".rstrip()] += row.outcomes[WEAK]
        share = 100 * (cases.total() - weak.total()) / max(cases.total(), 1)
        if not cases or share >= least:
            return
        named = [f"{api} ({each:,} of {count(cases[api], 'case')})" for api, each in weak.most_common() if each]
        more = f" and {len(named) - _APIS:,} more APIs" if len(named) > _APIS else ""
        reporting.trouble(
            f"sensitivity: {share:.3g} % of the cases prove something, --probe-sensitivity asks for {least} %; "
            f"other records are needed of {', '.join(named[:_APIS])}{more}"
        )
