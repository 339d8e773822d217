"""PyTorch: calls made of others, under an autocast that casts for those: each kernel in float64, rounded once.

What is float32 in such a call and what is 16 bit, forward and backward, only the call itself tells: it runs in its own
dtypes, and every kernel's numbers are replaced by those of float64, rounded to the kernel's dtype (and inside, where
the CPU's kernel is known to), so that a kernel that is wrong excuses nothing.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from pytest_probe.frameworks.torch_steps import StepsMode, only_moves

NARROW = (torch.bfloat16, torch.float16)
FLOATS = (*NARROW, torch.float32)


@functools.cache
def casts(path: str) -> bool:
    """Does an autocast cast the arguments of this function ("torch.nn.functional.linear") itself?"""
    *parents, name = path.replace("__", "").split(".")
    prefix = f"{parents[-1]}_" if parents and parents[-1] in ("linalg", "special", "fft") else ""
    packet = getattr(torch.ops.aten, prefix + name, None)
    names = [] if packet is None else [getattr(packet, overload)._name for overload in packet.overloads()]
    known = (full for full in names if torch._C._dispatch_has_kernel(full))
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(full, "AutocastCPU") for full in known)


class KernelsMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives every kernel's results the numbers that float64 gives, rounded to their dtype.

    Raises NotImplementedError at a kernel that float64 has not.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        wide_args, wide_kwargs = tree_map_only(torch.Tensor, _wide, (args, kwargs))
        if wide_kwargs.get("dtype") in FLOATS:
            wide_kwargs["dtype"] = torch.float64
        result = func(*args, **kwargs)
        if only_moves(func):
            return result
        found = [tensor for tensor in tree_leaves(result) if isinstance(tensor, torch.Tensor)]
        if not any(tensor.dtype in FLOATS for tensor in found):
            return result
        exact = self._exact(func, wide_args, wide_kwargs, found)
        wanted = [tensor for tensor in tree_leaves(exact) if isinstance(tensor, torch.Tensor)]
        for tensor, number in zip(found, wanted, strict=True):
            if tensor.dtype in FLOATS:
                tensor.data.copy_(number)
        return result

    def _exact(self, func: Any, args: Any, kwargs: Any, found: list[torch.Tensor]) -> Any:
        narrow = next((tensor.dtype for tensor in found if tensor.dtype in NARROW), None)
        try:
            if narrow is None:
                return func(*args, **kwargs)
            with StepsMode(narrow, fine=False):
                return func(*args, **kwargs)
        except (RuntimeError, TypeError) as error:
            raise NotImplementedError(f"{func} in float64: {error}") from error


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(torch.float64) if tensor.dtype in FLOATS else tensor.detach().clone()
