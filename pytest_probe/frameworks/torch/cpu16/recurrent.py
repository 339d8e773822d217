"""PyTorch: LSTM layers in bfloat16 as oneDNN computes them on torch's own CPU, bit for bit.

Inside a step all is float32. What is rounded: states on their way to the next step, the gates and the cell that the
backward finds, and the gates' gradients, which all products of the backward take. Shapes: x is [T, N, I], states are
[N, H], weights [4 H, I] and [4 H, H], the gates along the first dimension in the order input, forget, cell, output.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from pytest_probe.frameworks.torch.cpu16.sequential import rounded_once

narrowed = functools.partial(rounded_once, dtype=torch.bfloat16)


class Layer(torch.autograd.Function):
    """One layer in one direction. Its results, and their gradients, are not rounded yet; its arguments are, here."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[torch.Tensor, ...]:
        *tensors, backwards = args
        # The mode that rounds steps must not see these, which round where oneDNN does.
        with _disable_current_modes():
            x, hidden, cell, of_x, of_hidden, bias = (narrowed(tensor) for tensor in tensors)
            outputs, ctx.steps, ctx.x, ctx.weights = torch.zeros_like(x[..., :1] * hidden), [], x, (of_x, of_hidden)
            for step in reversed(range(len(x))) if backwards else range(len(x)):
                before = hidden, cell
                enters, stays, new, leaves = (x[step] @ of_x.T + hidden @ of_hidden.T + bias).chunk(4, -1)
                gates = enters.sigmoid(), stays.sigmoid(), new.tanh(), leaves.sigmoid()
                last = gates[1] * cell + gates[0] * gates[2]
                outputs[step] = gates[3] * last.tanh()
                hidden, cell = narrowed(outputs[step]), narrowed(last)
                ctx.steps.append((step, *before, cell, *map(narrowed, gates)))
        return outputs.clone(), outputs[step].clone(), last.clone()

    @staticmethod
    def backward(ctx: Any, *incoming: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        with _disable_current_modes():
            from_outputs, of_hidden, of_cell = map(narrowed, incoming)
            grads = [torch.zeros_like(tensor) for tensor in (ctx.x, *ctx.weights, ctx.weights[0][:, 0])]
            for step, hidden, cell, after, enters, stays, new, leaves in reversed(ctx.steps):
                arriving, squashed = from_outputs[step] + of_hidden, after.tanh()
                of_cell = of_cell + (1 - squashed.square()) * leaves * arriving
                slopes = (
                    new * of_cell * enters * (1 - enters),
                    cell * of_cell * stays * (1 - stays),
                    enters * of_cell * (1 - new.square()),
                    squashed * arriving * leaves * (1 - leaves),
                )
                gates = narrowed(torch.cat(slopes, -1))
                of_hidden, of_cell = gates @ ctx.weights[1], of_cell * stays
                grads[0][step] = gates @ ctx.weights[0]
                for total, part in zip(grads[1:], (gates.T @ ctx.x[step], gates.T @ hidden, gates.sum(0)), strict=True):
                    total += part
        of_x, *of_weights = (grad.clone() for grad in grads)
        return of_x, of_hidden.clone(), of_cell.clone(), *of_weights, None


def lstm(
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    biased: bool,
    layers: int,
    dropout: float,
    train: bool,
    both_ways: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    """torch.lstm, without dropout."""
    x = x.transpose(0, 1) if batch_first else x
    ways, each, ends = 1 + both_ways, 4 if biased else 2, []
    for layer in range(layers):
        outputs = []
        for place in range(layer * ways, (layer + 1) * ways):
            of_x, of_hidden, *biases = weights[place * each : (place + 1) * each]
            bias = biases[0] + biases[1] if biases else of_x.new_zeros(len(of_x))
            state = states[0][place], states[1][place]
            output, *end = Layer.apply(x, *state, of_x, of_hidden, bias, place % ways == 1)  # type: ignore[no-untyped-call]
            outputs.append(output)
            ends.append(end)
        x = torch.cat(outputs, -1)
    return x.transpose(0, 1) if batch_first else x, *(torch.stack(end) for end in zip(*ends, strict=True))


class LayersMode(TorchFunctionMode):
    """Gives bfloat16 LSTMs these layers, where torch's CPU does."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        supported = dtype is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        self.known = supported and torch._C._get_mkldnn_enabled()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.known and func is torch.lstm and not kwargs and _is_plain(*args):
            return lstm(*args)
        return func(*args, **(kwargs or {}))


def _is_plain(x: torch.Tensor, states: Any, *rest: Any) -> bool:
    """A whole batch, without dropout, whose outputs are not projected."""
    if isinstance(states, torch.Tensor) or len(rest) != 7 or x.numel() == 0:
        return False
    return bool(rest[3] == 0.0) and states[0].shape == states[1].shape
