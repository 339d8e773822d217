"""PaddlePaddle: one call made again and again, on tensors that stay on its device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np
import paddle

from pytest_probe.core.arguments import map_tree
from pytest_probe.core.run import MeasuredCall
from pytest_probe.frameworks.base import Repeated
from pytest_probe.frameworks.paddle.calls import PaddleBound, bind_function, seed, surroundings
from pytest_probe.frameworks.paddle.results import RESULTS
from pytest_probe.frameworks.repeated import nothing

Ready = Sequence[Callable[[], object]]


class Forward:
    """The calls of a forward."""

    def __init__(self, call: MeasuredCall, bounds: Sequence[PaddleBound]) -> None:
        assert call.way.device is not None
        self._function, self._make, self._writes = call.function, call.way.device.call, call.writes
        self._bounds = cycle(bounds)

    def ready(self, number: int) -> Ready:
        return [self._on(self._function, bound) for bound in islice(self._bounds, number)]

    def empty(self, number: int) -> Ready:
        return [partial(self._make, nothing, bound.args, bound.kwargs) for bound in islice(self._bounds, number)]

    def _on(self, function: Callable[..., Any], bound: PaddleBound) -> Callable[[], object]:
        if not self._writes:
            return partial(self._make, function, bound.args, bound.kwargs)
        args = map_tree(bound.args, "input", self._fresh)
        return partial(self._make, function, args, map_tree(bound.kwargs, "kwargs", self._fresh))

    def _fresh(self, value: Any, name: str) -> Any:
        return value.clone() if name in self._writes and isinstance(value, paddle.Tensor) else value


class Backward:
    """The calls for the gradients of one forward run, whose graph stays."""

    def __init__(self, graphs: Sequence[tuple[Any, ...]]) -> None:
        self._graphs = cycle(graphs)

    def ready(self, number: int) -> Ready:
        return [partial(_gradients, *graph) for graph in islice(self._graphs, number)]

    def empty(self, number: int) -> Ready:
        return [partial(nothing, *graph) for graph in islice(self._graphs, number)]


def _gradients(outputs: list[Any], leaves: list[Any], incoming: list[Any]) -> object:
    return paddle.grad(outputs, leaves, incoming, retain_graph=True, allow_unused=True)


@contextmanager
def repeated(call: MeasuredCall) -> Iterator[Repeated]:
    """See Framework.repeated."""
    arguments, way, wanted = call.arguments, call.way, call.wanted
    bounds = [bind_function(arguments.args, arguments.kwargs, way, wanted) for _ in range(call.sets)]
    if call.incoming is None:
        with surroundings(way, wanted is not None):
            yield Forward(call, bounds)
        return
    with surroundings(way, grad=True):
        graphs = [_graph(call, bound, call.incoming) for bound in bounds]
    with surroundings(replace(way, autocast=""), grad=False):
        yield Backward(graphs)


def _graph(call: MeasuredCall, bound: PaddleBound, incoming: Any) -> tuple[Any, ...]:
    """Outputs, arguments and incoming gradients of one forward run."""
    assert call.way.device is not None
    outputs = dict(RESULTS.flattened(call.way.device.call(call.function, bound.args, bound.kwargs)))
    seeds = [seed(np.asarray(array), outputs[name], call.way) for name, array in incoming.items()]
    return [outputs[name] for name in incoming], list(bound.leaves.values()), seeds
