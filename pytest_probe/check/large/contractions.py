"""Contractions, calls that multiply and sum: which index runs along each dimension of a tensor, and what they cost.

A tensor of such a call, an output or a gradient, is separable along each of its own indices: some rows of it follow
from the same rows of whatever else has that index. Too large ones are judged by samples of rows and columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from pytest_probe.model.run import BoundCall
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.standards.tables import classes_of, details

# One index a dimension; None for a dimension that cannot be cut (the window of a convolution), or is broadcast.
Indices: TypeAlias = tuple[str | None, ...]
Shape: TypeAlias = tuple[int, ...]

IndexValues: TypeAlias = Mapping[str, AnyArray]


class Contraction(Struct, frozen=True):
    """A product of two factors, and perhaps something added to it.

    factors and addends map an argument's name to its indices, output has the output's; extents is the number of places
    of each index. flops counts a multiplication and an addition for each term of each output element.
    """

    factors: Mapping[str, Indices]
    addends: Mapping[str, Indices]
    output: Indices
    extents: Mapping[str, int]
    flops: float

    @property
    def tensors(self) -> frozenset[str]:
        """The arguments that are tensors, by name."""
        return frozenset((*self.factors, *self.addends))

    def indices(self, name: str) -> Indices:
        """Of an argument, or of the output by any other name."""
        return self.factors.get(name) or self.addends.get(name) or self.output

    def fits(self, shape: Shape) -> bool:
        """Can the output have this shape?"""
        return len(shape) == len(self.output) and all(
            index is None or self.extents[index] == extent for index, extent in zip(self.output, shape, strict=True)
        )


def contraction(call: BoundCall) -> Contraction | None:
    """The contraction that a call makes, of arguments whose tensors have a `shape`; None where it is another call, or
    one in which no rows stand alone (groups of a convolution, results written into an argument)."""
    kind = contraction_kind(call.name)
    if not kind or call.in_place or not call.native or "out" in call.given:
        return None
    try:
        return MAKERS[kind](_Call(call))
    except (LookupError, TypeError, ValueError):
        return None  # not called as the table has it: then it is no call that can be cut


def contraction_kind(name: str) -> str:
    """How the indices of an API's tensors meet, by its canonical name; "" for anything else."""
    return next(iter(details(classes_of(name), "contraction")), "")


class _Call(Struct, frozen=True):
    """Tensors of a call, by parameter. Raises LookupError for one that is not there."""

    call: BoundCall

    def tensor(self, name: str) -> tuple[str, Shape]:
        return self.call.paths[name], shape_of(self.call.given[name])

    def optional(self, name: str) -> tuple[str, Shape] | None:
        return None if self.call.argument(name) is None else self.tensor(name)


def shape_of(value: Any) -> Shape:
    """The shape of a tensor argument, as a dump describes it or with its values. Raises TypeError for anything else."""
    shape = getattr(getattr(value, "array", value), "shape", None)
    if not isinstance(shape, tuple):
        raise TypeError("no tensor")
    return shape


def _made(
    factors: Mapping[str, tuple[Indices, Shape]],
    addends: Mapping[str, tuple[Indices, Shape]],
    output: Indices,
    window: float = 1.0,
) -> Contraction:
    """window: terms and output elements that no index counts. Raises ValueError where extents of an index differ."""
    extents: dict[str, int] = {}
    for indices, shape in (*factors.values(), *addends.values()):
        for index, extent in zip(indices, shape, strict=True):
            if index is not None and extents.setdefault(index, extent) != extent:
                raise ValueError(f"{index} is {extent} and {extents[index]}")
    return Contraction(
        {name: indices for name, (indices, _) in factors.items()},
        {name: indices for name, (indices, _) in addends.items()},
        output,
        extents,
        2.0 * window * math.prod(extents.values()),
    )


def _linear(columns: Indices) -> Callable[[_Call], Contraction]:
    """columns: the indices of the weight."""

    def made(call: _Call) -> Contraction:
        (name, shape), (weight, matrix) = call.tensor("input"), call.tensor("weight")
        bias = call.optional("bias")
        rows = tuple(f"row{place}" for place in range(len(shape) - 1))
        return _made(
            {name: ((*rows, "in"), shape), weight: (columns, matrix)},
            {} if bias is None else {bias[0]: (("out",), bias[1])},
            (*rows, "out"),
        )

    return made


