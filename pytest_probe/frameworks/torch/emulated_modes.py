"""PyTorch: emulates device modes (TF32, flush to zero, ...) inside a run on the CPU, kernel by kernel.

Operands of aten's products are rounded inside the float64 run. So composed calls and their backward are treated alike,
and a judge needs to know no mode.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pytest_probe.frameworks.torch import attention, winograd
from pytest_probe.frameworks.torch.decompositions import kernel, steps_of
from pytest_probe.frameworks.torch.rounding import SplittingMode, mixed_by_value, only_moves, storage
from pytest_probe.model.device_modes import Cut, Mode, Rounding
from pytest_probe.model.run import Jitter
from pytest_probe.numerics.dtypes import SMALLEST_FLOAT32, ULP_FLOAT32

_ROUNDOFF_FLOAT32 = ULP_FLOAT32 / 2

_ATEN = torch.ops.aten
# Of how many terms or more a flushed sum is perturbed by SMALLEST_FLOAT32, a 64th of all that it may lose of so many.
_MANY = 64
# Operands are numbers of float32 on a device: 1 - 1e-12 is 1 there, which rounds otherwise.
_SEEN_BITS = 24
# The exponent of zero: below those of all dtypes of operands, and twice it, less some bits, is one of float64.
_OF_ZERO = -500.0
# Uniform numbers between -1 and 1 times this have unit variance.
_UNIFORM = 3.0**0.5
# Arguments that a kernel writes to without its schema saying so: running statistics.
_WRITTEN: Mapping[Any, tuple[int, ...]] = {_ATEN.native_batch_norm.default: (3, 4)}


# What CUDA's fast intrinsics may be off by, of a result and arguments: the tables of the CUDA programming guide.
_INTRINSICS: Mapping[Any, Callable[..., Any]] = {
    _ATEN.exp.default: lambda r, x: r.abs() * ULP_FLOAT32 * (2 + 1.173 * x.abs()),
    _ATEN.exp2.default: lambda r, x: r.abs() * ULP_FLOAT32 * 2,
    _ATEN.log.default: lambda r, x: 2.0**-21.41 + r.abs() * ULP_FLOAT32 * 3,
    _ATEN.log2.default: lambda r, x: 2.0**-22 + r.abs() * ULP_FLOAT32 * 2,
    _ATEN.log10.default: lambda r, x: 2.0**-24 + r.abs() * ULP_FLOAT32 * 3,
    _ATEN.sin.default: lambda r, x: 2.0**-21.41,
    _ATEN.cos.default: lambda r, x: 2.0**-21.19,
    _ATEN.tanh.default: lambda r, x: r.abs() * 2.0**-11,
    _ATEN.div.Tensor: lambda r, x, y, **_: r.abs() * ULP_FLOAT32 * 2,
    _ATEN.reciprocal.default: lambda r, x: r.abs() * ULP_FLOAT32,
    _ATEN.sqrt.default: lambda r, x: r.abs() * ULP_FLOAT32 * 3,
    _ATEN.rsqrt.default: lambda r, x: r.abs() * ULP_FLOAT32 * 2,
    _ATEN.pow.Tensor_Scalar: lambda r, x, y: (
        r.abs() * ULP_FLOAT32 * (2 + 2 * r.abs().clamp(min=SMALLEST_FLOAT32).log2().abs())
    ),
    _ATEN.pow.Tensor_Tensor: lambda r, x, y: (
        r.abs() * ULP_FLOAT32 * (2 + 2 * r.abs().clamp(min=SMALLEST_FLOAT32).log2().abs())
    ),
}

# What a recurrence is made of, and what of that makes each kernel.
_MADE = ("product", "sum", "scaled product", "scaled sum")
KINDS: Mapping[Any, str] = {
    **dict.fromkeys((_ATEN.add.Tensor, _ATEN.add_.Tensor, _ATEN.sub.Tensor, _ATEN.addcmul.default), "sum"),
    **dict.fromkeys((_ATEN.mul.Tensor, _ATEN.mul_.Tensor, _ATEN.div.Tensor), "scaled"),
    **dict.fromkeys((_ATEN.mm.default, _ATEN.bmm.default), "product"),
}
_SCALED = {kind: "scaled product" if "product" in kind else "scaled sum" for kind in _MADE}

_Bilinear = Callable[[Tensor, Tensor], Tensor]


def rounded_to_bits(tensor: Tensor, bits: int, rounding: Rounding) -> Tensor:
    """float64, float32 or complex numbers with `bits` significand bits; ties to even, with a relative error of at most
    2^-bits, or cut towards zero, with one below 2^(1 - bits). NaN and infinities stay."""
    if tensor.is_complex():
        return torch.view_as_complex(
            rounded_to_bits(torch.view_as_real(tensor.resolve_conj()), bits, rounding).contiguous()
        )
    width, integer = {torch.float64: (53, torch.int64), torch.float32: (24, torch.int32)}.get(tensor.dtype, (0, None))
    drop = width - bits
    if integer is None or drop <= 0:
        return tensor
    # On the bits of the number: half of the last place is added, which carries into the exponent where it must.
    pattern = tensor.resolve_neg().contiguous().view(integer)
    if rounding == "even":
        pattern = pattern + ((1 << (drop - 1)) - 1) + ((pattern >> drop) & 1)
    cut = (pattern & -(1 << drop)).view(tensor.dtype)
    return torch.where(torch.isfinite(tensor), cut, tensor)


class _ModeEmulation(SplittingMode):
    """One mode in one run. With jitter, operands (after their rounding) and results of kernels move by a roundoff."""

    def __init__(self, mode: Mode, jitter: Jitter | None) -> None:
        super().__init__()
        self.mode = mode
        self.jitter = jitter
        self.generator = torch.Generator().manual_seed(jitter.seed if jitter is not None else 0)
        self.recurrences = _Recurrences() if mode.carried else None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = self._computed(func, args, kwargs or {})
        if self.recurrences is not None and self.recurrences.hands_on(func, args, result):
            result.data.copy_(rounded_to_bits(result.data, self.mode.bits, "even"))
        return result

    def _computed(self, func: Any, args: Any, kwargs: Any) -> Any:
        product = _PRODUCTS.get(func) if self._concerns(func) else None
        if product is not None:
            return product(self, *args, **kwargs)
        if only_moves(func):
            return func(*args, **kwargs)
        if (self.mode.fine or self.mode.approximate) and func not in _INTRINSICS and func not in self.split:
            steps = steps_of(func, args, kwargs)
            result = NotImplemented if steps is None else self.composed(steps, func, args, kwargs)
            if result is not NotImplemented:
                return result
        return self._kernel(func, args, kwargs)

    def _concerns(self, func: Any) -> bool:
        if not (self.mode.bits or self.mode.sums or self.mode.cut or self.mode.short):
            return False
        convolves = func in (_ATEN.convolution.default, _ATEN.convolution_backward.default)
        return self.mode.scope in ("all", "convolution" if convolves else "matmul")

    def _kernel(self, func: Any, args: Any, kwargs: Any) -> Any:
        given = args
        if self.mode.flush and not func._schema.is_mutable:
            args, kwargs = _mapped(flushed, args), _mapped(flushed, kwargs)
        result = kernel(func)(*args, **kwargs)
        for place in _WRITTEN.get(func, ()):
            # A flushed copy was written to in place of the program's tensor.
            if given[place] is not args[place]:
                given[place].copy_(args[place])
        error = _INTRINSICS.get(func) if self.mode.approximate and self.jitter is not None else None
        if error is not None and result.is_floating_point():
            result = result + self._xi(result) / _UNIFORM * error(result, *args, **kwargs)
        if self.mode.flush:
            result = _flushed_in_place(result) if func._schema.is_mutable else _mapped(flushed, result)
            return result if self.jitter is None or func._schema.is_mutable else self._lossy(func, args, result)
        # Sums are cut by the last places of exact operands: moved ones would lose what the device does not.
        if self.jitter is None or self.mode.approximate or self.mode.short or func._schema.is_mutable:
            return result
        return _mapped(self.step, result)

    def _lossy(self, func: Any, args: Any, result: Any) -> Any:
        """The result with what its sums may have lost of terms on their way."""
        shapes = [value.shape for value in args if isinstance(value, Tensor)]
        largest = max((shape.numel() for shape in shapes), default=1)
        longest = max((extent for shape in shapes for extent in shape), default=1)

        def without(tensor: Tensor) -> Tensor:
            terms = longest if func in _PRODUCTS else largest // max(tensor.numel(), 1)
            if terms < 2 or not tensor.is_floating_point():
                return tensor
            return tensor + SMALLEST_FLOAT32 * min(1.0, terms / _MANY) * self._xi(tensor) / _UNIFORM

        return _mapped(without, result)

    def _xi(self, tensor: Tensor) -> Tensor:
        real = tensor.real.dtype if tensor.is_complex() else tensor.dtype
        drawn = torch.rand(tensor.shape, generator=self.generator, dtype=real).to(tensor.device)
        return (drawn * 2 - 1) * _UNIFORM

    def step(self, tensor: Tensor) -> Tensor:
        """What passes between two steps of a kernel."""
        if self.jitter is None or not (tensor.is_floating_point() or tensor.is_complex()):
            return tensor
        return tensor * (1 + self.jitter.size * self._xi(tensor))

    def _operands(self, tensor: Tensor, place: Cut) -> list[Tensor]:
        """The parts of an operand: one, or two where it is split."""
        if not self.mode.bits:
            return [self.step(tensor)]
        rounding: Rounding = "zero" if self.mode.cut in ("both", place) else "even"
        high = self._rounded(tensor, rounding)
        parts = [high, self._rounded(tensor - high, rounding)] if self.mode.split else [high]
        return [self.step(part) for part in parts]

    def _rounded(self, tensor: Tensor, rounding: Rounding) -> Tensor:
        """The tensor rounded; with jitter as far off, to either side."""
        if self.mode.bits < _SEEN_BITS:
            tensor = rounded_to_bits(tensor, _SEEN_BITS, "even")
        rounded = rounded_to_bits(tensor, self.mode.bits, rounding)
        if self.jitter is None:
            return rounded
        return tensor + (rounded - tensor) * signs_by_value(tensor, self.jitter.seed)

    def product(self, function: _Bilinear, a: Tensor, b: Tensor, axes: tuple[int, int] | None) -> Tensor:
        """function(a, b), bilinear, as the mode computes it; it sums over the axes of a and b, None: in one piece."""
        first, second = self._operands(a, "first"), self._operands(b, "second")
        if self.mode.split:
            return function(first[0], second[0]) + function(first[0], second[1]) + function(first[1], second[0])
        cut_sums = self.mode.cut == "sums"
        if not (self.mode.sums or cut_sums):
            return function(first[0], second[0])
        if axes is None:
            return self._as_sum(function(first[0], second[0]))
        pieces = zip(self._chunks(first[0], axes[0]), self._chunks(second[0], axes[1]), strict=True)
        total: Tensor | None = None
        lost: Any = 0.0
        for left, right in pieces:
            part = self._as_sum(function(left, right))
            total = part if total is None else self._as_sum(total + part)
            lost = lost + total * left.shape[axes[0]]
        assert total is not None
        return total - lost * _ROUNDOFF_FLOAT32 if cut_sums else total

    def whole_product(self, function: _Bilinear, a: Tensor, b: Tensor) -> Tensor:
        """The same in one piece."""
        return self.product(function, a, b, None)

    def _chunks(self, tensor: Tensor, axis: int) -> tuple[Tensor, ...]:
        return tensor.chunk(max(1, min(self.mode.chunks, tensor.shape[axis])), axis)

    def _as_sum(self, tensor: Tensor) -> Tensor:
        if not self.mode.sums or tensor.is_complex():
            return tensor
        rounded = tensor.to(getattr(torch, self.mode.sums)).to(tensor.dtype)
        if self.mode.bits and not torch.isfinite(rounded).all():
            # A kernel that keeps sums in a dtype without room for them has a unit of its own.
            return rounded_to_bits(tensor, self.mode.bits, "even")
        return rounded


class _Recurrences:
    """Which results are what a recurrence passes on: the sum in h = a h + b, of the shape that h had before. A sum that
    nothing scales (x = x + f(x), total = total + part) is not one: who keeps that in 16 bit has lost digits."""

    def __init__(self) -> None:
        # What made the result in a storage. Tensors are kept, since an address is used again.
        self._made: dict[int, tuple[Tensor, str]] = {}

    def hands_on(self, func: Any, args: Any, result: Any) -> bool:
        """Is a kernel's result passed on? To be asked of each kernel in turn."""
        kind = KINDS.get(func, "")
        if not kind or not isinstance(result, Tensor) or not result.is_floating_point():
            return False
        like = (value for value in args if isinstance(value, Tensor) and value.shape == result.shape)
        before = {self._made[storage(value)][1] for value in like if storage(value) in self._made}
        made = kind if kind != "scaled" else max((_SCALED[made] for made in before), default="")
        if made:
            self._made[storage(result)] = result, made
        # A backward begins with a product, where a forward begins with zeros.
        return kind == "sum" and ("scaled sum" in before or {"scaled product", "product"} <= before)


