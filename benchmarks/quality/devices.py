"""Devices to try the verdicts on: torch's CPU kernels, torch's Python references, and emulated modes.

The emulations here are other code than the one that standards judge by: they compute in the case's own dtype, kernel
by kernel, and flush to zero is the processor's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch._decomp
import torch._refs  # registers the rest of the table
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.quality.kinds import Kind, Surroundings
from tests.support.emulated import to_bits

ATEN = torch.ops.aten
# torch's own decomposition gives weights where the backward expects the logarithm of their sum.
WRONG = {ATEN._scaled_dot_product_flash_attention_for_cpu.default}
PRODUCTS = {ATEN.mm.default, ATEN.bmm.default}
ADDED = {ATEN.addmm.default, ATEN.baddbmm.default}
Product: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class References(TorchDispatchMode):
    """torch._refs and torch's decompositions in place of its kernels, forward and backward, all the way down."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        composed = torch._decomp.decomposition_table.get(func)
        if composed is not None and func not in self.inside and func not in WRONG:
            self.inside.add(func)
            try:
                with self:
                    result = composed(*args, **(kwargs or {}))
                if result is not NotImplemented:
                    return result
            except (NotImplementedError, AssertionError):  # it takes no such arguments
                pass
            finally:
                self.inside.discard(func)
        return func(*args, **(kwargs or {}))


class Products(TorchDispatchMode):
    """Products and convolutions of one dtype done another way."""

    def __init__(self, dtypes: Sequence[torch.dtype], product: Callable[..., Any]) -> None:
        super().__init__()
        self.dtypes = dtypes
        self.product = product

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not any(isinstance(value, torch.Tensor) and value.dtype in self.dtypes for value in args):
            return func(*args, **kwargs)
        if func in PRODUCTS:
            return self.product(torch.matmul, args[0], args[1], (-1, -2))
        if func in ADDED:
            product = self.product(torch.matmul, args[1], args[2], (-1, -2))
            return product * kwargs.get("alpha", 1) + args[0] * kwargs.get("beta", 1)
        if func is ATEN.convolution.default:
            return self._convolution(*args)
        if func is ATEN.convolution_backward.default:
            return self._convolution_backward(*args)
        return func(*args, **kwargs)

    def _convolution(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any) -> torch.Tensor:
        axes = None if how[5] != 1 else (1, 0 if how[3] else 1)
        found: torch.Tensor = self.product(lambda a, b: ATEN.convolution.default(a, b, None, *how), x, weight, axes)
        return found if bias is None else found + bias.reshape(-1, *[1] * (x.ndim - 2))

    def _convolution_backward(
        self, gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, sizes: Any, *how: Any
    ) -> tuple[Any, ...]:
        *how, wanted = how  # type: ignore[assignment]

        def part(place: int, g: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            mask = [place == index for index in range(3)]
            found: torch.Tensor = ATEN.convolution_backward.default(g, a, b, sizes, *how, mask)[place]
            return found

        of_x = self.product(lambda g, b: part(0, g, x, b), gradient, weight, None) if wanted[0] else None
        of_weight = self.product(lambda g, a: part(1, g, a, weight), gradient, x, None) if wanted[1] else None
        return of_x, of_weight, part(2, gradient, x, weight) if wanted[2] else None


def rounding(bits: int, how: str) -> Callable[..., torch.Tensor]:
    """Operands with that many significand bits."""
    to = to_bits(bits, how)
    return lambda function, a, b, axes: function(to(a), to(b))


def accumulating(dtype: torch.dtype | None, pieces: int) -> Callable[..., torch.Tensor]:
    """Sums of so many pieces, or (0) term by term, each rounded to a dtype; None: to the operands' own."""

    def product(function: Product, a: torch.Tensor, b: torch.Tensor, axes: tuple[int, int] | None) -> torch.Tensor:
        if axes is None:
            return function(a, b)
        count = min(pieces or a.shape[axes[0]], a.shape[axes[0]])
        total: torch.Tensor | None = None
        for left, right in zip(a.float().chunk(count, axes[0]), b.float().chunk(count, axes[1]), strict=True):
            term = function(left, right).to(dtype or a.dtype).float()
            total = term if total is None else (total + term).to(dtype or a.dtype).float()
        assert total is not None
        return total.to(a.dtype)

    return product


@contextlib.contextmanager
def flushing() -> Iterator[None]:
    if not torch.set_flush_denormal(True):
        raise RuntimeError("this processor cannot flush subnormal numbers to zero")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextlib.contextmanager
def with_products(dtypes: Sequence[torch.dtype], product: Callable[..., Any]) -> Iterator[None]:
    with sdpa_kernel(SDPBackend.MATH), Products(dtypes, product):
        yield


def _rounded(bits: int) -> tuple[Surroundings, ...]:
    def variant(how: str) -> Surroundings:
        return lambda: with_products([torch.float32], rounding(bits, how))

    return tuple(variant(how) for how in ("even", "away", "zero"))


NARROW = [torch.float16, torch.bfloat16]
REAL = ("float32", "bfloat16", "float16", "float64")
ALL = (*REAL, "complex64")
KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("torch", (), ALL),
        Kind("refs", (References,), REAL),  # of complex numbers some lose the conjugation
        Kind("tf32", _rounded(11), ("float32",), "tf32"),
        Kind("hf32", _rounded(12), ("float32",), "hf32"),
        Kind("ftz", (flushing,), ("float32", "bfloat16"), "ftz", tiny=True),
        Kind(
            "reduced-reduction",
            tuple(
                lambda pieces=pieces: with_products(NARROW, accumulating(None, pieces))  # type: ignore[misc]
                for pieces in (2, 4, 16)
            ),
            ("bfloat16", "float16"),
            "reduced-reduction",
        ),
        Kind(
            "float16 accumulation",
            (lambda: with_products([torch.float32, torch.float16], accumulating(torch.float16, 0)),),
            ("float32", "float16"),
            faulty=True,
        ),
    )
}
