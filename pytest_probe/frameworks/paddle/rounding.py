"""PaddlePaddle: run a call in float64 but round what passes from operator to operator, as healthy kernels of float32.

Paddle has no mode that sees operators, but its functions look them up in one module when they run, or have them by a
name in their own, and tensors theirs in one class: there they are replaced for the time of a run. Operators that lose
digits inside are written out as the steps that their kernels make.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from pytest_probe.core.run import Steps
from pytest_probe.frameworks.paddle.arrays import COMPLEX, Tensor, to_array, to_tensor
from pytest_probe.numerics.dtypes import SMALLEST_FLOAT32, ULP_FLOAT32

_ops: Any = paddle._C_ops
# Functions that no library rounds correctly.
LIBRARY = frozenset(
    "exp expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh sigmoid erf "
    "erfinv lgamma digamma pow elementwise_pow".split()
)
# Operators that only move values: rounding waits for the next that computes with them.
MOVES = frozenset(
    "assign cast concat stack pad pad3d index_select gather gather_nd flip tile roll where reshape transpose squeeze "
    "unsqueeze slice strided_slice split split_with_num unbind unstack expand expand_as flatten".split()
)
# Modules whose functions call operators, some by names of their own.
CALLING = ("paddle.tensor.", "paddle.nn.", "paddle.incubate.nn.", "paddle.linalg", "paddle.special", "paddle.fft")
# Those of tensors that are written in C, and so pass by the module.
METHODS = (
    "__add__",
    "__radd__",
    "__sub__",
    "__rsub__",
    "__mul__",
    "__rmul__",
    "__truediv__",
    "__rtruediv__",
    "__pow__",
)


class Rounding:
    """One run whose intermediate results are rounded to float32 when a later operator reads them; the outputs are not.
    Gradients are rounded on the same way back. A library's functions are off by up to a float32 ulp, as seed draws it;
    by_chance: what is no number of float32 becomes either neighbour.
    """

    def __init__(self, steps: Steps) -> None:
        self._by_chance = steps.by_chance
        self._generator = np.random.Generator(np.random.Philox(key=steps.seed))
        self._pending: dict[int, tuple[Tensor, bool]] = {}  # by id: what was made, by a library?
        self._within = False

    def called(self, name: str, operator: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """An operator's result, of rounded arguments."""
        if self._within:
            return operator(*args, **kwargs)
        bare = name.strip("_")
        # The steps are those of real numbers.
        written = None if any(_is_complex(value) for value in args) else DECOMPOSED.get(bare)
        moves, in_place = bare in MOVES, name.endswith("_") and not name.startswith("__")
        moved = moves and any(self._inexact(value) for value in args)
        self._within = True
        try:
            if not moves:
                args = tuple(
                    value if in_place and not place else self._rounded_tree(value) for place, value in enumerate(args)
                )
            if written is not None:
                # The name of the result, and the tensor that it should be put in, are no part of the steps.
                kwargs = {key: value for key, value in kwargs.items() if key not in ("name", "out")}
            result = operator(*args, **kwargs) if written is None else written(self, *args, **kwargs)
        finally:
            self._within = False
        self._note(result, moved or bare in LIBRARY)
        return result

    def step(self, tensor: Tensor, *, library: bool = False) -> Tensor:
        """The result of a step inside an operator, as the next step reads it."""
        if tensor.dtype != paddle.float64:
            return tensor
        rounded = to_tensor(self._narrowed(to_array(tensor.detach()), library))
        if tensor.stop_gradient:
            return rounded
        # Values are rounded, gradients pass, and are rounded in turn.
        passed = tensor + (rounded - tensor.detach())
        passed.register_hook(self._of_gradient)
        return passed

    def _of_gradient(self, gradient: Tensor) -> Tensor:
        return to_tensor(self._narrowed(to_array(gradient), False)) if gradient.dtype == paddle.float64 else gradient

    def _narrowed(self, values: np.ndarray, library: bool) -> np.ndarray:
        if library:
            values = values * (1 + ULP_FLOAT32 * (2 * self._generator.random(values.shape) - 1))
        with np.errstate(all="ignore"):
            nearest = np.asarray(values, np.float32)
            if self._by_chance:
                other = np.nextafter(nearest, np.where(nearest < values, np.float32(np.inf), np.float32(-np.inf)))
                other = np.where(nearest == values, nearest, other)
                nearest = np.where(self._generator.random(values.shape) < 0.5, nearest, other)
        return np.asarray(nearest, np.float64)

    def _inexact(self, value: Any) -> bool:
        return self._pending.get(id(value), (None, False))[1]

    def _rounded_tree(self, tree: Any) -> Any:
        if type(tree) in (list, tuple):
            return type(tree)([self._rounded_tree(item) for item in tree])
        found = self._pending.get(id(tree))
        return tree if found is None else self.step(tree, library=found[1])

    def _note(self, tree: Any, library: bool) -> None:
        if isinstance(tree, (list, tuple)):
            for item in tree:
                self._note(item, library)
        elif isinstance(tree, paddle.Tensor):
            self._pending[id(tree)] = tree, library  # kept: another tensor would get its id


