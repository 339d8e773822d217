"""PaddlePaddle: operators that lose digits inside, written out as the steps that their kernels make."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import paddle

from pytest_probe.frameworks.paddle.arrays import Tensor
from pytest_probe.numerics.dtypes import SMALLEST_FLOAT32

_ops: Any = paddle._C_ops


class _Step(Protocol):
    def __call__(self, tensor: Tensor, *, library: bool = False) -> Tensor:
        """The result of a step inside an operator, as the next step reads it."""


def _gelu(step: _Step, x: Tensor, approximate: bool = False) -> Tensor:
    if approximate:
        cube = step(step(x * step(x * x)) * 0.044715)
        inner = step(step(x + cube) * math.sqrt(2 / math.pi))
        return step(x * 0.5) * step(1 + step(_ops.tanh(inner), library=True))
    share = step(1 + step(_ops.erf(step(x * math.sqrt(0.5))), library=True))
    return step(x * 0.5) * share


def _less_one(step: _Step, x: Tensor) -> Tensor:
    """exp(x) - 1 of what is negative, in two steps."""
    return step(step(_ops.exp(_ops.minimum(x, paddle.zeros_like(x))), library=True) - 1)


def _selu(step: _Step, x: Tensor, scale: float, alpha: float) -> Tensor:
    grown = step(step(_ops.exp(_ops.minimum(x, paddle.zeros_like(x))), library=True) * alpha)
    return _ops.where(x > 0, x, step(grown - alpha)) * scale


def _softplus(step: _Step, x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    scaled = step(x * beta)
    grown = step(1 + step(_ops.exp(_ops.clip(scaled, -1e30, threshold)), library=True))
    return _ops.where(scaled > threshold, x, step(_ops.log(grown), library=True) / beta)


def _mish(step: _Step, x: Tensor, threshold: float = 20.0) -> Tensor:
    grown = step(_softplus(step, x.detach(), 1.0, threshold))
    share = step(_ops.tanh(grown), library=True)

    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        of_grown = step(1 - step(_ops.exp(-grown), library=True))
        slope = step(step(x.detach() * step(1 - step(share * share))) * of_grown)
        return gradient * step(slope + share)

    return _with_backward(step, x, x.detach() * share, backward)


def _logit(step: _Step, x: Tensor, eps: float = 0.0) -> Tensor:
    """What is cut to 1 - eps in float32 lies off the exact 1 - eps by up to 2^-25, which is much of eps."""
    low = np.float32(eps)
    inside = _ops.clip(x, float(low), float(1 - low)) if eps else x
    return _ops.log(step(inside / step(1 - inside)))


def _logsigmoid(step: _Step, x: Tensor) -> Tensor:
    largest = _ops.maximum(-x, paddle.zeros_like(x))
    both = step(_ops.exp(-largest), library=True) + step(_ops.exp(step(-x - largest)), library=True)
    return -largest - step(_ops.log(step(both)), library=True)


def _prod(step: _Step, x: Tensor, dims: Any, keepdim: bool, reduce_all: bool) -> Tensor:
    product = _ops.prod(x.detach(), dims, keepdim, reduce_all)

    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        """The product, as float32 has it, divided by each factor."""
        shape = [1] * x.ndim if rounded.size == 1 else _kept(x.shape, rounded.shape)
        return step(gradient.reshape(shape) * rounded.reshape(shape)) / x.detach()

    return _with_backward(step, x, product, backward)


def _kept(shape: Sequence[int], reduced: Sequence[int]) -> list[int]:
    """The shape of a reduced tensor with a 1 for each dimension that is gone."""
    if len(shape) == len(reduced):
        return list(reduced)
    left = list(reduced)
    return [left.pop(0) if left and left[0] == extent else 1 for extent in shape]


def _stanh(step: _Step, x: Tensor, inner: float = 0.67, outer: float = 1.7159) -> Tensor:
    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        share = step(_ops.tanh(step(x.detach() * inner)), library=True)
        return gradient * step(step(1 - step(share * share)) * (inner * outer))

    return _with_backward(step, x, _ops.stanh(x.detach(), inner, outer), backward)


def _sigmoid(step: _Step, x: Tensor) -> Tensor:
    share = step(1 / step(1 + step(_ops.exp(-x.detach()), library=True)))

    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        return gradient * step(share * step(1 - share))

    return _with_backward(step, x, _ops.sigmoid(x.detach()), backward)


def _i1e(step: _Step, x: Tensor) -> Tensor:
    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        share = step(_ops.sign(x.detach()) + step(1 / x.detach()))
        return gradient * (step(_ops.i0e(x.detach()), library=True) - step(rounded * share))

    return _with_backward(step, x, _ops.i1e(x.detach()), backward)


def _cumprod(step: _Step, x: Tensor, dim: int, exclusive: bool, reverse: bool) -> Tensor:
    """The gradient is made of the products as float32 has them, each a number or an overflow."""

    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        products = _ops.cumsum(gradient * rounded, dim, False, exclusive, not reverse)
        return step(products) / x.detach()

    return _with_backward(step, x, _ops.cumprod(x.detach(), dim, exclusive, reverse), backward)


def _elu(step: _Step, x: Tensor, alpha: float = 1.0) -> Tensor:
    below = _less_one(step, x.detach()) * alpha

    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        return gradient * _ops.where(x.detach() > 0, paddle.ones_like(gradient), step(rounded + alpha))

    return _with_backward(step, x, _ops.where(x.detach() > 0, x.detach(), below), backward)


def _with_backward(step: _Step, x: Tensor, result: Tensor, backward: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The result, whose gradient is made of the incoming one and of the result as a library of float32 has it."""
    return result if x.stop_gradient else _Written.apply(x, result, step(result, library=True), backward)


