"""Does a call do as well on inputs that lie in memory otherwise, and on another stream?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from msgspec.structs import replace

from pytest_probe.check.call_again import Leaves, kept
from pytest_probe.check.device_call import replayed
from pytest_probe.check.gradients import gradient_sides
from pytest_probe.check.judging import Judging
from pytest_probe.check.runner import CaseRunner
from pytest_probe.check.structure import PairedOutputs, nearest_structure
from pytest_probe.features.relations.table import Call, Found, Relation, left_out
from pytest_probe.inputs.memory import contiguous_strides
from pytest_probe.model.run import with_leaves
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, is_inexact

# How long the other stream works, in milliseconds.
_BUSY = (4, 32, 256)


class Layout(Relation):
    name = "layout"

    def unfit(self, call: Call) -> str:
        if not call.row.layout or call.row.whole_memory:
            return "the API's results depend on how its inputs lie"
        return "the call is so large that a part of it was judged" if call.replay.reference.is_partial else ""

    def find(self, call: Call) -> Found:
        arrays = {name: leaf.array for name, leaf in call.leaves.items() if leaf.array.size > 1}
        inexact = {name for name, array in arrays.items() if is_inexact(array.dtype)}
        floats = {name: leaf for name, leaf in call.leaves.items() if name in inexact}
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
    judging = Judging(call.engines, CaseRunner(call.engines).whole)
    # Evidence on the device's kernels comes of inputs that lie alike.
    every, candidate = {**call.leaves, **leaves}, call.replay.reference.candidate
    laid_out = replace(candidate, arguments=with_leaves(candidate.arguments, every))
    reference = replace(call.replay.reference, leaves=every, candidate=laid_out, cached=None)
    if call.backward:  # the graph of the reference has given its gradients
        reference = replace(reference, run=reference.again(reference.leaves, reference.way, reference.wanted))
    replay = replayed(reference, call.source)
    if incoming is None:
        judged = judging.of(call.case, replay)
    else:
        sides = nearest_structure(gradient_sides(replace(replay, incoming=incoming)))
        judged = judging.judged(call.case, PairedOutputs.of(sides))
    return next((output for output in judged.outputs if output.verdict == "error"), None)


def _layouts(floats: Leaves) -> Iterator[tuple[str, Leaves]]:
    if any(leaf.strides is not None or leaf.offset for leaf in floats.values()):
        yield "contiguous", {name: replace(leaf, strides=None, offset=0) for name, leaf in floats.items()}
    transposed = {}
    for name, leaf in floats.items():
        if leaf.array.ndim > 1:
            # The last two dimensions lie in the other order.
            *outer, one, two = leaf.array.shape
            *rest, second, first = contiguous_strides((*outer, two, one))
            transposed[name] = replace(leaf, strides=(*rest, first, second))
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
        yield (
            "expanded",
            {
                name: np.broadcast_to(array.reshape(-1)[:1], array.shape) if array.size > 1 else array
                for name, array in arrays.items()
            },
        )


class Stream(Relation):
    """Accelerators alone have streams."""

    name = "stream"

    def unfit(self, call: Call) -> str:
        has_streams = not call.backward and call.framework.side_stream(call.engines.device) is not None
        return "" if has_streams else "the device has no streams"

    def find(self, call: Call) -> Found:
        """The results are read on a stream of their own, before the device's other stream has done what it has to do:
        it gets more where that was done too early to tell."""
        for busy in _BUSY:
            context = call.framework.side_stream(call.engines.device, busy)
            assert context is not None
            outputs = list(call.base.values())
            unwritten = partial(call.framework.unwritten, call.engines.device, outputs, math.nan)
            with context as still_busy:
                apart = next(call.apart(kept(call.results(inside=unwritten))), None)
                told = still_busy()
            # A kernel that gives other bits each time shows that on its own stream as well.
            if apart is not None and next(call.apart(call.results()), None) is None:
                return Found(f"read on a stream of its own, {apart.description}", apart, 3)
            if apart is not None or told:
                return Found(runs=2)
        left_out(f"a stream that works for {_BUSY[-1]} ms had done so before the results were read")
