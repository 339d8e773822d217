"""Compilers that break calls, each in the way of a real one, and one that fuses as it may. Each rewrites the graph that
dynamo gives it, or what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from tests.support.gradients import with_scaled_gradient

Graph = torch.fx.GraphModule
Call = Callable[..., Any]


def compiling(backend: Callable[[Graph, Sequence[Any]], Call]) -> Callable[[Call], Call]:
    """What registry.compilers takes, of a backend."""
    return lambda function: torch.compile(function, backend=backend, fullgraph=True, dynamic=False)


def _replacing(targets: Sequence[Any], other: Callable[[Any], Call]) -> Callable[[Graph, Sequence[Any]], Call]:
    """A backend that puts another function in the place of some."""

    def backend(graph: Graph, inputs: Sequence[Any]) -> Call:
        for node in graph.graph.nodes:
            if node.target in targets:
                node.target = other(node.target)
        graph.recompile()
        return graph.forward

    return backend


def _on_results(change: Callable[[list[Any]], Any]) -> Callable[[Graph, Sequence[Any]], Call]:
    """A backend that changes what a graph returns."""

    def backend(graph: Graph, inputs: Sequence[Any]) -> Call:
        return lambda *given: change(list(graph(*given)))

    return backend


def _without_bias(_: Any) -> Call:
    return lambda x, weight, bias=None: F.linear(x, weight)


def _wrong_eps(_: Any) -> Call:
    return lambda x, shape, weight=None, bias=None, eps=1e-5: F.layer_norm(x, shape, weight, bias, eps=1e-2)


def _in_half(_: Any) -> Call:
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float16)
        for place in range(a.shape[1]):
            total += (a[:, place, None] * b[None, place]).half()
        return total.to(a.dtype)

    return product


def _lost_writes(graph: Graph, inputs: Sequence[Any]) -> Call:
    return lambda *given: graph(*(value.clone() if isinstance(value, torch.Tensor) else value for value in given))


def _stale(graph: Graph, inputs: Sequence[Any]) -> Call:
    """As a recorded CUDA graph whose inputs nobody copies in."""
    first: list[Any] = []

    def call(*given: Any) -> Any:
        if not first:
            first.extend(value.clone() if isinstance(value, torch.Tensor) else value for value in given)
        return graph(*first)

    return call


def _fused_silu(_: Any) -> Call:
    """One kernel for several: float32 stays between its steps."""
    return lambda x, inplace=False: (x.float() * torch.sigmoid(x.float())).to(x.dtype)


BROKEN: dict[str, Callable[[Call], Call]] = {
    "dropped-bias": compiling(_replacing([F.linear], _without_bias)),
    "wrong-eps": compiling(_replacing([F.layer_norm], _wrong_eps)),
    "half-sums": compiling(_replacing([torch.matmul], _in_half)),
    "lost-writes": compiling(_lost_writes),
    "swapped": compiling(_on_results(lambda found: found[::-1])),
    "wrong-gradient": compiling(_on_results(lambda found: [with_scaled_gradient(each, 1.05) for each in found])),
    "stale": compiling(_stale),
}
FUSING = compiling(_replacing([F.silu], _fused_silu))