class _Written(paddle.autograd.PyLayer):  # type: ignore[misc]
    """See `_with_backward`."""

    @staticmethod
    def forward(context: Any, x: Tensor, result: Tensor, rounded: Tensor, formula: Any) -> Tensor:
        context.formula, context.rounded = formula, rounded
        return result.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return context.formula(gradient, context.rounded)


def _logcumsumexp(
    step: _Step, x: Tensor, axis: int, flatten: bool, exclusive: bool, reverse: bool, **out: Any
) -> Tensor:
    """Its gradient is summed up as a logarithm, whose roundoff is that of numbers of x's size."""
    result = _ops.logcumsumexp(x.detach(), axis, flatten, exclusive, reverse)

    def share(gradient: Tensor, rounded: Tensor) -> Tensor:
        """Of an incoming gradient of one sign."""
        logarithm = _ops.maximum(step(_ops.log(gradient), library=True), paddle.full_like(gradient, -1e30))
        terms = step(logarithm - rounded)
        total = step(_ops.logcumsumexp(terms, axis, flatten, exclusive, not reverse), library=True)
        return step(_ops.exp(step(total.reshape(x.shape) + x.detach())), library=True)

    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        zero = paddle.zeros_like(gradient)
        return share(_ops.maximum(gradient, zero), rounded) - share(_ops.maximum(-gradient, zero), rounded)

    return _with_backward(step, x, result, backward)


def _warpctc(step: _Step, logits: Tensor, *how: Any, **named: Any) -> Tensor:
    """Sums of logarithms up to the loss, which are rounded as numbers of that size, as a library gives them. What is
    less likely than the smallest number is as likely as that. The gradient has the exponentials of such sums."""
    exact = paddle.nn.functional.log_softmax(logits.detach())
    exact = _ops.maximum(exact, paddle.full_like(exact, math.log(SMALLEST_FLOAT32)))
    size = _ops.warpctc(exact, *how, **named).abs().reshape([1, -1, 1])
    moved = step(exact + size, library=True) - size
    if logits.stop_gradient:
        return _ops.warpctc(moved, *how, **named)
    moved.stop_gradient = False
    loss = _ops.warpctc(moved, *how, **named)
    (slope,) = paddle.grad([loss], [moved], [paddle.ones_like(loss)])
    shares = paddle.nn.functional.softmax(moved.detach())
    off = step(size + paddle.zeros_like(shares), library=True) - size

    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        return gradient.reshape([1, -1, 1]) * (slope + (slope - shares) * _ops.expm1(off))

    return _with_backward(step, logits, loss.detach(), backward)


def _group_norm(
    step: _Step, x: Tensor, scale: Tensor | None, bias: Tensor | None, eps: float, groups: int, layout: str
) -> Tensor:
    """Its gradient computes the normalised values back from the result, which a large bias has rounded."""
    result = _ops.group_norm(x, scale, bias, eps, groups, layout)
    if scale is None or bias is None or layout.endswith("C"):
        return result
    exact, size = result.detach(), scale.detach().reshape([1, -1] + [1] * (x.ndim - 2))
    off = (step(exact) - exact) / (size + (size == 0).cast(size.dtype))
    grouped = x.detach().reshape([x.shape[0], groups, -1])
    deviation = _ops.sqrt(grouped.var(-1, unbiased=False, keepdim=True) + eps)
    moved = x + (off.reshape(grouped.shape) * deviation).reshape(x.shape)
    again = _ops.group_norm(moved, scale, bias, eps, groups, layout)
    return again + (exact - again).detach()


# By operator: the steps of its kernel.
DECOMPOSED: Mapping[str, Callable[..., Any]] = {
    "cosh": lambda step, x: _with_backward(
        step, x, _ops.cosh(x.detach()), lambda gradient, rounded: gradient * step(_ops.sinh(x.detach()), library=True)
    ),
    "cumprod": _cumprod,
    # By the quantile of a normal distribution, at a probability that is rounded.
    "erfinv": lambda step, x: _ops.erfinv(step((x + 1) / 2) * 2 - 1),
    "exp": lambda step, x: _with_backward(step, x, _ops.exp(x.detach()), lambda gradient, rounded: gradient * rounded),
    "expm1": lambda step, x: _with_backward(
        step, x, _ops.expm1(x.detach()), lambda gradient, rounded: step(gradient * rounded) + gradient
    ),
    "i0e": lambda step, x: _with_backward(
        step,
        x,
        _ops.i0e(x.detach()),
        lambda gradient, rounded: (
            gradient * (step(_ops.i1e(x.detach()), library=True) - _ops.sign(x.detach()) * rounded)
        ),
    ),
    "i1e": _i1e,
    "logcumsumexp": _logcumsumexp,
    "prod": _prod,
    "sigmoid": _sigmoid,
    "sinh": lambda step, x: _with_backward(
        step, x, _ops.sinh(x.detach()), lambda gradient, rounded: gradient * step(_ops.cosh(x.detach()), library=True)
    ),
    "stanh": _stanh,
    "tanh": lambda step, x: _with_backward(
        step, x, _ops.tanh(x.detach()), lambda gradient, rounded: gradient * step(1 - step(rounded * rounded))
    ),
    "gelu": _gelu,
    "group_norm": _group_norm,
    "tanh_shrink": lambda step, x: x - step(_ops.tanh(x), library=True),
    "warpctc": _warpctc,
    "elu": _elu,
    "celu": lambda step, x, alpha=1.0: _ops.where(x > 0, x, _less_one(step, step(x / alpha)) * alpha),
    "selu": _selu,
    "softplus": _softplus,
    "mish": _mish,
    "logit": _logit,
    "logsigmoid": _logsigmoid,
}
