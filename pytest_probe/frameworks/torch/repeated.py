"""PyTorch: one call made again and again, on tensors that stay on its device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from typing import Any

import torch

from pytest_probe.core.arguments import map_tree
from pytest_probe.core.run import MeasuredCall
from pytest_probe.frameworks.base import Repeated
from pytest_probe.frameworks.repeated import nothing
from pytest_probe.frameworks.torch.arrays import copied, to_tensor
from pytest_probe.frameworks.torch.calls import TorchBound, bind_function, surroundings
from pytest_probe.frameworks.torch.results import RESULTS

Ready = Sequence[Callable[[], object]]


class Forward:
    """The calls of a forward."""

    def __init__(self, call: MeasuredCall, bounds: Sequence[TorchBound]) -> None:
        assert call.way.device is not None
        self._function, self._make, self._writes = call.function, call.way.device.call, call.writes
        self._bounds = cycle(bounds)

    def ready(self, number: int) -> Ready:
        return [self._on(self._function, bound) for bound in islice(self._bounds, number)]

    def empty(self, number: int) -> Ready:
        return [partial(self._make, nothing, bound.args, bound.kwargs) for bound in islice(self._bounds, number)]

    def _on(self, function: Callable[..., Any], bound: TorchBound) -> Callable[[], object]:
        if not self._writes:
            return partial(self._make, function, bound.args, bound.kwargs)
        args = map_tree(bound.args, "input", self._fresh)
        return partial(self._make, function, args, map_tree(bound.kwargs, "kwargs", self._fresh))

    def _fresh(self, value: Any, name: str) -> Any:
        if name not in self._writes or not isinstance(value, torch.Tensor):
            return value
        return copied(value, None if value.is_contiguous() else value.stride(), int(value.storage_offset()))


class Backward:
    """The calls for the gradients of one forward run, whose graph stays."""

    def __init__(self, graphs: Sequence[tuple[Any, ...]]) -> None:
        self._graphs = cycle(graphs)

    def ready(self, number: int) -> Ready:
        return [partial(_gradients, *graph) for graph in islice(self._graphs, number)]

    def empty(self, number: int) -> Ready:
        return [partial(nothing, *graph) for graph in islice(self._graphs, number)]


def _gradients(outputs: list[torch.Tensor], leaves: list[torch.Tensor], incoming: list[torch.Tensor]) -> object:
    return torch.autograd.grad(outputs, leaves, incoming, retain_graph=True, allow_unused=True)


@contextmanager
def repeated(call: MeasuredCall) -> Iterator[Repeated]:
    """See Framework.repeated."""
    arguments, way, wanted = call.arguments, call.way, call.wanted
    assert way.device is not None
    bounds = [bind_function(arguments.args, arguments.kwargs, way, wanted) for _ in range(call.sets)]
    if call.incoming is None:
        with surroundings(way, None, wanted is not None and wanted.grad):
            yield Forward(call, bounds)
        return
    incoming = {name: way.device.put(to_tensor(array)) for name, array in call.incoming.items()}
    with surroundings(way, None, grad=True):
        graphs = [_graph(call, bound, incoming) for bound in bounds]
    with surroundings(replace(way, autocast=""), None, grad=False):
        yield Backward(graphs)


def _graph(call: MeasuredCall, bound: TorchBound, incoming: dict[str, torch.Tensor]) -> tuple[Any, ...]:
    """Outputs, arguments and incoming gradients of one forward run."""
    assert call.way.device is not None
    outputs = dict(RESULTS.flattened(call.way.device.call(call.function, bound.args, bound.kwargs)))
    seeds = [seed.to(outputs[name].dtype) for name, seed in incoming.items()]
    return [outputs[name] for name in incoming], list(bound.leaves.values()), seeds
