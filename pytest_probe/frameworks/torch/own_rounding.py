"""PyTorch: what a function gives where kernels of torch's own CPU that round inside rounded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from pytest_probe.frameworks.torch.dispatch import KernelsBy
from pytest_probe.frameworks.torch.rounding import computes

_NARROW = (torch.bfloat16, torch.float16)
# How many times the RMS of one rounding a kernel may err that adds in float32 and rounds once. It gives the bits of
# float64 rounded once but for ties, so that it errs as much; each further step of 16 bits adds a rounding.
_ONCE = 1.2


@contextmanager
def rounding_once() -> Iterator[Callable[[], bool]]:
    """In here, forward and backward, a 16-bit result of an operator of torch's that errs by more than one rounding is
    the operator's float64 result, rounded once. What it gives says at the end whether there was one. Operators of
    somebody else, and random ones, keep their results."""
    replaced: list[Any] = []

    def once(func: Any, args: Any, kwargs: Any) -> Any:
        own = func.namespace == "aten" and torch.Tag.nondeterministic_seeded not in func.tags
        if not (own and computes(func, args) and any(map(_is_narrow, tree_leaves(args)))):
            return func(*args, **kwargs)
        # Before the call, which may write to its arguments.
        wide_args, wide_kwargs = tree_map_only(torch.Tensor, _wide, (args, kwargs))
        result = func(*args, **kwargs)
        try:
            exact = func(*wide_args, **wide_kwargs)
        except (RuntimeError, TypeError):  # no kernel in float64
            return result
        for found, wanted in zip(tree_leaves(result), tree_leaves(exact), strict=True):
            if _is_narrow(found) and _is_beyond(found, wanted):
                found.copy_(wanted)
                replaced.append(func)
        return result

    with KernelsBy(once):
        yield lambda: bool(replaced)


def _is_beyond(found: torch.Tensor, exact: torch.Tensor) -> bool:
    once = exact.to(found.dtype).double()
    finite = found.isfinite() & once.isfinite()
    error, least = ((value - exact)[finite].square().sum() for value in (found.double(), once))
    return bool(error > _ONCE**2 * least)


def _is_narrow(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype in _NARROW


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(torch.float64) if tensor.is_floating_point() else tensor.detach().clone()
