"""What the role of an argument follows from: shapes and numbers of other arguments, and the call's outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from pytest_probe.inputs.roles import (
    Band,
    Boxes,
    Coordinates,
    Count,
    Ends,
    Index,
    Mask,
    Offsets,
    Parts,
    Pivots,
    Places,
    Role,
    Running,
    Size,
    Weights,
    Within,
)
from pytest_probe.model.dump import Call, TensorSpec, named_tensors
from pytest_probe.model.run import BoundCall
from pytest_probe.numerics.dtypes import PACKED


class RoleCall:
    """A recorded call as rules ask it: arguments by parameter, and what the call returned."""

    def __init__(self, bound: BoundCall, call: Call) -> None:
        self.get = bound.argument
        self.bound = bound
        self.call = call

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor argument; () for anything else."""
        value = self.get(name)
        return value.shape if isinstance(value, TensorSpec) else ()

    def extent(self, name: str, axis: int) -> int | None:
        """The places of a tensor argument along an axis; None where it has no such axis."""
        return _extent(self.shape(name), axis)

    def returned(self, axis: int) -> int | None:
        """The same of the output."""
        return _extent(() if self.output is None else self.output.shape, axis)

    @property
    def output(self) -> TensorSpec | None:
        """The first tensor that the call returned, as far as the dump has it."""
        return next((spec for _, spec in named_tensors(self.call.outputs)), None)


def _extent(shape: tuple[int, ...], axis: int) -> int | None:
    return shape[axis] if -len(shape) <= axis < len(shape) else None


RoleRule: TypeAlias = Callable[[RoleCall, TensorSpec], "Role | None"]
RoleRules: TypeAlias = Mapping[str, RoleRule]


def always(role: Role) -> RoleRule:
    return lambda asked, spec: role


# What the table itself applies: the tensors in a subscript, and tensors that give a size, alone or in a list.
subscript, size = always(Size()), always(Size())


def known(make: Callable[[int], Role], number: int | None) -> Role | None:
    """The role of this number; none where it is not known."""
    return None if number is None else make(number)


def below(name: str, axis: int) -> RoleRule:
    """An index along a fixed axis of another argument."""
    return lambda asked, spec: known(Index, asked.extent(name, axis))


def along(distinct: Callable[[RoleCall], bool] = lambda asked: False) -> RoleRule:
    """An index along the axis `dim` of `input`; distinct where the result depended on the order of writes."""

    def rule(asked: RoleCall, spec: TensorSpec) -> Role | None:
        shape, axis = asked.shape("input"), asked.get("dim")
        if isinstance(axis, bool) or not isinstance(axis, int) or not -len(shape) <= axis < max(len(shape), 1):
            return None
        within = axis % len(shape) if shape else 0
        role = Index(shape[within] if shape else 1)
        if not distinct(asked):
            return role
        return replace(role, axis=within if len(spec.shape) == len(shape) > 0 else "all")

    return rule


def overwrites(asked: RoleCall) -> bool:
    return isinstance(asked.get("source"), TensorSpec) and asked.get("reduce") is None


def flat(distinct: bool = False) -> RoleRule:
    """An index into all elements of `input`."""

    def rule(asked: RoleCall, spec: TensorSpec) -> Role | None:
        overwrites = distinct and not asked.get("accumulate")
        return Index(math.prod(asked.shape("input")), axis="all" if overwrites else None)

    return rule


def take_along_dim(asked: RoleCall, spec: TensorSpec) -> Role | None:
    return (flat() if asked.get("dim") is None else along())(asked, spec)


