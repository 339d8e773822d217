"""What all references do with their arguments."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from pytest_probe.errors import BrokenCall, NoReference


def at_least_float32(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the dtype in which kernels compute with it."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def check_known(argument: str, value: object, known: Iterable[object]) -> None:
    """Raises NoReference for a value that the formula does not cover."""
    known = tuple(known)
    if value not in known:
        raise NoReference(f"{argument}={value!r}: the reference knows {', '.join(map(repr, known))}")


def check_unset(**arguments: object) -> None:
    """Raises NoReference for an argument that is given and that the formula does not have."""
    for name, value in arguments.items():
        if value is not None and value != []:
            raise NoReference(f"{name} is {_displayed(value)}: the reference knows calls without it")


def _displayed(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_displayed, value))}]"
    return repr(value)


def check_shapes(holds: bool, found: str, wanted: str) -> None:
    """Raises BrokenCall where shapes contradict the operator."""
    if not holds:
        raise BrokenCall(f"found {found}, expected {wanted}")


def is_broadcast(tensor: torch.Tensor, to: torch.Size | tuple[int, ...]) -> bool:
    """May a tensor be broadcast to a shape?"""
    extents = zip(tensor.shape[::-1], tuple(to)[::-1], strict=False)
    return tensor.dim() <= len(to) and all(one in (1, other) for one, other in extents)
