"""Roles of the tensors that another tensor is subscripted with: x[index], x[mask], x[:, rows, mask] = values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pytest_probe.inputs.roles import Count, Index, Role
from pytest_probe.model.dump import Argument, TensorSpec


class _Item(NamedTuple):
    """One item of a subscript: its path, how many dimensions it takes from the tensor and adds to the selection.

    Advanced items (tensors, lists) are broadcast together and add their dimensions once, all together.
    """

    value: Argument
    path: str
    takes: int
    adds: int
    advanced: bool


def subscript_roles(
    tensor: Argument, subscript: Argument, path: str, selection: Argument, overwrites: bool
) -> Iterator[tuple[str, TensorSpec, Role]]:
    """Path, tensor and role of each tensor in a subscript.

    selection is what was read from the places or is written to them; as a tensor of full rank it fixes the number of
    True in a mask. overwrites: the places must be distinct for the result to be defined.
    """
    if not isinstance(tensor, TensorSpec):
        return
    items = _items(tensor, subscript, path)
    chosen = _chosen(tensor, items, selection)
    spread = overwrites and isinstance(selection, TensorSpec)
    axis = 0
    for item in items:
        if isinstance(item.value, TensorSpec):
            if not _is_mask(item.value) and axis < len(tensor.shape):
                yield item.path, item.value, _index(item.value, tensor.shape[axis], spread)
            elif _is_mask(item.value) and chosen is not None:
                yield item.path, item.value, Count(chosen)
        axis += item.takes


def _index(spec: TensorSpec, extent: int, spread: bool) -> Index:
    """Negative indices where they were recorded; but not mixed with others where places must be distinct."""
    # Mixed signs may name one place twice: negative only where all were.
    decisive = spec.max if spread else spec.min
    negative = decisive is not None and decisive < 0
    return Index(extent, low=-extent if negative else 0, axis="all" if spread else None)


def _items(tensor: TensorSpec, subscript: Argument, path: str) -> list[_Item]:
    if isinstance(subscript, (list, tuple)):
        parts = [(value, f"{path}.{place}") for place, value in enumerate(subscript)]
    else:
        parts = [(subscript, path)]
    rest = len(tensor.shape) - sum(_takes(value) for value, _ in parts)
    return [_item(value, where, max(rest, 0)) for value, where in parts]


def _item(value: Argument, path: str, rest: int) -> _Item:
    if value is Ellipsis:
        return _Item(value, path, rest, rest, advanced=False)
    if value is None:
        return _Item(value, path, 0, 1, advanced=False)
    advanced = isinstance(value, (TensorSpec, list, tuple, range))
    return _Item(value, path, _takes(value), 1 if isinstance(value, slice) else 0, advanced)


def _takes(value: Argument) -> int:
    if value is None or value is Ellipsis or isinstance(value, bool):
        return 0
    return len(value.shape) if isinstance(value, TensorSpec) and _is_mask(value) else 1


def _is_mask(spec: TensorSpec) -> bool:
    return spec.dtype == "bool"


def _chosen(tensor: TensorSpec, items: list[_Item], selection: Argument) -> int | None:
    """How many elements the masks select, None where the selection does not say."""
    advanced = [place for place, item in enumerate(items) if item.advanced]
    if not advanced or not isinstance(selection, TensorSpec):
        return None
    untouched = len(tensor.shape) - sum(item.takes for item in items)
    together = max(_broadcast_rank(items[place].value) for place in advanced)
    if not together or len(selection.shape) != untouched + sum(item.adds for item in items) + together:
        return None
    # NumPy's rule: the common dimensions stand where the items stood if those are neighbours, else first.
    adjacent = advanced[-1] - advanced[0] + 1 == len(advanced)
    before = sum(item.adds for item in items[: advanced[0]]) if adjacent else 0
    return selection.shape[before + together - 1]


def _broadcast_rank(value: Argument) -> int:
    return len(value.shape) if isinstance(value, TensorSpec) and not _is_mask(value) else 1