def signs_by_value(tensor: Tensor, seed: int) -> Tensor:
    """1 or -1 for each element, by chance and alike for equal magnitudes: whatever rounds a number rounds each copy."""
    if tensor.is_complex():
        return torch.view_as_complex(signs_by_value(torch.view_as_real(tensor.resolve_conj()), seed).contiguous())
    return 1 - 2 * ((mixed_by_value(tensor, seed) >> 40) & 1).to(tensor.dtype)


def flushed(tensor: Tensor) -> Tensor:
    """With what is below float32's smallest normal number, 2^-126, as zero."""
    if tensor.is_complex():
        return torch.view_as_complex(flushed(torch.view_as_real(tensor.resolve_conj())).contiguous())
    if not tensor.is_floating_point():
        return tensor
    small = tensor.abs() < SMALLEST_FLOAT32
    return torch.where(small & (tensor != 0), torch.zeros_like(tensor), tensor) if small.any() else tensor


def _flushed_in_place(result: Any) -> Any:
    for tensor in result if isinstance(result, (list, tuple)) else [result]:
        if isinstance(tensor, Tensor):
            tensor.data.copy_(flushed(tensor.data))
    return result


def _mapped(change: Callable[[Tensor], Tensor], tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, (list, tuple)):
        return type(tree)(_mapped(change, item) for item in tree)
    if isinstance(tree, dict):
        return {key: _mapped(change, item) for key, item in tree.items()}
    return tree


