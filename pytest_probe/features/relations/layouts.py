"""Does a call do as well on inputs that lie in memory otherwise, and on another stream?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from msgspec.structs import replace

from pytest_probe.check.gradients import gradient_sides
from pytest_probe.check.judging import Judging
from pytest_probe.check.replay import Reference
from pytest_probe.check.runner import CaseRunner
from pytest_probe.check.sources import replayed
from pytest_probe.check.structure import Compared, nearest_structure
from pytest_probe.features.relations.call import Apart, Call, Leaves, kept
from pytest_probe.features.relations.relation import Found, left_out
from pytest_probe.inputs.memory import contiguous_strides
from pytest_probe.model.run import Leaf, with_leaves
from pytest_probe.model.verdict import Outcome, OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, is_complex, is_floating

# How long the other stream works, in milliseconds.
_BUSY = (4, 32, 256)


class Layout:
    name = "layout"
    broken: Outcome = "error"

    def unfit(self, call: Call) -> str:
        if not call.row.layout or call.row.whole_memory:
            return "the API's results hang on how its inputs lie"
        return "the call is so large that a part of it was judged" if call.replay.reference.is_partial else ""

    def find(self, call: Call) -> Found:
        floats = {name: leaf for name, leaf in call.leaves.items() if _is_float(leaf) and leaf.array.size > 1}
        if not floats:
            left_out("no floating argument has two elements")
        runs = 0
        for words, leaves in _layouts(floats):
            runs += 1
            apart = next(call.apart(call.results({**call.leaves, **leaves})), None)
            wrong = None if apart is None else _wrong(call, leaves)
            if wrong is not None:
                return Found(f"with {words} inputs, {wrong.name}: {wrong.reason}", apart, runs)
        for words, incoming in _incoming(call.replay.incoming) if call.backward else ():
            runs += 2
            in_order = call.results(incoming={name: np.array(array, order="C") for name, array in incoming.items()})
            apart = next(call.apart(call.results(incoming=incoming), kept(in_order)), None)
            wrong = None if apart is None else _wrong(call, {}, incoming)
            if wrong is not None:
                return Found(f"with {words} incoming gradients, {wrong.name}: {wrong.reason}", apart, runs)
        return Found(runs=runs)


def _wrong(call: Call, leaves: Leaves, incoming: Mapping[str, AnyArray] | None = None) -> OutputVerdict | None:
    """The output that is an error with tensors that lie so."""
    judging = Judging(call.setup, CaseRunner(call.setup).whole)
    # Evidence on the device's kernels comes of inputs that lie alike.
    reference = _laid_out(call.replay.reference, {**call.leaves, **leaves})
    if call.backward:  # the graph of the reference has given its gradients
        reference = replace(reference, run=reference.again(reference.leaves, reference.way, reference.wanted))
    replay = replayed(reference, call.source)
    if incoming is None:
        judged = judging.of(call.case, replay)
    else:
        sides = nearest_structure(gradient_sides(replace(replay, incoming=incoming)))
        judged = judging.judged(call.case, Compared.of(sides))
    return next((output for output in judged.outputs if output.verdict == "error"), None)


def _laid_out(reference: Reference, leaves: Leaves) -> Reference:
    candidate = reference.candidate
    arguments = with_leaves(candidate.arguments, leaves)
    return replace(reference, leaves=leaves, candidate=replace(candidate, arguments=arguments), cached=None)


def _is_float(leaf: Leaf) -> bool:
    return is_floating(leaf.array.dtype) or is_complex(leaf.array.dtype)


def _layouts(floats: Leaves) -> Iterator[tuple[str, Leaves]]:
    if any(leaf.strides is not None or leaf.offset for leaf in floats.values()):
        yield "contiguous", {name: replace(leaf, strides=None, offset=0) for name, leaf in floats.items()}
    transposed = {
        name: replace(leaf, strides=_transposed(leaf)) for name, leaf in floats.items() if leaf.array.ndim > 1
    }
    if transposed:
        yield "transposed", transposed
    yield "offset", {name: replace(leaf, offset=leaf.offset + 1) for name, leaf in floats.items()}


def _incoming(arrays: Mapping[str, AnyArray]) -> Iterator[tuple[str, Mapping[str, AnyArray]]]:
    """Incoming gradients that lie otherwise: those of a sum are one number, expanded."""
    if any(array.ndim > 1 for array in arrays.values()):
        turned = (np.array(array.swapaxes(-1, -2) if array.ndim > 1 else array, order="C") for array in arrays.values())
        back = (array.swapaxes(-1, -2) if array.ndim > 1 else array for array in turned)
        yield "transposed", dict(zip(arrays, back, strict=True))
    if any(array.size > 1 for array in arrays.values()):
        yield "expanded", {name: _expanded(array) for name, array in arrays.items()}


def _expanded(array: AnyArray) -> AnyArray:
    return np.broadcast_to(array.reshape(-1)[:1], array.shape) if array.size > 1 else array


def _transposed(leaf: Leaf) -> tuple[int, ...]:
    """The strides of a tensor whose last two dimensions lie in the other order."""
    *outer, one, two = leaf.array.shape
    *rest, second, first = contiguous_strides((*outer, two, one))
    return (*rest, first, second)


def _beside_busy(call: Call) -> Apart | None:
    """What is other where the results are read on a stream of their own, before the device's other stream has done what
    it has to do: it gets more where that was done too early to tell."""
    for busy in _BUSY:
        context = call.framework.side_stream(call.setup.device, busy)
        assert context is not None
        outputs = list(call.base.values())
        unwritten = partial(call.framework.unwritten, call.setup.device, outputs, math.nan)
        with context as still_busy:
            apart = next(call.apart(kept(call.results(inside=unwritten))), None)
            told = still_busy()
        if apart is not None or told:
            return apart
    left_out(f"a stream that works for {_BUSY[-1]} ms had done so before the results were read")


class Stream:
    """Accelerators alone have streams."""

    name = "stream"
    broken: Outcome = "error"

    def unfit(self, call: Call) -> str:
        has_streams = not call.backward and call.framework.side_stream(call.setup.device) is not None
        return "" if has_streams else "the device has no streams"

    def find(self, call: Call) -> Found:
        apart = _beside_busy(call)
        # A kernel that gives other bits each time shows that on its own stream as well.
        if apart is None or next(call.apart(call.results()), None) is not None:
            return Found(runs=2)
        return Found(f"read on a stream of its own, {apart.words}", apart, 3)
