"""PyTorch: its scaled and its grouped products of matrices as formulas, which float64 on the CPU can compute.

What `torch._scaled_mm` infers from the dtypes and shapes of its scales is settled before a run, in which they are
float64: ATen/native/cuda/ScaledBlas.cpp, GroupedBlas.cpp and torch/_meta_registrations.py of torch 2.13 say how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from pytest_probe.errors import NoReference
from pytest_probe.frameworks.torch.signatures import bind
from pytest_probe.model.run import BoundCall
from pytest_probe.model.scaled_product import Scaling, checked_matrix, listed, operands, scaling_of
from pytest_probe.numerics.scaled import stored_count
from pytest_probe.references.arguments import check_shapes, check_unset
from pytest_probe.references.scaled import Scales, numbers, scaled_matmul, scaled_product

# By whom they are called: `torch.nn.functional`'s functions call the private ones, which captures record.
SCALED = frozenset(("scaled_mm", "_scaled_mm", "_scaled_mm_v2"))
SCALED_GROUPED = frozenset(("scaled_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2"))
_UNSCALED = frozenset(("grouped_mm", "_grouped_mm"))
PRODUCTS = SCALED | SCALED_GROUPED | _UNSCALED
_NONE = Scaling()


def formula(api: str, bound: BoundCall) -> Callable[..., Any]:
    """The formula of one of PRODUCTS, which torch has no float64 kernel of. bound: its arguments. Raises BrokenCall
    where operands or scales are none of the recipe's, NoReference where devices differ."""
    name = api.rpartition(".")[2]
    check_unset(scale_result=bound.argument("scale_result"))  # the CPU divides by it, cuBLAS multiplies with it
    if name in _UNSCALED:
        return partial(_grouped, api, (_NONE, _NONE))
    if name in SCALED:
        first, second = operands(bound)
        return partial(_scaled_mm, api, (first.scaling, second.scaling))
    for side in "ab":
        checked_matrix(bound, side)
    return partial(_grouped, api, (scaling_of(bound, "a", None), scaling_of(bound, "b", None)))


def _scaled_mm(api: str, scaling: tuple[Scaling, Scaling], /, *args: Any, **kwargs: Any) -> torch.Tensor:
    call = bind(api, args, kwargs)
    first, second = scaling
    return scaled_matmul(
        call.argument("input"),
        call.argument("mat2"),
        listed(call.argument("scale_a")),
        listed(call.argument("scale_b")),
        first.recipes,
        second.recipes,
        (first.order, second.order),
        call.argument("bias"),
    )


def _grouped(api: str, scaling: tuple[Scaling, Scaling], /, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Rows, columns or places of the sum that belong together, or matrices of a stack: a product for each group."""
    call = bind(api, args, kwargs)
    check_unset(bias=call.argument("bias"))
    scaled_by = [listed(call.argument(f"scale_{side}")) if scaling[0].recipes else [] for side in "ab"]
    dtype = scaled_by[0][0].dtype if scaled_by[0] else torch.float64
    a, b = numbers(call.argument("input"), dtype), numbers(call.argument("mat2"), dtype, -2)
    groups = list(_groups(a, b, call.argument("offs")))
    lefts, rights = [left for left, _ in groups], [right.t() for _, right in groups]
    of_lefts = _scales_of_each(lefts, scaled_by[0], scaling[0], ragged=a.dim() == 2)
    of_rights = _scales_of_each(rights, scaled_by[1], scaling[1], ragged=b.dim() == 2)
    parts = [scaled_product(*each) for each in zip(lefts, rights, of_lefts, of_rights, strict=True)]
    return torch.stack(parts) if a.dim() == b.dim() else torch.cat(parts, 0 if a.dim() == 2 else 1)


def _groups(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The matrices of each group. offs: where each one ends along the dimension that they share."""
    check_shapes(
        {a.dim(), b.dim()} <= {2, 3} and (offs is None) == (a.dim() == b.dim() == 3),
        f"operands of {a.dim()} and {b.dim()} dimensions {'without' if offs is None else 'with'} offs",
        "2 or 3 each, and offs where one has 2",
    )
    if offs is None:
        yield from zip(a, b, strict=True)
        return
    ends = [int(end) for end in offs.tolist()]
    extent = b.shape[-1] if a.dim() == 3 else a.shape[0] if b.dim() == 3 else a.shape[1]
    check_shapes(
        [0, *ends] == sorted([0, *ends]) and ends[-1:] <= [extent],
        f"offs {ends} for {extent} places",
        "ends of groups that rise up to that",
    )
    if a.dim() != b.dim() and ends[-1:] != [extent]:
        raise NoReference(f"offs end at {ends[-1]} of {extent}: nothing writes the rest of the output")
    for place, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if a.dim() == b.dim():
            yield a[:, start:end], b[start:end]
        elif a.dim() == 2:
            yield a[start:end], b[place]
        else:
            yield a[place], b[:, start:end]


def _scales_of_each(
    matrices: list[torch.Tensor], scales: Sequence[torch.Tensor], scaling: Scaling, *, ragged: bool
) -> list[Scales]:
    """The scales of each group's matrix, which are stored one group after the other; those of a whole tensor may be one
    for all groups. ragged: groups have any number of rows, so that programs store as many tiles as they may take."""
    if not scaling.recipes:
        return [Scales()] * len(matrices)
    counts = [stored_count(scaling.recipes[0], (each.shape[0], each.shape[1]), scaling.order) for each in matrices]
    stored, wanted = scales[0].reshape(-1), sum(counts)
    spare = ragged and scaling.order == "swizzled" and stored.numel() > wanted
    check_shapes(
        stored.numel() == wanted or spare,
        f"{stored.numel()} scales of {len(matrices)} groups",
        f"{wanted}, {counts} of each group",
    )
    found = []
    for place, own in enumerate(torch.split(stored[:wanted], counts)):
        further = [each.reshape(-1)[place if each.numel() > 1 else 0, None] for each in scales[1:]]
        found.append(Scales([own, *further], scaling.recipes, scaling.order))
    return found