def _is_complex(value: Any) -> bool:
    return isinstance(value, paddle.Tensor) and value.dtype in COMPLEX


def _gelu(run: Rounding, x: Tensor, approximate: bool = False) -> Tensor:
    if approximate:
        cube = run.step(run.step(x * run.step(x * x)) * 0.044715)
        inner = run.step(run.step(x + cube) * math.sqrt(2 / math.pi))
        return run.step(x * 0.5) * run.step(1 + run.step(_ops.tanh(inner), library=True))
    share = run.step(1 + run.step(_ops.erf(run.step(x * math.sqrt(0.5))), library=True))
    return run.step(x * 0.5) * share


def _tanh_shrink(run: Rounding, x: Tensor) -> Tensor:
    return x - run.step(_ops.tanh(x), library=True)


def _less_one(run: Rounding, x: Tensor) -> Tensor:
    """exp(x) - 1 of what is negative, in two steps."""
    return run.step(run.step(_ops.exp(_ops.minimum(x, paddle.zeros_like(x))), library=True) - 1)


def _celu(run: Rounding, x: Tensor, alpha: float = 1.0) -> Tensor:
    return _ops.where(x > 0, x, _less_one(run, run.step(x / alpha)) * alpha)


def _selu(run: Rounding, x: Tensor, scale: float, alpha: float) -> Tensor:
    grown = run.step(run.step(_ops.exp(_ops.minimum(x, paddle.zeros_like(x))), library=True) * alpha)
    return _ops.where(x > 0, x, run.step(grown - alpha)) * scale


