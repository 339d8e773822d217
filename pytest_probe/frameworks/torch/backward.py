"""PyTorch: the backward of a graph, without what torch imports to compare shapes.

`torch.autograd.grad` imports sympy for that. The engine's own entry is called if it has the signature that is known.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

Found = tuple[torch.Tensor | None, ...]

# torch's own entry to its engine, which torch.autograd.grad calls once it has compared the incoming gradients with
# their outputs. It compares sizes as symbols, and imports sympy for that: 0.2 s and 34 MiB in each process.
ENTRY = "_engine_run_backward"
PARAMETERS = ("t_outputs", "args", "kwargs")
PLAIN = (torch.Tensor, torch.nn.Parameter)


def backward(
    outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], incoming: Sequence[torch.Tensor]
) -> Found:
    """What torch.autograd.grad gives for outputs and their incoming gradients; None for a leaf that none hangs on. The
    graph is used up."""
    entry = _entry()
    if entry is None or not leaves or not _fit(outputs, incoming):
        return torch.autograd.grad(outputs, leaves, incoming, allow_unused=True, retain_graph=False)
    found: Found = entry(tuple(outputs), tuple(incoming), False, False, tuple(leaves), True, accumulate_grad=False)
    return found


def _entry() -> Callable[..., Any] | None:
    """torch's entry to its engine; None where it is not the one that is known."""
    entry: Callable[..., Any] | None = getattr(torch.autograd.graph, ENTRY, None)
    return entry if entry is not None and _is_known(entry) else None


@functools.cache
def _is_known(entry: Callable[..., Any]) -> bool:
    try:
        return tuple(inspect.signature(entry).parameters) == PARAMETERS
    except (TypeError, ValueError):
        return False


def _fit(outputs: Sequence[torch.Tensor], incoming: Sequence[torch.Tensor]) -> bool:
    """Is there nothing that torch.autograd.grad would do more, or refuse? The engine would add up a gradient that is
    larger than its output. A mode of the user's sees the call."""
    if torch._C._len_torch_function_stack():
        return False
    return all(
        type(output) in PLAIN
        and type(gradient) in PLAIN
        and not output.is_nested
        and output.shape == gradient.shape
        and output.is_complex() == gradient.is_complex()
        for output, gradient in zip(outputs, incoming, strict=True)
    )
