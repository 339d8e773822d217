"""References of one case under other assumptions: a device mode, or a rounding inside.

Flushing to zero is judged if it can explain an error. A wrong element that flushing does not move, and that scatters
much less than its error in one run, stays wrong, whatever further runs say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.check.both_sides import BothSides, Reference, results
from pytest_probe.check.perturbed import OutputRuns, Perturbation, PerturbedRuns
from pytest_probe.model.comparison import INCOMING, NOWHERE, Assumption, Comparison
from pytest_probe.model.dump import Direction
from pytest_probe.model.run import Jitter, Steps, Way, with_leaves, with_value
from pytest_probe.numerics.arrays import same_bytes
from pytest_probe.numerics.dtypes import AnyArray, is_floating, numpy_dtype, round_to, widen
from pytest_probe.user_errors import allowing_refusal

Results = Mapping[str, Any]


class Alternative(Struct, frozen=True):
    """What the call gives under an assumption, and perturbed."""

    found: Results
    runs: PerturbedRuns


class Alternatives(Struct):
    """The alternatives of one case, each computed once for all its outputs."""

    replay: BothSides
    perturbation: Perturbation
    _made: dict[Assumption, Alternative | None] = field(default_factory=dict)

    def of(self, comparison: Comparison, assumption: Assumption) -> Comparison | None:
        """The same comparison with the reference that the assumption gives; None where the call does not run like that,
        gives another shape, or the very same numbers."""
        if assumption not in self._made:
            self._made[assumption] = self._alternative(assumption, comparison.roundoff)
        made = self._made[assumption]
        name = comparison.name.removeprefix("grad.")
        expected = None if made is None else _array(made.found, name)
        if made is None or expected is None or expected.shape != comparison.expected.shape:
            return None
        flushes = assumption.mode is not None and assumption.mode.flush  # the runs tell then, if not the numbers
        # A mode that changes nothing here explains nothing: it changes a roundoff of float32 at least, and two runs in
        # float64 differ by a few of its own.
        if not flushes and np.allclose(expected, comparison.expected, rtol=1e-12, atol=0.0, equal_nan=True):
            return None
        evidence = OutputRuns(made.runs, name, expected.shape, comparison.actual.dtype)
        allowance = replace(comparison.allowance, emulated=True)
        return replace(comparison, expected=expected, evidence=evidence, allowance=allowance)

    def _alternative(self, assumption: Assumption, roundoff: float) -> Alternative | None:
        if assumption.rounded:
            return self._rounded(assumption.rounded, roundoff)
        mode = assumption.mode
        if mode is not None and mode.sums == "narrow":
            mode = replace(mode, sums=self.perturbation.narrow)
        replay = self.replay
        way = replace(replay.reference.way, mode=mode)
        if assumption.sample is not None:
            way = replace(way, jitter=Jitter(roundoff, assumption.sample))
        runs = PerturbedRuns(replay, replace(self.perturbation, roundoff=roundoff, mode=mode))
        with allowing_refusal():  # beyond the call's domain like that
            reference, direction, incoming = replay.reference, self.perturbation.direction, replay.incoming
            found = reference.kept_arrays(
                lambda: ("alternative", direction, way, incoming, reference.wanted, reference.changed),
                lambda: computed(reference, direction, way, incoming, like=reference),
            )
            return Alternative(found, runs)
        return None

    def _rounded(self, places: frozenset[int], roundoff: float) -> Alternative | None:
        """None where nothing is another number, as beyond the last place. Dozens are kept, so in the narrow dtype."""
        narrow, reference, direction = self.perturbation.narrow, self.replay.reference, self.perturbation.direction
        way = replace(reference.way, steps=Steps(narrow, fine=True, places=places))
        with allowing_refusal():  # a reference that shows no steps
            exact = computed(reference, direction, way, self.replay.incoming, like=reference)
            found = {
                name: round_to(run, numpy_dtype(narrow)) if run.dtype == np.float64 else run
                for name, run in exact.items()
            }
            nowhere, of_nowhere = None, Assumption(rounded=NOWHERE)
            if places != NOWHERE:
                if of_nowhere not in self._made:
                    self._made[of_nowhere] = self._rounded(NOWHERE, roundoff)
                nowhere = self._made[of_nowhere]
            if nowhere is not None and all(same_bytes(run, nowhere.found[name]) for name, run in found.items()):
                return None
            return Alternative(found, PerturbedRuns(self.replay, self.perturbation))
        return None


def _array(found: Results, name: str) -> AnyArray | None:
    if name not in found:
        return None
    array = np.asarray(found[name])
    return widen(array) if is_floating(array.dtype) else array


def with_arguments(replay: BothSides, direction: Direction, values: Mapping[str, Any]) -> dict[str, AnyArray]:
    """The outputs, or gradients, of the reference with other values in some places; {} where it does not run so."""
    reference = replay.reference
    if reference.is_partial:
        return {}
    # The arguments with other values in some places, arrays where tensors stand; and the tensors.
    arguments, leaves = reference.candidate.arguments, dict(reference.candidate.arguments.tensors)
    for place, value in values.items():
        if place in leaves:
            leaves[place] = replace(leaves[place], array=value)
        elif not place.startswith(INCOMING):
            arguments = with_value(arguments, place, value)
    arguments = with_leaves(arguments, leaves)
    changed = replace(reference, candidate=replace(reference.candidate, arguments=arguments), leaves=leaves)
    incoming = {name: values.get(f"{INCOMING}{name}", value) for name, value in replay.incoming.items()}
    found: dict[str, AnyArray] = {}
    with allowing_refusal():  # beyond the call's domain like that
        # The record's own arguments were checked before they ran; these are others.
        reference.framework.check_arguments(changed.bound)
        found = changed.kept_arrays(
            lambda: ("other arguments", direction, incoming, reference.wanted, reference.changed),
            lambda: computed(changed, direction, reference.way, incoming, like=reference),
        )
    arrays = ((name, _array(found, name)) for name in found)
    return {name: array for name, array in arrays if array is not None}


def computed(
    reference: Reference, direction: Direction, way: Way, incoming: Mapping[str, AnyArray], *, like: Reference
) -> dict[str, AnyArray]:
    """The outputs of the reference's call run in a way, with the arguments that another reference changes; or its
    gradients."""
    if direction == "forward":
        return dict(results(reference.again(reference.leaves, way, None), like.changed))
    return reference.gradients_of(reference.leaves, way, incoming)
