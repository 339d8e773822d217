"""PyTorch: kernels as the steps that torch's decompositions make of them, without what those do for its compiler.

Torch's wrappers promote dtypes, which float64 alone does not need, and import its compiler to keep it out. A kernel
whose decomposition is one kernel runs as it is. A wrapper is recognised by its code, so another release keeps its own
steps.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, ValuesView
from types import CodeType
from typing import Any

import torch

from pytest_probe.frameworks.torch import attention, interpolation

Steps = Callable[..., Any]

_ATEN = torch.ops.aten

# Whose decomposition makes a matrix of a vector, to add up each of its rows: 2 GB for 16,000 elements. The kernel in
# float64, rounded once, gives the same numbers.
SQUARED = frozenset(
    {_ATEN.cumsum.default, _ATEN.cumsum.out, _ATEN.cumsum_.default, _ATEN.cumprod.default, _ATEN.cumprod.out}
    | {_ATEN.cumprod_.default}
)
# Kernels that torch's decompositions make one kernel of, of float64: that is themselves. "add" is add.Tensor and
# add.Scalar as well; tests/frameworks/torch/test_decompositions.py compares each with its decomposition.
ONE_STEP = frozenset(
    "add sub mul div eq ne lt le gt ge abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos "
    "atan sinh cosh tanh asinh atanh erf erfc floor ceil trunc sign reciprocal maximum minimum atan2 hypot sum amax "
    "amin".split()
)
# Those of whole numbers and conditions, which give no floats.
WHOLE_NUMBERS = frozenset(
    "add sub mul eq ne lt le gt ge abs neg maximum minimum bitwise_and bitwise_or bitwise_xor bitwise_not".split()
)
# Arguments with which some of them are more than that.
MORE = frozenset(("alpha", "rounding_mode", "dtype"))
# Kernels without tensors.
FACTORIES = frozenset({_ATEN.full.default, _ATEN.zeros.default, _ATEN.ones.default, _ATEN.empty_strided.default})


def steps_of(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Steps | None:
    """What a kernel is made of; None for one that is a single step, or whose steps torch does not show."""
    steps = decompositions().get(func)
    if steps is None or func in FACTORIES or _is_view(func):
        return None
    if "out" in kwargs:
        return steps
    name, kinds = func.overloadpacket.__name__, set(_kinds((args, kwargs.values())))
    more = not MORE.isdisjoint(kwargs)
    if kinds <= {torch.float64, torch.bool, float, int} and not more:
        if name in ONE_STEP:
            return None
        if name[-1] == "_" and name[:-1] in ONE_STEP:
            return functools.partial(_written, _functional(func))
        return _inside(func, promoted=False) or steps
    if not more and name in WHOLE_NUMBERS and kinds <= {torch.int64, torch.bool, int}:
        return None
    return _inside(func, promoted=True) or steps


def kernel(func: Any) -> Steps:
    """What runs a kernel: for those that torch has for decompositions alone, the kernel that they decompose."""
    stands_for: Steps = getattr(func, "impl_aten", func)
    return stands_for


@functools.cache
def decompositions() -> Mapping[Any, Steps]:
    import torch._decomp
    import torch._refs  # registers the rest of the table

    found = {func: steps for func, steps in torch._decomp.decomposition_table.items() if func not in SQUARED}
    return {
        **found,
        attention.FLASH_FORWARD: attention.flash_forward,
        attention.FLASH_BACKWARD: attention.flash_backward,
        _ATEN.gelu_backward.default: _gelu_backward,
        _ATEN.convolution.default: _convolution,
        _ATEN.mean.dim: _mean,
        _ATEN.mean.default: _mean,
        _ATEN.var_mean.dim: _var_mean,
        _ATEN.var_mean.correction: _var_mean,
        **interpolation.INTERPOLATION,
    }


def _gelu_backward(grad: torch.Tensor, x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """Both terms of the derivative meet one half before they meet each other, as in torch's vectorised kernel: in the
    tail nothing is left of either."""
    if approximate != "none":
        composed: torch.Tensor = torch._decomp.decomposition_table[_ATEN.gelu_backward.default](grad, x, approximate)
        return composed
    density = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return grad * (0.5 + (0.5 * torch.erf(x * math.sqrt(0.5)) + x * density))


def _convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any) -> Any:
    """The bias is added by another kernel, as behind cuDNN's convolutions."""
    if bias is None:
        return NotImplemented
    return _ATEN.convolution.default(x, weight, None, *how) + bias.view(-1, *[1] * (weight.ndim - 2))


def _mean(x: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """torch's steps. There one calls the other past the kernels, through what imports the compiler."""
    if x.dtype is not torch.float64 or dtype is not None:
        return torch._decomp.decomposition_table[_ATEN.mean.dim](x, dim, keepdim, dtype=dtype)
    total = torch.sum(x, dim, keepdim)
    return total / (x.numel() // max(total.numel(), 1))


def _var_mean(
    x: torch.Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    less = int(unbiased) if correction is None else correction
    return torch.var(x, dim, correction=less, keepdim=keepdim), torch.mean(x, dim, keepdim)


@functools.cache
def _is_view(func: Any) -> bool:
    return any(item.alias_info is not None and not item.alias_info.is_write for item in func._schema.returns)


def _kinds(values: Any) -> Iterator[Any]:
    """The dtypes of tensors, and the types of numbers."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value.dtype
        elif isinstance(value, (list, tuple, ValuesView)):
            yield from _kinds(value)
        elif isinstance(value, (bool, int)):
            yield int
        elif isinstance(value, (float, complex)):
            yield type(value)


@functools.cache
def _functional(func: Any) -> Any:
    """The kernel that does not write, for one that writes to its first argument: mul.Tensor for mul_.Tensor."""
    return getattr(getattr(_ATEN, func.overloadpacket.__name__[:-1]), func._overloadname)


def _written(steps: Steps, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return target.copy_(steps(target, *args, **kwargs))


@functools.cache
def _inside(func: Any, *, promoted: bool) -> Steps | None:
    """torch's steps without what it puts around them; promoted: but for the promotion of dtypes, which float64 alone
    does not need. torch keeps its compiler out of that, and imports it for this, which takes 0.9 s. None where there is
    nothing to take away, or another form than the known one."""
    inside: Any = decompositions()[func]
    known, around = _wrappers(), set()
    while (kind := known.get(getattr(inside, "__code__", None))) is not None and not (promoted and kind == "promotion"):
        around.add(kind)
        inside = inside.__closure__[inside.__code__.co_freevars.index("fn")].cell_contents
    if "shield" not in around or (func._schema.is_mutable and "in place" not in around):
        return None
    return functools.partial(_written, inside) if "in place" in around else inside


@functools.cache
def _wrappers() -> Mapping[CodeType | None, str]:
    """What torch puts around steps, by its code; none where a release has other names for it."""
    import torch._refs
    from torch._prims_common import wrappers

    def plain(a: Any) -> Any:
        return a

    try:
        kind = torch._prims_common.ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
        promoting: Any = wrappers.elementwise_type_promotion_wrapper(
            type_promotion_kind=kind, type_promoting_args=("a",)
        )
        shield = promoting(plain)
        return {
            shield.__code__: "shield",
            shield.__wrapped__.__code__: "promotion",
            wrappers.out_wrapper()(plain).__code__: "output",
            wrappers.elementwise_unary_scalar_wrapper(plain).__code__: "numbers",
            torch._refs.add_.__code__: "in place",
        }
    except (AttributeError, TypeError, KeyError):
        return {}
