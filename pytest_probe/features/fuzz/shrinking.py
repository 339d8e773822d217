"""A failing call made smaller and simpler, beyond what hypothesis can: with the numbers that it has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from pytest_probe.check.check import Checker
from pytest_probe.features.fuzz.cuts import cut
from pytest_probe.features.fuzz.search import Fails
from pytest_probe.features.fuzz.trial import Judged, Trials
from pytest_probe.features.fuzz.values import simplified
from pytest_probe.model.arguments import Arguments, Leaf
from pytest_probe.model.dump import Call
from pytest_probe.numerics.dtypes import widen


def shrunk(trials: Trials, found: Judged, fails: Fails, shown: Checker) -> Judged:
    """The call with small sizes and simple values, judged by `shown`, which may say what caused the failure. A call
    that does not fail again is one of a kernel that differs from run to run: it stays as it was found."""
    alone = _alone(trials, found, fails)

    def still_fails(call: Call, arguments: Arguments) -> bool:
        return fails(alone.judged(call, arguments))

    call, arguments = cut(found.call, found.arguments, still_fails)
    arguments = simplified(arguments, lambda tried: still_fails(call, tried))
    last = alone.judged(call, arguments)
    arguments = _with_plain_gradients(last, lambda tried: still_fails(call, tried))
    again = replace(alone, checker=shown).judged(call, arguments)
    return again if fails(again) else found


def _alone(trials: Trials, found: Judged, fails: Fails) -> Trials:
    """The forward alone, where that fails."""
    if "forward" not in trials.target.directions:
        return trials
    forward = replace(trials, target=replace(trials.target, directions=("forward",)))
    return forward if fails(forward.judged(found.call, found.arguments)) else trials


def _with_plain_gradients(found: Judged, fails: Callable[[Arguments], bool]) -> Arguments:
    """The arguments of a failing backward with incoming gradients of ones, or of whole numbers, where it fails with
    those as well."""
    failing = found.failing
    if failing is None or failing.worst is None or not failing.worst.replay.incoming:
        return found.arguments
    incoming = failing.worst.replay.incoming.values()
    for change in (np.ones_like, np.rint):
        given = tuple(Leaf(np.asarray(change(widen(array))).astype(array.dtype)) for array in incoming)
        tried = replace(found.arguments, gradients=given)
        if fails(tried):
            return tried
    return found.arguments
