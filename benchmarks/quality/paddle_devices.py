"""The devices of Paddle that verdicts are tried on: its CPU, the same under another name, 16 bit that is emulated, and
operators that compute something else."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias
from unittest import mock

import paddle

from benchmarks.quality.kinds import Kind
from pytest_probe import frameworks

Tensor: TypeAlias = Any
Operator: TypeAlias = Callable[..., Any]
_ops: Any = paddle._C_ops
PIECES = 8
# As much as all elements are moved by elsewhere (benchmarks/mutations.py).
VISIBLE = 1e-3
# What is wrong with a division, a root or a logarithm that is kept from zero.
EPSILON = 100.0


def without_last(tensor: Tensor, dim: int) -> Tensor:
    """Zero in the place of the last along a dimension."""
    mask = paddle.ones([tensor.shape[dim]], tensor.dtype)
    mask[-1] = 0
    return tensor * mask.reshape([-1] + [1] * (tensor.ndim - 1 - dim % tensor.ndim))


def dropped_factor(operator: Operator, x: Tensor, *more: Any, **named: Any) -> Any:
    """A product without its last term."""
    return operator(without_last(x, -2 if len(more) > 1 and more[1] is True and x.ndim > 1 else -1), *more, **named)


def dropped_addend(operator: Operator, x: Tensor, axis: Any = None, *more: Any, **named: Any) -> Any:
    """A sum or a mean without its last term."""
    dims = axis if isinstance(axis, (list, tuple)) else [axis]
    return operator(without_last(x, dims[-1]) if dims and dims[-1] is not None and x.ndim else x, axis, *more, **named)


def dropped_tap(operator: Operator, x: Tensor, weight: Tensor, *more: Any, **named: Any) -> Any:
    """A convolution without the last column of its kernel."""
    return operator(x, without_last(weight, -1), *more, **named)


def in_pieces(operator: Operator, x: Tensor, y: Tensor, *more: Any, **named: Any) -> Any:
    """A product whose partial sums are bfloat16."""
    if any(more) or named or y.ndim < 2:
        return operator(x, y, *more, **named)
    rounded = functools.partial(frameworks.load("paddle").rounded, dtype="bfloat16")
    count = min(PIECES, x.shape[-1])
    total = None
    for left, right in zip(x.tensor_split(count, -1), y.tensor_split(count, -2), strict=True):
        term = rounded(operator(left, right, *more))
        total = term if total is None else rounded(total + term)
    return total


def rounded_terms(operator: Operator, x: Tensor, *more: Any, **named: Any) -> Any:
    """A sum or a mean of terms that were rounded to bfloat16."""
    if x.dtype == paddle.float32:
        x = frameworks.load("paddle").rounded(x, "bfloat16")
    return operator(x, *more, **named)


def larger_epsilon(place: int) -> Operator:
    """A norm with another epsilon; place is where it stands."""

    def function(operator: Operator, *args: Any, **named: Any) -> Any:
        changed = list(args)
        changed[place] *= EPSILON
        return operator(*changed, **named)

    return function


def beside_zero(operator: Operator, x: Tensor, *more: Any, **named: Any) -> Any:
    """A function that is kept from zero, without being asked."""
    return operator(x + 1e-2, *more, **named)


def other_gelu(operator: Operator, x: Tensor, approximate: bool = False) -> Any:
    return operator(x, not approximate)


def unshifted(operator: Operator, x: Tensor, axis: int = -1, **named: Any) -> Any:
    """A softmax whose sum is kept from zero."""
    grown = _ops.exp(x - x.max(axis, keepdim=True).detach())
    return grown / (grown.sum(axis, keepdim=True) + 1e-2)


PRODUCTS = ("matmul", "bmm", "mv", "dot", "linear")
SUMS = ("sum", "mean")
CONVOLUTIONS = ("conv2d", "conv3d", "depthwise_conv2d", "conv2d_transpose", "conv3d_transpose")
ROOTS = ("log", "log2", "log10", "sqrt", "rsqrt", "reciprocal")
# By what is wrong: operators, and what they do in their place.
FAULTS: Mapping[str, Mapping[str, Operator]] = {
    "dropped term": {
        **dict.fromkeys(PRODUCTS, dropped_factor),
        **dict.fromkeys(SUMS, dropped_addend),
        **dict.fromkeys(CONVOLUTIONS, dropped_tap),
    },
    "lower-precision sum": {
        **dict.fromkeys(("matmul", "bmm"), in_pieces),
        **dict.fromkeys(SUMS, rounded_terms),
    },
    "wrong eps": {
        "layer_norm": larger_epsilon(3),
        "group_norm": larger_epsilon(3),
        "instance_norm": larger_epsilon(3),
        "rms_norm": larger_epsilon(3),
        "batch_norm": larger_epsilon(7),
        **dict.fromkeys(ROOTS, beside_zero),
    },
    "wrong formula": {"gelu": other_gelu, "softmax": unshifted},
}


@contextlib.contextmanager
def replaced(operators: Mapping[str, Operator]) -> Iterator[None]:
    """Calls in here use these operators; what they call themselves is Paddle's own."""
    own = {name: getattr(_ops, name) for name in operators}
    inside = False

    def call(name: str, /, *args: Any, **named: Any) -> Any:
        nonlocal inside
        if inside:
            return own[name](*args, **named)
        inside = True
        try:
            return operators[name](own[name], *args, **named)
        finally:
            inside = False

    with contextlib.ExitStack() as stack:
        for name in own:
            stack.enter_context(mock.patch.object(_ops, name, functools.partial(call, name)))
        yield


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("paddle", (), ("float32", "float64"), "auto", framework="paddle"),
        Kind("another name", (contextlib.nullcontext,), ("float32",), "auto", framework="paddle"),
        Kind("emulated", (), ("bfloat16", "float16"), "auto", framework="paddle", emulate=True),
        *(
            Kind(
                name,
                (functools.partial(replaced, operators),),
                ("float32",),
                faulty=True,
                framework="paddle",
                visible=VISIBLE,
            )
            for name, operators in FAULTS.items()
        ),
    )
}