def _matmul(call: _Call) -> Contraction:
    (left, one), (right, two) = call.tensor("input"), call.tensor("other")
    depth = max(len(one), len(two)) - 2
    batch = tuple(f"batch{place}" for place in range(depth))
    left_rows = _broadcast(batch, one[:-2])
    right_rows = _broadcast(batch, two[:-2])
    # An index that both sides stretch has one place, and cannot be cut.
    kept = tuple(index if index in (*left_rows, *right_rows) else None for index in batch)
    return _made(
        {left: ((*left_rows, "row", "sum"), one), right: ((*right_rows, "sum", "column"), two)},
        {},
        (*kept, "row", "column"),
    )


def _broadcast(indices: Sequence[str], shape: Shape) -> Indices:
    """The last of the indices, one a dimension, None where the dimension is stretched."""
    own = indices[len(indices) - len(shape) :]
    return tuple(None if extent == 1 else index for index, extent in zip(own, shape, strict=True))


def _added(batched: bool, sum_over_batch: bool = False) -> Callable[[_Call], Contraction]:
    """Something is added to a product, or to each of a batch, or to their sum."""

    def made(call: _Call) -> Contraction:
        (base, shape), (left, one), (right, two) = map(call.tensor, ("input", "mat1", "mat2"))
        batch = ("batch",) if batched else ()
        output: Indices = ("row", "column") if sum_over_batch else (*batch, "row", "column")
        return _made(
            {left: ((*batch, "row", "sum"), one), right: ((*batch, "sum", "column"), two)},
            {base: (_broadcast([index or "" for index in output], shape), shape)},
            output,
        )

    return made


def _einsum(call: _Call) -> Contraction:
    bound = call.call
    equation, operands = bound.argument("equation").replace(" ", ""), bound.argument("operands")
    inputs, _, output = equation.partition("->")
    terms = inputs.split(",")
    if "->" not in equation or "." in equation or len(terms) != 2 or any(len(set(term)) < len(term) for term in terms):
        raise ValueError("not two operands with an index a dimension")
    names = [bound.paths[f"operands.{place}"] for place in range(2)]
    shapes = [shape_of(operand) for operand in operands]
    factors = {name: (tuple(term), shape) for name, term, shape in zip(names, terms, shapes, strict=True)}
    return _made(factors, {}, tuple(output))


def _convolution(transposed: bool) -> Callable[[_Call], Contraction]:
    def made(call: _Call) -> Contraction:
        (name, shape), (weight, kernel) = call.tensor("input"), call.tensor("weight")
        bias = call.optional("bias")
        spatial = len(kernel) - 2
        if call.call.argument("groups") != 1 or len(shape) not in (spatial + 1, spatial + 2):
            raise ValueError("groups cannot be cut apart")
        sites: Indices = (None,) * spatial
        batch: Indices = ("batch",) if len(shape) == spatial + 2 else ()
        channels: Indices = ("in", "out") if transposed else ("out", "in")
        # Each place of the smaller map meets each place of the window once, but at edges and with strides.
        window: float = math.prod(shape[-spatial:]) * math.prod(kernel[2:])
        if not transposed:
            stride = call.call.argument("stride")
            window /= math.prod(stride) if isinstance(stride, (list, tuple)) else int(stride) ** spatial
        return _made(
            {name: ((*batch, "in", *sites), shape), weight: ((*channels, *sites), kernel)},
            {} if bias is None else {bias[0]: (("out",), bias[1])},
            (*batch, "out", *sites),
            window=window,
        )

    return made


# By the names that classes.yaml gives to contractions.
MAKERS: Mapping[str, Callable[[_Call], Contraction]] = {
    "linear": _linear(("out", "in")),
    "affine": _linear(("in", "out")),
    "matmul": _matmul,
    "added": _added(batched=False),
    "batched": _added(batched=True),
    "summed": _added(batched=True, sum_over_batch=True),
    "einsum": _einsum,
    "convolution": _convolution(transposed=False),
    "transposed": _convolution(transposed=True),
}


def free_indices(found: Contraction, name: str) -> Iterator[str]:
    """The indices along which a tensor, an argument's gradient or the output, is linear in just one of the factors that
    it is made of: there it can be held by checksums. The incoming gradient is one of a gradient's factors."""
    if name in found.addends:
        return
    of_output = name not in found.factors
    factors = [indices for factor, indices in found.factors.items() if factor != name]
    others = factors if of_output else [*factors, found.output]
    for index in found.indices(name):
        added = of_output and any(index not in indices for indices in found.addends.values())
        if index is not None and not added and sum(index in indices for indices in others) == 1:
            yield index


def cut(array: AnyArray, indices: Indices, places: IndexValues) -> AnyArray:
    """The array at some places of some of its indices."""
    for dim, index in enumerate(indices):
        if index is not None and index in places:
            array = np.take(array, places[index], axis=dim)
    return array
