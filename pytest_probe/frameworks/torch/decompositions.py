"""PyTorch: kernels as the steps that torch's decompositions make of them, without what those do for its compiler.

Torch's wrappers promote dtypes, which float64 alone does not need, and import its compiler to keep it out. A kernel
whose decomposition is one kernel runs as it is. A wrapper is recognised by its code, so another release keeps its own
steps.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, ValuesView
from types import CodeType
from typing import Any

import torch

from pytest_probe.frameworks.torch import attention

# Interpolation, whose kernels compute in float32 where an output lies, whatever they interpolate.

_ATEN = torch.ops.aten
# Of the cubic convolution, as in torch's kernels.
_CUBIC_A = -0.75
# The same under antialiasing.
_SMOOTH = -0.5


def _coordinates(extent: int, count: int, align: bool, scale: float | None) -> torch.Tensor:
    """Where each place of an output lies in the input, in float32 as the kernels have it: off by 2^-24 of itself."""
    places = torch.arange(count, dtype=torch.float32)
    if align:
        return places * ((extent - 1) / (count - 1) if count > 1 else 0.0)
    return (places + 0.5) * (1 / scale if scale else extent / count) - 0.5


_Taps = Iterator[tuple[torch.Tensor, torch.Tensor]]


def _linear_taps(extent: int, count: int, align: bool, scale: float | None) -> _Taps:
    """The elements that each place of an output is made of, and their weights."""
    if count == extent:  # whatever the scale says
        yield torch.arange(count), torch.ones(count, dtype=torch.float64)
        return
    places = _coordinates(extent, count, align, scale).clamp(min=0)
    before = places.long().clamp(max=extent - 1)
    share = (places - before).clamp(0, 1).double()
    yield before, 1 - share
    yield (before + 1).clamp(max=extent - 1), share


def _cubic_taps(extent: int, count: int, align: bool, scale: float | None) -> _Taps:
    places = _coordinates(extent, count, align, scale)
    before = places.floor()
    share = (places - before).clamp(0, 1).double()
    for offset in (-1, 0, 1, 2):
        away = (share - offset).abs()
        near = ((_CUBIC_A + 2) * away - (_CUBIC_A + 3)) * away * away + 1
        far = ((_CUBIC_A * away - 5 * _CUBIC_A) * away + 8 * _CUBIC_A) * away - 4 * _CUBIC_A
        yield (before.long() + offset).clamp(0, extent - 1), near if offset in (0, 1) else far


def _triangle(away: torch.Tensor) -> torch.Tensor:
    return (1 - away).clamp(min=0)


def _cubic_weight(away: torch.Tensor) -> torch.Tensor:
    near = ((_SMOOTH + 2) * away - (_SMOOTH + 3)) * away * away + 1
    far = ((_SMOOTH * away - 5 * _SMOOTH) * away + 8 * _SMOOTH) * away - 4 * _SMOOTH
    return torch.where(away < 1, near, torch.where(away < 2, far, 0.0))


def _smooth_taps(reach: int, curve: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., _Taps]:
    """Of antialiasing: all elements that a curve reaches, which is as much wider as the output is coarser."""

    def function(extent: int, count: int, align: bool, scale: float | None) -> _Taps:
        step = ((extent - 1) / (count - 1) if count > 1 else 0.0) if align else (1 / scale if scale else extent / count)
        wide = max(step, 1.0)
        center = (torch.arange(count, dtype=torch.float32) + 0.5) * step
        first = (center - reach * wide + 0.5).long().clamp(min=0)
        behind = (center + reach * wide + 0.5).long().clamp(max=extent)
        index = first + torch.arange(math.ceil(2 * reach * wide) + 1).unsqueeze(-1)
        weights = curve(((index - center + 0.5) * (1 / wide)).abs()).where(index < behind, 0.0)
        weights = weights / weights.sum(0)
        yield from zip(index.clamp(max=extent - 1), weights.double(), strict=True)

    return function


def _resized(taps: Callable[..., _Taps]) -> Callable[..., Any]:
    """One dimension after the other, the last first. A single column is left to torch's kernel, which gives others."""

    def function(x: torch.Tensor, counts: Sequence[int], align: bool, *scales: float | None) -> Any:
        if counts[-1] == 1:
            return NotImplemented
        for place in reversed(range(len(counts))):
            if counts[place] == x.shape[2 + place]:
                continue  # whatever the scale says
            dim, shape = 2 + place, (-1, *[1] * (len(counts) - 1 - place))
            found = taps(x.shape[dim], counts[place], align, scales[place] if scales else None)
            terms = (x.index_select(dim, index.to(x.device)) * weight.to(x).view(shape) for index, weight in found)
            x = functools.reduce(torch.add, terms)
        return x

    return function


def _resized_backward(taps: Callable[..., _Taps], copies: bool = True) -> Callable[..., torch.Tensor]:
    """What each output got from an element goes back to it. Torch's own table splits the forward only.

    copies: where no size changes the kernel copies, whatever the scale says."""

    def function(
        grad: torch.Tensor, counts: Sequence[int], sizes: Sequence[int], align: bool, *scales: float | None
    ) -> torch.Tensor:
        if copies and list(counts) == list(sizes[2:]):
            return grad.clone()
        for place, (count, extent) in enumerate(zip(counts, sizes[2:], strict=True)):
            shape = (-1, *[1] * (len(counts) - 1 - place))
            total = grad.new_zeros(*grad.shape[: 2 + place], extent, *grad.shape[3 + place :])
            for index, weight in taps(extent, count, align, scales[place] if scales else None):
                terms = grad * weight.to(grad).view(shape)
                total = total.index_add(2 + place, index.to(grad.device), terms)
            grad = total
        return grad

    return function


