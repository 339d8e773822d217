"""PyTorch: one call made again and again, on tensors that stay on its device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from msgspec.structs import replace

from pytest_probe.frameworks.base import Repeated
from pytest_probe.frameworks.python.repeated import Backward, Forward
from pytest_probe.frameworks.torch.arrays import copied, to_tensor
from pytest_probe.frameworks.torch.calls import TorchBound, bind_function, surroundings
from pytest_probe.frameworks.torch.results import RESULTS
from pytest_probe.model.run import MeasuredCall


def _fresh(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return copied(value, None if value.is_contiguous() else value.stride(), int(value.storage_offset()))


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
            yield Forward(call, bounds, _fresh)
        return
    incoming = {name: way.device.put(to_tensor(array)) for name, array in call.incoming.items()}
    with surroundings(way, None, grad=True):
        graphs = [_graph(call, bound, incoming) for bound in bounds]
    with surroundings(replace(way, autocast=""), None, grad=False):
        yield Backward(graphs, _gradients)


def _graph(call: MeasuredCall, bound: TorchBound, incoming: dict[str, torch.Tensor]) -> tuple[Any, ...]:
    """Outputs, arguments and incoming gradients of one forward run."""
    assert call.way.device is not None
    outputs = dict(RESULTS.flattened(call.way.device.call(call.function, bound.args, bound.kwargs)))
    seeds = [seed.to(outputs[name].dtype) for name, seed in incoming.items()]
    return [outputs[name] for name in incoming], list(bound.leaves.values()), seeds
