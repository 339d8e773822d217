"""PaddlePaddle: one call made again and again, on tensors that stay on its device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle
from msgspec.structs import replace

from pytest_probe.frameworks.base import Repeated
from pytest_probe.frameworks.paddle.calls import PaddleBound, bind_function, seed, surroundings
from pytest_probe.frameworks.paddle.results import RESULTS
from pytest_probe.frameworks.python.repeated import Backward, Forward
from pytest_probe.model.run import MeasuredCall


def _fresh(value: Any) -> Any:
    return value.clone() if isinstance(value, paddle.Tensor) else value


def _gradients(outputs: list[Any], leaves: list[Any], incoming: list[Any]) -> object:
    return paddle.grad(outputs, leaves, incoming, retain_graph=True, allow_unused=True)


@contextmanager
def repeated(call: MeasuredCall) -> Iterator[Repeated]:
    """See Framework.repeated."""
    arguments, way, wanted = call.arguments, call.way, call.wanted
    bounds = [bind_function(arguments.args, arguments.kwargs, way, wanted) for _ in range(call.sets)]
    if call.incoming is None:
        with surroundings(way, wanted is not None):
            yield Forward(call, bounds, _fresh)
        return
    with surroundings(way, grad=True):
        graphs = [_graph(call, bound, call.incoming) for bound in bounds]
    with surroundings(replace(way, autocast=""), grad=False):
        yield Backward(graphs, _gradients)


def _graph(call: MeasuredCall, bound: PaddleBound, incoming: Any) -> tuple[Any, ...]:
    """Outputs, arguments and incoming gradients of one forward run."""
    assert call.way.device is not None
    outputs = dict(RESULTS.flattened(call.way.device.call(call.function, bound.args, bound.kwargs)))
    seeds = [seed(np.asarray(array), outputs[name], call.way) for name, array in incoming.items()]
    return [outputs[name] for name in incoming], list(bound.leaves.values()), seeds