INTERPOLATION: Mapping[Any, Callable[..., Any]] = {
    _ATEN._upsample_bilinear2d_aa.default: _resized(_smooth_taps(1, _triangle)),
    _ATEN._upsample_bicubic2d_aa.default: _resized(_smooth_taps(2, _cubic_weight)),
    _ATEN._upsample_bilinear2d_aa_backward.default: _resized_backward(_smooth_taps(1, _triangle), copies=False),
    _ATEN._upsample_bicubic2d_aa_backward.default: _resized_backward(_smooth_taps(2, _cubic_weight), copies=False),
    _ATEN.upsample_linear1d_backward.default: _resized_backward(_linear_taps),
    _ATEN.upsample_bilinear2d_backward.default: _resized_backward(_linear_taps),
    _ATEN.upsample_trilinear3d_backward.default: _resized_backward(_linear_taps),
    _ATEN.upsample_bicubic2d_backward.default: _resized_backward(_cubic_taps),
}


_Steps = Callable[..., Any]


# Whose decomposition makes a matrix of a vector, to add up each of its rows: 2 GB for 16,000 elements. The kernel in
# float64, rounded once, gives the same numbers.
_SQUARED = frozenset(
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
_MORE = frozenset(("alpha", "rounding_mode", "dtype"))
# Kernels without tensors.
_FACTORIES = frozenset({_ATEN.full.default, _ATEN.zeros.default, _ATEN.ones.default, _ATEN.empty_strided.default})


def steps_of(func: Any, args: Any, kwargs: Mapping[str, Any]) -> _Steps | None:
    """What a kernel is made of; None for one that is a single step, or whose steps torch does not show."""
    steps = decompositions().get(func)
    if steps is None or func in _FACTORIES or _is_view(func):
        return None
    if "out" in kwargs:
        return steps
    name, kinds = func.overloadpacket.__name__, set(_kinds((args, kwargs.values())))
    more = not _MORE.isdisjoint(kwargs)
    if kinds <= {torch.float64, torch.bool, float, int} and not more:
        if name in ONE_STEP:
            return None
        if name[-1] == "_" and name[:-1] in ONE_STEP:
            return functools.partial(_written, _functional(func))
        return _inside(func, promoted=False) or steps
    if not more and name in WHOLE_NUMBERS and kinds <= {torch.int64, torch.bool, int}:
        return None
    return _inside(func, promoted=True) or steps


def kernel(func: Any) -> _Steps:
    """What runs a kernel: for kernels that torch has for decompositions alone, the kernel that they decompose."""
    stands_for: _Steps = getattr(func, "impl_aten", func)
    return stands_for


@functools.cache
def decompositions() -> Mapping[Any, _Steps]:
    import torch._decomp
    import torch._refs  # registers the rest of the table

    found = {func: steps for func, steps in torch._decomp.decomposition_table.items() if func not in _SQUARED}
    return {
        **found,
        attention.FLASH_FORWARD: attention.flash_forward,
        attention.FLASH_BACKWARD: attention.flash_backward,
        _ATEN.gelu_backward.default: _gelu_backward,
        _ATEN.mse_loss_backward.default: lambda grad, x, target, reduction: (
            _norm(x, 2.0, reduction) * (x - target) * grad
        ),
        _ATEN.huber_loss_backward.default: _huber_loss_backward,
        _ATEN.convolution.default: _convolution,
        _ATEN.mean.dim: _mean,
        _ATEN.mean.default: _mean,
        _ATEN.var_mean.dim: _var_mean,
        _ATEN.var_mean.correction: _var_mean,
        **INTERPOLATION,
    }


def _gelu_backward(grad: torch.Tensor, x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """Both terms of the derivative meet one half before they meet each other, as in torch's vectorised kernel: in the
    tail nothing is left of either."""
    if approximate != "none":
        composed: torch.Tensor = torch._decomp.decomposition_table[_ATEN.gelu_backward.default](grad, x, approximate)
        return composed
    density = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return grad * (0.5 + (0.5 * torch.erf(x * math.sqrt(0.5)) + x * density))


def _huber_loss_backward(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int, delta: float
) -> torch.Tensor:
    """The norm is multiplied by the incoming gradient first, as in torch's vectorised kernel."""
    away, normed, border = x - target, _norm(x, 1.0, reduction) * grad, x.new_full((), delta)
    beyond = normed * border
    return torch.where(away < -border, -beyond, torch.where(away > border, beyond, normed * away))


def _norm(x: torch.Tensor, factor: float, reduction: int) -> torch.Tensor:
    """The factor of a loss's gradient, divided by N for a mean of N elements. The kernels round it to the dtype of x,
    where it may be a subnormal. A step rounds tensors alone, so this is one, with shape ()."""
    return x.new_full((), factor / x.numel() if reduction == 1 else factor)


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


def _written(steps: _Steps, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return target.copy_(steps(target, *args, **kwargs))


@functools.cache
def _inside(func: Any, *, promoted: bool) -> _Steps | None:
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