def _short_sums(a: Tensor, b: Tensor, bits: int, terms: int) -> Tensor:
    """a @ b, where so many terms at a time, and the sum so far, are cut at the same place, and their sum to `bits`.

    That place lies so many bits below the largest exponent among them. Of a product that is the sum of its operands'
    exponents: it is not normalised (MMA-Sim, arXiv:2511.10909, which found it of Ada's and Hopper's tensor cores).
    """
    total = a.new_zeros((*a.shape[:-1], b.shape[-1]))
    of_a, of_b = _exponents(a), _exponents(b)
    for start in range(0, a.shape[-1], terms):
        places = range(start, min(start + terms, a.shape[-1]))
        largest = _exponents(total)
        for place in places:
            largest = torch.maximum(largest, of_a[..., place, None] + of_b[..., None, place, :])
        last = torch.exp2(largest - (bits - 1))
        total = torch.trunc(total / last)
        for place in places:
            total = total + torch.trunc(a[..., place, None] * b[..., None, place, :] / last)
        total = rounded_to_bits(total * last, bits, "zero")
    return total


def _exponents(tensor: Tensor) -> Tensor:
    """floor(log2) of magnitudes, as float64; of zero less than any number here has."""
    exponents = torch.frexp(tensor).exponent.to(torch.float64) - 1
    return torch.where(tensor == 0, _OF_ZERO, exponents)


