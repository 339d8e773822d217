"""Random outputs: the pattern by its distribution, the kept elements by noise given that pattern. And outputs that a
float64 run does not define: by the output's own dtype, or by nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.errors import NoReference, Unsupported
from pytest_probe.model.comparison import Comparison, Evidence
from pytest_probe.model.verdict import Outcome, OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, round_to, widen
from pytest_probe.standards.classes import distributions
from pytest_probe.standards.exact import Exact
from pytest_probe.standards.noise.standard import NoiseStandard
from pytest_probe.standards.tables import details

# Standard deviations by which the share of dropped elements may be off: chance exceeds them in one of 10^9 outputs.
_DROPOUT_SIGMAS = 6.0


class Random:
    """Judges dropout by its pattern and the elements it keeps, drawn values by their distribution; skips other APIs."""

    name = "random"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        if comparison.direction == "forward" and distributions.known(comparison):
            reason = distributions.failure_reason(comparison)
            dtype = comparison.actual.dtype.name
            outcome: Outcome = "pass" if reason is None else "error"
            if not reason and (count := comparison.actual.size) < distributions.ENOUGH:
                wanted = f"{count:,} of {distributions.ENOUGH:,} draws"
                reason = f"too few draws to detect an error of a few per cent: {wanted}"
            return OutputVerdict(comparison.name, comparison.actual.shape, dtype, outcome, self.name, reason or "")
        values = comparison.call.argument("input")
        switches = details(comparison.classes, "random_with")
        if switches and not any(comparison.call.argument(name) for name in switches):
            return NoiseStandard().judge(comparison)
        if not (_drops_elements(comparison) or _unbatched(comparison)) or not isinstance(values, np.ndarray):
            raise Unsupported(f"{comparison.call.name} gives random values", "random values")
        if not draws(comparison):
            return NoiseStandard().judge(comparison)
        return self._dropout(comparison, widen(values), comparison.call.argument("p"))

    def _dropout(self, comparison: Comparison, values: AnyArray, p: Any) -> OutputVerdict:
        probability = float(p)
        source = values if comparison.direction == "forward" else widen(comparison.case.incoming["output.0"])
        # Which elements the device kept: by its forward output where that shows it, else by the output itself.
        forward = _forward(comparison)
        kept = np.asarray(
            np.where(_is_telling(values, forward), forward != 0, widen(comparison.actual) != 0), dtype=bool
        )
        # A dropped element is its value times zero: NaN for NaN and inf.
        lost = ~np.isfinite(source) & np.isnan(widen(comparison.actual))
        share = 1.0 if "unscaled" in comparison.classes else 1 - p
        verdict = _judge_kept(comparison, np.where(lost, np.nan, np.where(kept, source, 0.0)), share)
        # How many leading dimensions number the channels that are dropped as a whole.
        leading = 1 if str(values.ndim) in _unbatched(comparison) else 2
        channels = values.ndim if _drops_elements(comparison) else leading
        known = _is_telling(values, _forward(comparison)) & (source != 0)
        reason = _pattern_failure(kept, known, probability, channels)
        if verdict.verdict == "error" or reason is None:
            return replace(verdict, standard=self.name)
        return replace(verdict, verdict="error", standard=self.name, reason=reason)


def _judge_kept(comparison: Comparison, kept: AnyArray, share: Any) -> OutputVerdict:
    """Judge the kept elements by noise, without evidence, since other runs draw other patterns.

    Some 16-bit kernels round the factor first, or the share that they divide by, which has the probability's dtype.
    """
    exact, dtype = 1 / float(share), comparison.actual.dtype
    rounded, divisor = (float(widen(round_to(number, dtype))) for number in (exact, float(share)))
    factors = dict.fromkeys((exact, float(1 / share), rounded, 1 / divisor))
    for number in factors:
        given = replace(comparison, expected=kept * number, evidence=Evidence(), single=None)
        verdict = NoiseStandard().judge(given)
        if verdict.verdict != "error":
            break
    return verdict


def draws(comparison: Comparison) -> bool:
    """Does this dropout draw a pattern? Outside training, and where it keeps all or nothing, it does not."""
    return bool(comparison.call.argument("training")) and float(comparison.call.argument("p")) not in (0.0, 1.0)


def _forward(comparison: Comparison) -> AnyArray:
    """The device's forward output; the gradient where the forward output is unknown."""
    forward = comparison.case.forward.get("output.0")
    if comparison.direction == "backward" and isinstance(forward, np.ndarray):
        return widen(forward)
    return widen(comparison.actual)


