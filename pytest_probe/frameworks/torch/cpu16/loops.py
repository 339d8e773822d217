"""PyTorch: which elements a loop of torch's own CPU takes one by one, and not in vectors."""

from __future__ import annotations

import itertools

import torch


def beyond_vectors(count: int, *tensors: torch.Tensor) -> torch.Tensor:
    """A mask of the tensors' common shape: what an elementwise loop over `count` elements at once leaves over. It runs
    along the dimensions that lie in one piece, and leaves all where an operand's elements are apart there."""
    shown = torch.broadcast_tensors(*tensors)  # type: ignore[no-untyped-call]
    dims = _in_one_piece(shown)
    if not dims or any(x.stride(dims[0]) not in (0, 1) for x in shown):
        return torch.ones(shown[0].shape, dtype=torch.bool)
    places, length = torch.zeros(shown[0].shape, dtype=torch.long), 1
    for dim in dims:
        extent = places.shape[dim]
        places += (torch.arange(extent) * length).view(-1, *[1] * (places.ndim - 1 - dim))
        length *= extent
    return places >= length // count * count


def _in_one_piece(shown: tuple[torch.Tensor, ...]) -> list[int]:
    """The dimensions that one loop covers, the innermost first."""
    shape = shown[0].shape
    dims = _nested(shown, [dim for dim in range(len(shape)) if shape[dim] > 1])
    covered, length = dims[:1], 1
    for inner, dim in itertools.pairwise(dims):
        length *= shape[inner]
        if any(x.stride(dim) != x.stride(dims[0]) * length for x in shown):
            break
        covered.append(dim)
    return covered


def _nested(shown: tuple[torch.Tensor, ...], dims: list[int]) -> list[int]:
    """Dimensions in the order that loops over them have, the innermost first: as torch sorts them."""
    order = dims[::-1]
    for last in range(1, len(order)):
        at = last
        for before in reversed(range(last)):
            further = _further(shown, order[before], order[at])
            if further < 0:
                break
            if further > 0:
                order[before], order[at], at = order[at], order[before], before
    return order


def _further(shown: tuple[torch.Tensor, ...], first: int, second: int) -> int:
    """Above 0 where elements lie further apart along the first dimension than along the second, below 0 where less far.
    An operand that is broadcast along one of them says nothing."""
    for x in shown:
        strides = x.stride(first), x.stride(second)
        if 0 in strides:
            continue
        if strides[0] != strides[1]:
            return strides[0] - strides[1]
        if x.shape[first] > x.shape[second]:
            return 1
    return 0