def _mm(mode: _ModeEmulation, a: Tensor, b: Tensor) -> Tensor:
    if mode.mode.short:
        places = range(0, max(a.shape[-1], 1), mode.mode.promoted or max(a.shape[-1], 1))
        pieces = ((at, at + places.step) for at in places)
        sums = [_short_sums(a[..., i:j], b[..., i:j, :], mode.mode.short, mode.mode.terms) for i, j in pieces]
        return torch.stack(sums).sum(0)
    return mode.product(torch.matmul, a, b, (-1, -2))


def _addmm(mode: _ModeEmulation, bias: Tensor, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _added(_mm(mode, a, b) * alpha, bias, beta)


def _added(product: Tensor, bias: Tensor, beta: Any) -> Tensor:
    return product if beta == 0 else product + bias * beta


def _convolution(mode: _ModeEmulation, x: Tensor, weight: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
    transposed, groups = how[3], how[5]
    if mode.mode.tiles and winograd.applies(x, weight, *how):
        result = winograd.forward(x, weight, how[1], mode.mode.tiles, mode.whole_product)
    else:
        # Sums of groups run over a part of the channels, which no common axis cuts.
        axes = None if groups != 1 else (1, 0 if transposed else 1)
        result = mode.product(lambda a, b: _ATEN.convolution.default(a, b, None, *how), x, weight, axes)
    return result if bias is None else result + bias.reshape(-1, *[1] * (x.ndim - 2))


def _convolution_backward(
    mode: _ModeEmulation, gradient: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, *how: Any
) -> tuple[Any, ...]:
    *how, wanted = how  # type: ignore[assignment]
    transposed, groups = how[3], how[5]

    def gradient_of(g: Tensor, a: Tensor, b: Tensor, place: int) -> Tensor:
        mask = [place == index for index in range(3)]
        found: Tensor = _ATEN.convolution_backward.default(g, a, b, bias_sizes, *how, mask)[place]
        return found

    of_bias = gradient_of(gradient, x, weight, 2) if wanted[2] else None
    if mode.mode.tiles and winograd.applies(x, weight, *how):
        found = winograd.backward(gradient, x, weight, how[1], mode.mode.tiles, mode.whole_product)
        return *(part if asked else None for part, asked in zip(found, wanted, strict=False)), of_bias
    axes = None if groups != 1 else (1, 1 if transposed else 0)
    of_x = mode.product(lambda g, b: gradient_of(g, x, b, 0), gradient, weight, axes) if wanted[0] else None
    of_weight = (
        mode.product(lambda g, a: gradient_of(g, a, weight, 1), gradient, x, (0, 0) if groups == 1 else None)
        if wanted[1]
        else None
    )
    return of_x, of_weight, of_bias


def _attention(function: Callable[..., Any], mode: _ModeEmulation, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs, product=partial(_mm, mode), step=mode.step)


_PRODUCTS: Mapping[Any, Callable[..., Any]] = {
    _ATEN.mm.default: _mm,
    _ATEN.bmm.default: _mm,
    _ATEN.addmm.default: _addmm,
    _ATEN.baddbmm.default: _addmm,
    _ATEN.addbmm.default: lambda mode, bias, a, b, beta=1, alpha=1: _added(_mm(mode, a, b).sum(0) * alpha, bias, beta),
    _ATEN.convolution.default: _convolution,
    _ATEN.convolution_backward.default: _convolution_backward,
    attention.FLASH_FORWARD: partial(_attention, attention.flash_forward),
    attention.FLASH_BACKWARD: partial(_attention, attention.flash_backward),
}


@contextlib.contextmanager
def emulated(mode: Mode | None, jitter: Jitter | None) -> Iterator[None]:
    """What runs inside is computed as the mode computes it."""
    if mode is None:
        yield
        return
    with _ModeEmulation(mode, jitter):
        yield