def _is_telling(values: AnyArray, forward: AnyArray) -> BoolArray:
    """Where does the forward output show whether an element was dropped? A zero input is zero either way, and NaN stays
    NaN in a kernel that multiplies by zero instead of selecting."""
    selects = bool((forward[~np.isfinite(values)] == 0).any())
    return np.asarray((values != 0) & (np.isfinite(values) | selects))


def _drops_elements(comparison: Comparison) -> bool:
    return "dropout" in comparison.classes


def _unbatched(comparison: Comparison) -> tuple[str, ...]:
    """How many dimensions the input of a channel dropout has where it is no batch, as the class's detail."""
    return details(comparison.classes, "channel_dropout")


def _pattern_failure(kept: BoolArray, telling: BoolArray, probability: float, channels: int) -> str | None:
    """Why the pattern is wrong: its share of zeros, a channel that is dropped in part, or a repetition."""
    if channels < kept.ndim:
        shape = kept.shape[:channels]
        kept, telling = kept.reshape(*shape, -1), telling.reshape(*shape, -1)
        if ((kept & telling).any(-1) & (~kept & telling).any(-1)).any():
            return "a channel is dropped in part"
        kept, telling = np.asarray((kept & telling).any(-1)), np.asarray(telling.any(-1))
    trials = int(np.count_nonzero(telling))
    dropped = trials - int(np.count_nonzero(kept & telling))
    for word, flags, chance in (("dropped", ~kept, probability), ("kept", kept, 1 - probability)):
        # The longest run, in memory's order, and the longest that chance gives more than once in 10^9 outputs.
        ends = np.flatnonzero(~np.concatenate([[False], (telling & flags).ravel(), [False]]))
        run = int(np.diff(ends).max(initial=1)) - 1
        longest = math.ceil(math.log(distributions.UNLIKELY / max(trials, 1)) / math.log(chance))
        if run > longest:
            return f"{run:,} elements in a row are {word} where p = {probability:g} explains {longest:,}"
    spread = _DROPOUT_SIGMAS * (trials * probability * (1 - probability)) ** 0.5
    if abs(dropped - trials * probability) <= spread + 1:
        # A pattern that repeats itself may have the right share.
        return distributions.repetition(np.where(telling, ~kept - probability, 0.0), probability * (1 - probability))
    explained = f"p = {probability:g} explains {trials * probability:,.0f} +- {spread:,.0f}"
    return f"{dropped:,} of {trials:,} elements are dropped where {explained}"


class OwnDtype:
    """Bit for bit NumPy's function of the same name in the output's dtype: nextafter and the like."""

    name = "own_dtype"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        arguments = comparison.call.arrays
        if len(arguments) != len(comparison.call.given):
            raise NoReference(f"{comparison.call.name} is defined by its dtype, and not all arguments are tensors")
        wanted = getattr(np, comparison.call.name)(*arguments)
        verdict = Exact().judge(replace(comparison, expected=wanted.astype(comparison.expected.dtype)))
        return replace(verdict, standard=self.name)


class Uninitialised:
    """Any values pass: shape and dtype are checked before, and nothing else is defined."""

    name = "uninitialised"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        return OutputVerdict(comparison.name, comparison.actual.shape, comparison.actual.dtype.name, "pass", self.name)