def label(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """A class of `input`: (C), (N, C) or (N, C, ...), or along `class_dim` where the API says which it is."""
    shape, dim = asked.shape("input"), asked.get("class_dim")
    ignored = asked.get("ignore_index")
    if not shape:
        return None
    dim = dim if type(dim) is int and -len(shape) <= dim < len(shape) else min(1, len(shape) - 1)
    return Index(shape[dim], ignored=ignored if isinstance(ignored, int) else None)


def classes(asked: RoleCall, spec: TensorSpec) -> Role | None:
    count = asked.get("num_classes")
    return Index(count) if isinstance(count, int) and count > 0 else None


def coordinates(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """Rows of indices into the first dimensions of `input`, or of what `size` says."""
    size = asked.get("size")
    shape = asked.shape("input") or (tuple(size) if isinstance(size, (list, tuple)) else ())
    known = shape and spec.shape and all(isinstance(extent, int) for extent in shape[: spec.shape[-1]])
    return Coordinates(shape[: spec.shape[-1]]) if known else None


def among(name: str) -> RoleRule:
    """Which tensor of a list."""

    def rule(asked: RoleCall, spec: TensorSpec) -> Role | None:
        listed = asked.get(name)
        return Index(len(listed)) if isinstance(listed, (list, tuple)) else None

    return rule


def corners(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """Boxes inside images of (N, C, H, W)."""
    image = asked.shape("input")
    return Boxes(image[-2:]) if len(image) == 4 and spec.shape[-1:] == (4,) else None


def cut_offs(asked: RoleCall, spec: TensorSpec) -> Role | None:
    last = asked.get("cutoffs")
    known = isinstance(last, (list, tuple)) and last and isinstance(last[-1], int)
    return Index(last[-1]) if known else None


def boxes(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """How many boxes each image has."""
    return known(Parts, asked.extent("boxes", 0))


def last_class(low: int) -> RoleRule:
    return lambda asked, spec: known(lambda stop: Index(stop, low=low), asked.extent("input", -1))


def one_hot(asked: RoleCall, spec: TensorSpec) -> Role | None:
    return classes(asked, spec) or Index(asked.returned(-1))


def bin(asked: RoleCall, spec: TensorSpec) -> Role | None:
    return Index(asked.returned(0))


def unpool(dimensions: int) -> RoleRule:
    def rule(asked: RoleCall, spec: TensorSpec) -> Role | None:
        output = asked.output
        plane = _unpooled(asked, spec, dimensions) if output is None else output.shape[-dimensions:]
        return Places(None if plane is None else math.prod(plane), dimensions)

    return rule


def _unpooled(asked: RoleCall, spec: TensorSpec, dimensions: int) -> tuple[int, ...] | None:
    """The plane that the call says, or that its windows lead to."""
    size, kernel = asked.get("output_size"), asked.get("kernel_size")
    if isinstance(size, (list, tuple)):
        return tuple(size[-dimensions:])
    pairs = [
        _each_of(value, dimensions) for value in (kernel, asked.get("stride") or kernel, asked.get("padding") or 0)
    ]
    if any(pair is None for pair in pairs):
        return None
    windows, steps, padding = (pair or [] for pair in pairs)
    plane = zip(spec.shape[-dimensions:], windows, steps, padding, strict=True)
    return tuple((extent - 1) * step - 2 * pad + window for extent, window, step, pad in plane)


def _each_of(value: object, dimensions: int) -> list[int] | None:
    """One number a dimension; None for anything else."""
    values = list(value) if isinstance(value, (list, tuple)) else [value] * dimensions
    numbers = [each for each in values if type(each) is int]
    return numbers if len(numbers) == len(values) == dimensions else None


def unravel(asked: RoleCall, spec: TensorSpec) -> Role | None:
    shape = asked.get("shape")
    extents = getattr(shape, "shape", shape)
    return Index(math.prod(extents) if isinstance(extents, (list, tuple)) else None)


def offsets(asked: RoleCall, spec: TensorSpec) -> Role | None:
    return Offsets(math.prod(asked.shape("input")), closed=bool(asked.get("include_last_offset")))


def not_blank(scores: str) -> RoleRule:
    """A label of these scores. A blank in a target is undefined; it can be left out at either end only."""

    def rule(asked: RoleCall, spec: TensorSpec) -> Role | None:
        stop, blank = asked.extent(scores, -1), asked.get("blank")
        return None if stop is None else Index(stop - (blank == stop - 1), low=int(blank == 0))

    return rule


def ctc_input_lengths(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """Long enough for every target with a blank after each label, which repeated labels need."""
    steps, targets = asked.shape("log_probs")[:1], asked.shape("targets")
    if not steps or not targets:
        return None
    lengths = spec.size if len(targets) == 1 and spec.shape else 1
    return Index(steps[0] + 1, low=min(steps[0], 2 * -(-targets[-1] // max(lengths, 1))))


def ctc_target_lengths(asked: RoleCall, spec: TensorSpec) -> Role | None:
    targets, steps = asked.shape("targets"), asked.shape("log_probs")[:1]
    if len(targets) == 1 and spec.shape:
        return Parts(targets[0])
    return Index(min(*targets[-1:], *steps) + 1) if targets and steps else None


def ctc_target_lengths_from_one(asked: RoleCall, spec: TensorSpec) -> Role | None:
    role = ctc_target_lengths(asked, spec)
    return replace(role, low=1) if isinstance(role, Index) else role


def rnnt_input_lengths(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """Scores are (batch, steps, labels and a blank, classes); all steps count."""
    shape = asked.shape("input")
    return Index(shape[1] + 1, low=shape[1]) if len(shape) == 4 else None


def rnnt_target_lengths(asked: RoleCall, spec: TensorSpec) -> Role | None:
    shape = asked.shape("input")
    return Index(shape[2], low=min(1, shape[2] - 1)) if len(shape) == 4 else None


def pivots(matrix: str) -> RoleRule:
    return lambda asked, spec: known(Pivots, asked.extent(matrix, -2))


def masked_select(asked: RoleCall, spec: TensorSpec) -> Role | None:
    selected = asked.returned(0)
    if selected is None:
        return None
    # The mask is broadcast: each True of it selects as many elements as there are copies.
    everything = math.prod(np.broadcast_shapes(asked.shape("input"), spec.shape))
    return Count(selected * spec.size // everything) if everything else None


def masked_scatter(asked: RoleCall, spec: TensorSpec) -> Role | None:
    copies = math.prod(np.broadcast_shapes(asked.shape("input"), spec.shape)) // max(spec.size, 1)
    available = math.prod(asked.shape("source")) // max(copies, 1)
    return Count(min(available, spec.size // 2)) if isinstance(asked.get("source"), TensorSpec) else None


def nonzero(asked: RoleCall, spec: TensorSpec) -> Role | None:
    return known(Count, asked.returned(0))


def where(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """The role of a call with one argument, which is nonzero."""
    return nonzero(asked, spec) if len(asked.bound.given) == 1 else None


def hidden_keys(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """Of a fused attention: the triangle that stands for its sparse mode, or what its limits leave."""
    if len(spec.shape) < 2:
        return None
    if asked.get("sparse_mode") not in (0, 1):
        return Band(1 << 31, 0)
    limits = [asked.get(name) for name in ("pre_tockens", "next_tockens")]
    unlimited = all(isinstance(each, int) and each >= max(spec.shape[-2:]) for each in limits)
    if asked.get("sparse_mode") == 1 or unlimited or not all(isinstance(each, int) for each in limits):
        return Mask(attends=False)
    return Band(*limits)


def groups(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """Of a product of groups: their extents, or their ends, along the rows or columns of the only operand."""
    operands = asked.get("input")
    if len(spec.shape) != 1 or not isinstance(operands, (list, tuple)) or len(operands) != 1:
        return None
    extent = operands[0].shape[1 if asked.get("group_type") == 2 else 0]
    return Parts(extent) if asked.get("group_list_type") == 1 else Ends(extent)


def ends(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """Where groups end: of rows of the first operand, of columns of the second, or, where neither is a stack of
    matrices, of places of the sum."""
    a, b = asked.shape("input"), asked.shape("mat2")
    if len(a) == 2 and len(b) == 3:
        return Ends(a[0])
    if len(a) == 3 and len(b) == 2:
        return Ends(b[1])
    numbers = 2 if asked.get("input").dtype == PACKED else 1
    return Ends(a[1] * numbers) if len(a) == len(b) == 2 else None


def repeats(asked: RoleCall, spec: TensorSpec) -> Role | None:
    if asked.output is None or not asked.output.shape or spec.size < 2:
        return None
    axis = asked.get("dim")
    return known(Parts, asked.returned(axis)) if isinstance(axis, int) else Parts(asked.output.size)


def running(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """The role for a packed batch; otherwise this argument is the hidden state."""
    return known(Running, asked.extent("data", 0))


def drawn(asked: RoleCall, spec: TensorSpec) -> Role | None:
    count = asked.get("num_samples")
    return Weights(1 if asked.get("replacement") or not isinstance(count, int) else count)


def divergence_target(asked: RoleCall, spec: TensorSpec) -> Role | None:
    return None if asked.get("log_target") else Within()


probability = always(Within(0.0, 1.0))
positive = always(Within())
