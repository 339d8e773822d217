"""Steps of optimizers, written to their state in place."""

from __future__ import annotations

import math

import torch
from torch import Tensor

Updated = tuple[Tensor, Tensor, Tensor]


def adam(
    parameter: Tensor,
    first: Tensor,
    second: Tensor,
    gradient: Tensor,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    beta1_power: float,
    beta2_power: float,
    nesterov: bool = False,
) -> Updated:
    """A step of Adam (Kingma and Ba 2015, arXiv:1412.6980, in the order at the end of its section 2: eps is added to
    the root of the second moment before its bias is corrected), with Nesterov's momentum (Dozat 2016) or without.

    parameter, its first and second moment, and gradient: of one shape. beta1_power, beta2_power: beta1 and beta2 to
    the power of this step. The new values are written to the first three, which are returned.
    """
    moment = first + (1 - beta1) * (gradient - first)
    squares = second + (1 - beta2) * (gradient * gradient - second)
    rate = lr * math.sqrt(1 - beta2_power) / (1 - beta1_power)
    step = moment * beta1 + (1 - beta1) * gradient if nesterov else moment
    return _written(parameter, first, second, parameter - rate * step / (eps + squares.sqrt()), moment, squares)


def adamw(
    parameter: Tensor,
    first: Tensor,
    second: Tensor,
    gradient: Tensor,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    beta1_power: float,
    beta2_power: float,
    largest: Tensor | None = None,
    maximize: bool = False,
) -> Updated:
    """A step of Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv:1711.05101).

    parameter, its first and second moment, and gradient: of one shape. beta1_power, beta2_power: beta1 and beta2 to
    the power of the step before. largest: the largest second moment so far, for the variant of AMSGrad, which divides
    by the larger one; it is left as it is. maximize: the gradient's sign is turned. The new values are written to the
    first three, which are returned.
    """
    gradient = -gradient if maximize else gradient
    moment = beta1 * first + (1 - beta1) * gradient
    squares = beta2 * second + (1 - beta2) * gradient * gradient
    divisor = squares if largest is None else torch.maximum(largest, squares)
    root = torch.sqrt(divisor / (1 - beta2_power * beta2)) + eps
    decayed = parameter * (1 - lr * weight_decay)
    updated = decayed - lr * moment / (1 - beta1_power * beta1) / root
    return _written(parameter, first, second, updated, moment, squares)


def _written(parameter: Tensor, first: Tensor, second: Tensor, *values: Tensor) -> Updated:
    with torch.no_grad():
        for target, value in zip((parameter, first, second), values, strict=True):
            target.copy_(value)
    return parameter, first, second
