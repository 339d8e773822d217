"""One call made again and again, whatever framework it is of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pytest_probe.frameworks.base import Bound, Repeated
from pytest_probe.model.arguments import map_tree
from pytest_probe.model.run import MeasuredCall

if TYPE_CHECKING:
    from pytest_probe.frameworks.python.calls import BoundTensors, PythonCalls

Ready = Sequence[Callable[[], object]]


@contextmanager
def repeated(calls: PythonCalls, call: MeasuredCall) -> Iterator[Repeated]:
    """See Measuring.repeated."""
    arguments, way, wanted = call.arguments, call.way, call.wanted
    bounds = [calls.bind(arguments.args, arguments.kwargs, way, wanted) for _ in range(call.sets)]
    if call.incoming is None:
        with calls.surroundings(way, calls.records(wanted)):
            yield Forward(call, bounds, calls.fresh)
        return
    seed = calls.seeding(call)
    with calls.surroundings(way, grad=True):
        graphs = [_graph(calls, call, bound, seed) for bound in bounds]
    with calls.surroundings(replace(way, autocast=""), grad=False):
        yield Backward(graphs, calls.backward_again)


def _graph(
    calls: PythonCalls, call: MeasuredCall, bound: BoundTensors, seed: Callable[[str, Any], Any]
) -> tuple[list[Any], ...]:
    """Outputs, arguments and incoming gradients of one forward run."""
    assert call.way.device is not None
    outputs = dict(calls.results.flattened(call.way.device.call(call.function, bound.args, bound.kwargs)))
    found = {name: outputs[name] for name in call.incoming or ()}
    return list(found.values()), list(bound.leaves.values()), [seed(name, output) for name, output in found.items()]


def nothing(*args: object, **kwargs: object) -> None:
    """A call that takes what calling alone takes."""


class Forward:
    """The calls of a forward. fresh gives a copy of a tensor, and anything else as it is."""

    def __init__(self, call: MeasuredCall, bounds: Collection[Bound], fresh: Callable[[Any], Any]) -> None:
        assert call.way.device is not None
        self._function, self._make, self._writes = call.function, call.way.device.call, call.writes
        self._bounds = cycle(bounds)
        self._copied = fresh

    def ready(self, number: int) -> Ready:
        return [self._on(self._function, bound) for bound in islice(self._bounds, number)]

    def empty(self, number: int) -> Ready:
        return [partial(self._make, nothing, bound.args, bound.kwargs) for bound in islice(self._bounds, number)]

    def _on(self, function: Callable[..., Any], bound: Bound) -> Callable[[], object]:
        if not self._writes:
            return partial(self._make, function, bound.args, bound.kwargs)
        args = map_tree(bound.args, "input", self._fresh)
        return partial(self._make, function, args, map_tree(bound.kwargs, "kwargs", self._fresh))

    def _fresh(self, value: Any, name: str) -> Any:
        return self._copied(value) if name in self._writes else value


class Backward:
    """The calls for the gradients of forward runs, whose graphs stay: each has its outputs, arguments and incoming
    gradients, which gradients takes."""

    def __init__(self, graphs: Collection[tuple[Any, ...]], gradients: Callable[..., object]) -> None:
        self._graphs = cycle(graphs)
        self._gradients = gradients

    def ready(self, number: int) -> Ready:
        return [partial(self._gradients, *graph) for graph in islice(self._graphs, number)]

    def empty(self, number: int) -> Ready:
        return [partial(nothing, *graph) for graph in islice(self._graphs, number)]
