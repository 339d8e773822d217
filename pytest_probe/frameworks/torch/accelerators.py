"""PyTorch: 16-bit kernels of an accelerator, as they round inside, in float64 on the CPU: what any may round, and what
torch's own kernels of a GPU do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pytest_probe.frameworks.torch import attention
from pytest_probe.frameworks.torch.kernels import DispatchMode
from pytest_probe.frameworks.torch.rounding import StepsMode, computes, storage, tensors_of
from pytest_probe.frameworks.torch.sequential_sums import atomic_sums
from pytest_probe.model.run import PRODUCTS, Composition

Tensor = torch.Tensor
_ATEN = torch.ops.aten
# Threads of a block of torch's Normalization.cuh, and of a warp.
_THREADS, _WARP = 512, 32
# What computes element by element, but torch has no tag for it.
_OF_ELEMENTS = frozenset(("__and__", "__or__", "fill", "fill_", "zeros_like", "ones_like", "full_like"))


def accelerator_kernel(
    func: Any, dtype: torch.dtype, how: Composition, order: int = 0, *, atomic: bool = True
) -> Callable[..., Any]:
    """A kernel in float64 that rounds to 16 bit where an accelerator's does inside: sums by atomic additions, weights
    of attention before their products, a convolution before its bias. separate: attention rounds its scores, too;
    stepwise: so does what torch's own kernels of a GPU compute in 16 bit. order: of three factors, and of the terms of
    atomic additions."""

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype).to(torch.float64)

    def product(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return rounded(first) @ rounded(second)

    steps = {"product": product, "step": rounded} if how == "separate" else {"product": product}
    if func is attention.FLASH_FORWARD:
        return functools.partial(attention.flash_forward, **steps)
    if func is attention.FLASH_BACKWARD:
        return functools.partial(attention.flash_backward, **steps)
    if func is _ATEN.convolution.default:
        return functools.partial(_convolution_elsewhere, rounded)
    if how == "stepwise" and func is _ATEN.native_batch_norm_backward.default:
        return functools.partial(batch_norm_backward, rounded)
    known = atomic_sums(dtype, order).get(func) if atomic else None
    if known is None and how == "stepwise":
        return functools.partial(_stepwise, func, dtype, order % PRODUCTS)
    return known or func


def _stepwise(func: Any, dtype: torch.dtype, order: int, *args: Any, **kwargs: Any) -> Any:
    """The kernel with each step of its formula rounded, where that is one of elements, or of elements and their sum at
    the end; else as it is."""
    watch = _ByElements()
    with watch, _OrderedSteps(dtype, order):
        result = func(*args, **kwargs)
    return result if watch.holds else func(*args, **kwargs)


class _ByElements(DispatchMode):
    """Sees whether kernels compute element by element, but for a sum of all at the end."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.holds, self.summed = True, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        if computes(func, args):
            one = all(tensor.numel() == 1 for tensor in tensors_of(result))
            self.holds &= one or (not self.summed and _is_of_elements(func.overloadpacket))
            self.summed |= torch.Tag.reduction in func.tags
        return result


def _convolution_elsewhere(rounded: Callable[[torch.Tensor], torch.Tensor], x: Any, weight: Any, *how: Any) -> Any:
    bias, result = how[0], _ATEN.convolution.default(x, weight, None, *how[1:])
    return result if bias is None else rounded(result) + bias.view(-1, *[1] * (weight.ndim - 2))


@functools.cache
def _is_of_elements(packet: Any) -> bool:
    overloads = (getattr(packet, overload) for overload in packet.overloads())
    return packet.__name__ in _OF_ELEMENTS or any(torch.Tag.pointwise in overload.tags for overload in overloads)


class _OrderedSteps(StepsMode):
    """Multiplies a factor with a product of two first with one of these: in order 1 with the first of them, in order 2
    with the second, in order 0 with their product."""

    def __init__(self, dtype: torch.dtype, order: int) -> None:
        super().__init__(dtype, fine=True)
        self.order = order
        self.products: dict[int, tuple[torch.Tensor, Any]] = {}  # with the tensor itself, whose address is its own

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not _ATEN.mul.Tensor or not self.order:
            return super().__torch_dispatch__(func, types, args, kwargs)
        for place, value in enumerate(args):
            wide = isinstance(value, torch.Tensor) and value.dtype is torch.float64
            _, factors = self.products.get(storage(value), (None, None)) if wide else (None, None)
            if factors is not None:
                return self._multiplied(args[1 - place], *(factors if self.order == 1 else reversed(factors)))
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.products[storage(result)] = result, args
        return result

    def _multiplied(self, *factors: torch.Tensor) -> torch.Tensor:
        """Each with the product of those before it."""
        order, self.order = self.order, 0
        try:
            with self:
                return functools.reduce(torch.mul, factors)
        finally:
            self.order = order


def batch_norm_backward(
    rounded: Callable[[Tensor], Tensor],
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor | None,
    scale: Tensor | None,
    train: bool,
    eps: float,
    wanted: Sequence[bool],
) -> Any:
    """What passes from one thread of a warp to another is rounded, and so are the products whose sum is the weight's
    gradient: `Float2` takes 16-bit numbers. Tensors whose channels lie side by side go to another kernel."""
    if x.stride(1) == 1 or not x.numel():
        return _ATEN.native_batch_norm_backward.default(
            grad, x, weight, running_mean, running_var, mean, scale, train, eps, wanted
        )
    if not train:
        assert running_mean is not None
        assert running_var is not None
        mean, scale = running_mean, (running_var + eps).rsqrt()
    assert mean is not None
    assert scale is not None
    places, count = (1, -1, *[1] * (x.ndim - 2)), x.numel() // x.shape[1]
    away = x - mean.view(places)
    total, product = (_sum(rounded, terms) for terms in (grad, rounded(grad * away)))
    found = grad
    if train:
        found = grad - (total / count).view(places) - away * (product / count * scale * scale).view(places)
    factor = scale if weight is None else scale * weight
    each = found * factor.view(places), product * scale, total
    return tuple(result if asked else None for result, asked in zip(each, wanted, strict=True))


def _sum(rounded: Callable[[Tensor], Tensor], terms: Tensor) -> Tensor:
    """Of each channel: sums of threads, then halves of what is left, of which the second one is rounded."""
    terms = terms.flatten(2) if terms.ndim > 2 else terms.unsqueeze(-1)
    batch, channels, extent = terms.shape
    across = min(_THREADS, max(_WARP, 1 << (extent - 1).bit_length()))
    along = _THREADS // across
    padded = torch.nn.functional.pad(terms, (0, -extent % across, 0, 0, 0, -batch % along))
    threads = padded.view(-1, along, channels, padded.shape[-1] // across, across).sum((0, 3))
    left = threads.transpose(0, 1).reshape(channels, -1, _WARP)
    return _halved(rounded, _halved(rounded, left))


def _halved(rounded: Callable[[Tensor], Tensor], terms: Tensor) -> Tensor:
    while terms.shape[-1] > 1:
        first, second = terms.chunk(2, -1)
        terms = first + rounded(second)
    return terms.squeeze(-1)