def _softplus(run: Rounding, x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    scaled = run.step(x * beta)
    grown = run.step(1 + run.step(_ops.exp(_ops.clip(scaled, -1e30, threshold)), library=True))
    return _ops.where(scaled > threshold, x, run.step(_ops.log(grown), library=True) / beta)


def _mish(run: Rounding, x: Tensor, threshold: float = 20.0) -> Tensor:
    grown = run.step(_softplus(run, x.detach(), 1.0, threshold))
    share = run.step(_ops.tanh(grown), library=True)

    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        of_grown = run.step(1 - run.step(_ops.exp(-grown), library=True))
        slope = run.step(run.step(x.detach() * run.step(1 - run.step(share * share))) * of_grown)
        return gradient * run.step(slope + share)

    return _with_backward(run, x, x.detach() * share, backward)


def _logsigmoid(run: Rounding, x: Tensor) -> Tensor:
    largest = _ops.maximum(-x, paddle.zeros_like(x))
    both = run.step(_ops.exp(-largest), library=True) + run.step(_ops.exp(run.step(-x - largest)), library=True)
    return -largest - run.step(_ops.log(run.step(both)), library=True)


def _erfinv(run: Rounding, x: Tensor) -> Tensor:
    """By the quantile of a normal distribution, at a probability that is rounded."""
    return _ops.erfinv(run.step((x + 1) / 2) * 2 - 1)


def _prod(run: Rounding, x: Tensor, dims: Any, keepdim: bool, reduce_all: bool) -> Tensor:
    product = _ops.prod(x.detach(), dims, keepdim, reduce_all)

    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        """The product, as float32 has it, divided by each factor."""
        shape = [1] * x.ndim if rounded.size == 1 else _kept(x.shape, rounded.shape)
        return run.step(gradient.reshape(shape) * rounded.reshape(shape)) / x.detach()

    return _with_backward(run, x, product, backward)


def _kept(shape: Sequence[int], reduced: Sequence[int]) -> list[int]:
    """The shape of a reduced tensor with a 1 for each dimension that is gone."""
    if len(shape) == len(reduced):
        return list(reduced)
    left = list(reduced)
    return [left.pop(0) if left and left[0] == extent else 1 for extent in shape]


def _tanh(run: Rounding, x: Tensor) -> Tensor:
    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        return gradient * run.step(1 - run.step(rounded * rounded))

    return _with_backward(run, x, _ops.tanh(x.detach()), backward)


def _stanh(run: Rounding, x: Tensor, inner: float = 0.67, outer: float = 1.7159) -> Tensor:
    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        share = run.step(_ops.tanh(run.step(x.detach() * inner)), library=True)
        return gradient * run.step(run.step(1 - run.step(share * share)) * (inner * outer))

    return _with_backward(run, x, _ops.stanh(x.detach(), inner, outer), backward)


def _sigmoid(run: Rounding, x: Tensor) -> Tensor:
    share = run.step(1 / run.step(1 + run.step(_ops.exp(-x.detach()), library=True)))

    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        return gradient * run.step(share * run.step(1 - share))

    return _with_backward(run, x, _ops.sigmoid(x.detach()), backward)


def _expm1(run: Rounding, x: Tensor) -> Tensor:
    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        return run.step(gradient * rounded) + gradient

    return _with_backward(run, x, _ops.expm1(x.detach()), backward)


def _i0e(run: Rounding, x: Tensor) -> Tensor:
    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        return gradient * (run.step(_ops.i1e(x.detach()), library=True) - _ops.sign(x.detach()) * rounded)

    return _with_backward(run, x, _ops.i0e(x.detach()), backward)


def _i1e(run: Rounding, x: Tensor) -> Tensor:
    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        share = run.step(_ops.sign(x.detach()) + run.step(1 / x.detach()))
        return gradient * (run.step(_ops.i0e(x.detach()), library=True) - run.step(rounded * share))

    return _with_backward(run, x, _ops.i1e(x.detach()), backward)


def _exp(run: Rounding, x: Tensor) -> Tensor:
    return _with_backward(run, x, _ops.exp(x.detach()), lambda gradient, rounded: gradient * rounded)


def _sinh(run: Rounding, x: Tensor) -> Tensor:
    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        return gradient * run.step(_ops.cosh(x.detach()), library=True)

    return _with_backward(run, x, _ops.sinh(x.detach()), backward)


def _cosh(run: Rounding, x: Tensor) -> Tensor:
    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        return gradient * run.step(_ops.sinh(x.detach()), library=True)

    return _with_backward(run, x, _ops.cosh(x.detach()), backward)


def _cumprod(run: Rounding, x: Tensor, dim: int, exclusive: bool, reverse: bool) -> Tensor:
    """The gradient is made of the products as float32 has them, each a number or an overflow."""

    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        products = _ops.cumsum(gradient * rounded, dim, False, exclusive, not reverse)
        return run.step(products) / x.detach()

    return _with_backward(run, x, _ops.cumprod(x.detach(), dim, exclusive, reverse), backward)


def _elu(run: Rounding, x: Tensor, alpha: float = 1.0) -> Tensor:
    below = _less_one(run, x.detach()) * alpha

    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        return gradient * _ops.where(x.detach() > 0, paddle.ones_like(gradient), run.step(rounded + alpha))

    return _with_backward(run, x, _ops.where(x.detach() > 0, x.detach(), below), backward)


def _with_backward(run: Rounding, x: Tensor, result: Tensor, backward: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The result, whose gradient is made of the incoming one and of the result as a library of float32 has it."""
    return result if x.stop_gradient else _Written.apply(x, result, run.step(result, library=True), backward)


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
    run: Rounding, x: Tensor, axis: int, flatten: bool, exclusive: bool, reverse: bool, **out: Any
) -> Tensor:
    """Its gradient is summed up as a logarithm, whose roundoff is that of numbers of x's size."""
    result = _ops.logcumsumexp(x.detach(), axis, flatten, exclusive, reverse)

    def share(gradient: Tensor, rounded: Tensor) -> Tensor:
        """Of an incoming gradient of one sign."""
        logarithm = _ops.maximum(run.step(_ops.log(gradient), library=True), paddle.full_like(gradient, -1e30))
        terms = run.step(logarithm - rounded)
        total = run.step(_ops.logcumsumexp(terms, axis, flatten, exclusive, not reverse), library=True)
        return run.step(_ops.exp(run.step(total.reshape(x.shape) + x.detach())), library=True)

    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        zero = paddle.zeros_like(gradient)
        return share(_ops.maximum(gradient, zero), rounded) - share(_ops.maximum(-gradient, zero), rounded)

    return _with_backward(run, x, result, backward)


def _warpctc(run: Rounding, logits: Tensor, *how: Any, **named: Any) -> Tensor:
    """Sums of logarithms up to the loss, which are rounded as numbers of that size, as a library gives them. What is
    less likely than the smallest number is as likely as that. The gradient has the exponentials of such sums."""
    exact = paddle.nn.functional.log_softmax(logits.detach())
    exact = _ops.maximum(exact, paddle.full_like(exact, math.log(SMALLEST_FLOAT32)))
    size = _ops.warpctc(exact, *how, **named).abs().reshape([1, -1, 1])
    moved = run.step(exact + size, library=True) - size
    if logits.stop_gradient:
        return _ops.warpctc(moved, *how, **named)
    moved.stop_gradient = False
    loss = _ops.warpctc(moved, *how, **named)
    (slope,) = paddle.grad([loss], [moved], [paddle.ones_like(loss)])
    shares = paddle.nn.functional.softmax(moved.detach())
    off = run.step(size + paddle.zeros_like(shares), library=True) - size

    def backward(gradient: Tensor, rounded: Tensor) -> Tensor:
        return gradient.reshape([1, -1, 1]) * (slope + (slope - shares) * _ops.expm1(off))

    return _with_backward(run, logits, loss.detach(), backward)


def _group_norm(
    run: Rounding, x: Tensor, scale: Tensor | None, bias: Tensor | None, eps: float, groups: int, layout: str
) -> Tensor:
    """Its gradient computes the normalised values back from the result, which a large bias has rounded."""
    result = _ops.group_norm(x, scale, bias, eps, groups, layout)
    if scale is None or bias is None or layout.endswith("C"):
        return result
    exact, size = result.detach(), scale.detach().reshape([1, -1] + [1] * (x.ndim - 2))
    off = (run.step(exact) - exact) / (size + (size == 0).cast(size.dtype))
    grouped = x.detach().reshape([x.shape[0], groups, -1])
    deviation = _ops.sqrt(grouped.var(-1, unbiased=False, keepdim=True) + eps)
    moved = x + (off.reshape(grouped.shape) * deviation).reshape(x.shape)
    again = _ops.group_norm(moved, scale, bias, eps, groups, layout)
    return again + (exact - again).detach()


# By operator: the steps of its kernel.
DECOMPOSED: Mapping[str, Callable[..., Any]] = {
    "cosh": _cosh,
    "cumprod": _cumprod,
    "erfinv": _erfinv,
    "exp": _exp,
    "expm1": _expm1,
    "i0e": _i0e,
    "i1e": _i1e,
    "logcumsumexp": _logcumsumexp,
    "prod": _prod,
    "sigmoid": _sigmoid,
    "sinh": _sinh,
    "stanh": _stanh,
    "tanh": _tanh,
    "gelu": _gelu,
    "group_norm": _group_norm,
    "tanh_shrink": _tanh_shrink,
    "warpctc": _warpctc,
    "elu": _elu,
    "celu": _celu,
    "selu": _selu,
    "softplus": _softplus,
    "mish": _mish,
    "logsigmoid": _logsigmoid,
}


@functools.cache
def _operators() -> Mapping[str, Callable[..., Any]]:
    """The operators that compute on tensors, and no gradients or parts of programs."""
    named = ((name, getattr(_ops, name)) for name in dir(_ops) if not name.startswith("_") and "grad" not in name)
    return {name: found for name, found in named if callable(found)}


@functools.cache
def _bound() -> Sequence[tuple[Any, str, str]]:
    """Where Paddle's functions have an operator by a name of their own: the module, that name, and the operator's."""
    known = {id(operator): name for name, operator in _operators().items()}
    modules = [module for path, module in sorted(sys.modules.items()) if path.startswith(CALLING)]
    return [
        (module, name, known[id(value)])
        for module in modules
        for name, value in vars(module).items()
        if id(value) in known
    ]


@contextlib.contextmanager
def rounding(steps: Steps | None) -> Iterator[None]:
    """Calls in here pass through steps that round; without any they are as ever."""
    if steps is None:
        yield
        return
    run = Rounding(steps)
    methods = {name: getattr(paddle.Tensor, name) for name in METHODS}
    try:
        for name, operator in _operators().items():
            setattr(_ops, name, functools.partial(run.called, name, operator))
        for module, name, operator_name in _bound():
            setattr(module, name, getattr(_ops, operator_name))
        for name, method in methods.items():
            setattr(paddle.Tensor, name, functools.partialmethod(_method, run, name, method))
        yield
    finally:
        for name, operator in _operators().items():
            setattr(_ops, name, operator)
        for module, name, operator_name in _bound():
            setattr(module, name, getattr(_ops, operator_name))
        for name, method in methods.items():
            setattr(paddle.Tensor, name, method)


def _method(tensor: Tensor, run: Rounding, name: str, method: Callable[..., Any], *args: Any) -> Any:
    return run.called(name, method, tensor, *args)
