"""PyTorch: what a function gives where kernels of torch's own CPU that round inside rounded once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from pytest_probe.frameworks.torch.kernels import KernelsBy
from pytest_probe.frameworks.torch.rounding import computes

_NARROW = (torch.bfloat16, torch.float16)
# How many times half an ulp an element may err of a kernel that adds in float32 and rounds once: it gives the bits of
# float64 rounded once but for ties. A number that it rounds first, such as alpha of add, may move an element by little
# more.
_ONCE = 1.01
# How many times the RMS of one rounding tells that more than a few elements are rounded inside.
_RMS_ONCE = 1.2
# How many times half an ulp a few elements of a formula may err. Chosen, as the limits of the noise rule there: torch's
# erf in bfloat16 is off by 28 of them or more, of small numbers, and rounds nothing.
_GROSS = 16


@contextmanager
def rounding_once() -> Iterator[Callable[[], bool]]:
    """In here, forward and backward, a 16-bit result of an operator of torch's that errs by more than one rounding, or
    overflows inside in float16, is the operator's float64 result, rounded once. What it gives says at the end whether
    there was one. Operators of somebody else, and random ones, keep their results."""
    replaced: list[Any] = []

    def once(func: Any, args: Any, kwargs: Any) -> Any:
        own = func.namespace == "aten" and torch.Tag.nondeterministic_seeded not in func.tags
        # A dtype among the arguments is what an operator casts its tensors to first.
        cast = next((leaf for leaf in tree_leaves(kwargs) if isinstance(leaf, torch.dtype) and leaf in _NARROW), None)
        if not (own and computes(func, args) and (cast or any(map(_is_narrow, tree_leaves(args))))):
            return func(*args, **kwargs)
        # Before the call, which may write to its arguments.
        wide_args, wide_kwargs = tree_map_only(torch.Tensor, functools.partial(_wide, cast=cast), (args, kwargs))
        wide_kwargs = tree_map_only(torch.dtype, lambda dtype: torch.float64 if dtype is cast else dtype, wide_kwargs)
        result = func(*args, **kwargs)
        try:
            exact = func(*wide_args, **wide_kwargs)
        except (RuntimeError, TypeError):  # no kernel in float64
            return result
        for found, wanted in zip(_written(func, result, args), _written(func, exact, wide_args), strict=True):
            if _is_narrow(found) and _is_beyond(found, wanted, pointwise=torch.Tag.pointwise in func.tags):
                found.copy_(wanted)
                replaced.append(func)
        return result

    with KernelsBy(once):
        yield lambda: bool(replaced)


def _written(func: Any, result: Any, args: Any) -> list[Any]:
    """The results, and the arguments that the kernel writes to. Others may share their memory."""
    written = [
        value
        for argument, value in zip(func._schema.arguments, args, strict=False)
        # batch_norm writes to its running statistics, and its schema does not say so.
        if argument.is_write or argument.name.startswith("running_")
    ]
    return list(tree_leaves((result, written)))


def _is_beyond(found: torch.Tensor, exact: torch.Tensor, *, pointwise: bool) -> bool:
    """Are elements off by more than one rounding, as by rounding inside?"""
    once = exact.to(found.dtype)
    finite = found.isfinite() & once.isfinite()
    ulp = once.abs().nextafter(once.new_tensor(torch.inf)).double() - once.abs().double()
    error = (found.double() - exact).abs()
    beyond = finite & (error > _ONCE * ulp / 2)
    if pointwise and bool((beyond & (error > _GROSS * ulp / 2)).any()):
        of_all, of_once = ((value - exact)[finite].square().sum() for value in (found.double(), once.double()))
        beyond &= of_all > _RMS_ONCE**2 * of_once
    if found.dtype is torch.float16:
        beyond |= once.isfinite() & ~found.isfinite()
    return bool(beyond.any())


def _is_narrow(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype in _NARROW


def _wide(tensor: torch.Tensor, cast: torch.dtype | None) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor.to(cast or tensor.dtype).to(torch.float64) if tensor.is_floating_point() else tensor.clone()
