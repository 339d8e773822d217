"""PyTorch: 16-bit kernels of an accelerator, as they round inside, in float64 on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from pytest_probe.frameworks.torch import attention
from pytest_probe.frameworks.torch.kernels import DispatchMode
from pytest_probe.frameworks.torch.kernels_of_gpu import KERNELS_OF_GPU
from pytest_probe.frameworks.torch.rounding import StepsMode, computes, storage, tensors_of
from pytest_probe.frameworks.torch.sequential_sums import atomic_sums
from pytest_probe.model.run import PRODUCTS, Composition

Tensor = torch.Tensor
_ATEN = torch.ops.aten
# What computes element by element, but torch has no tag for it.
_OF_ELEMENTS = frozenset(("__and__", "__or__", "fill", "fill_", "zeros_like", "ones_like", "full_like"))


def accelerator_kernel(
    func: Any, dtype: torch.dtype, how: Composition, order: int = 0, *, atomic: bool = True, mixed: bool = False
) -> Callable[..., Any]:
    """A kernel in float64 that rounds to 16 bit where an accelerator's does inside: sums by atomic additions, weights
    of attention before their products, a convolution before its bias. separate: attention rounds its scores, too;
    stepwise: so does what torch's own kernels of a GPU compute in 16 bit. order: of three factors, and of the terms of
    atomic additions. mixed: some of its results are float32."""

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
    # A float32 weight keeps a group's moments in float32.
    wide_moments = mixed and func is _ATEN.native_group_norm.default
    if how == "stepwise" and atomic and func in KERNELS_OF_GPU and not wide_moments:
        return functools.partial(KERNELS_OF_GPU[func], dtype)
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
