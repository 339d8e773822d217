"""A drawn call: its structure as hypothesis drew it, and the arguments that a seed gives it. Of a scaled product of
other sizes than the record's, as many scales as the recipe asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.errors import BrokenCall
from pytest_probe.features.fuzz import scaled
from pytest_probe.features.fuzz.regimes import Limits, floats
from pytest_probe.frameworks.base import Signatures
from pytest_probe.inputs.draws import RecordStreams, round_to_dtype
from pytest_probe.inputs.fills import resize
from pytest_probe.inputs.generated import generate, kind_of
from pytest_probe.inputs.memory import layout_strides
from pytest_probe.inputs.role_table import roles
from pytest_probe.inputs.roles import Role
from pytest_probe.model.dump import Call, Surroundings, TensorSpec
from pytest_probe.model.run import Arguments, Leaf, map_tree, mapped
from pytest_probe.model.scaled_product import Scaling, listed, scaling_of
from pytest_probe.numerics.dtypes import PACKED, dtype_name, numpy_dtype
from pytest_probe.numerics.scaled import TILE_COLUMNS, TILE_ROWS, Order

# A view of memory that begins one element after an aligned address, as a layout in addition to those of `strides`.
_OFFSET = "offset"
EXPANDED = "expanded"
LAYOUTS = ("contiguous", "transposed", "sliced", EXPANDED, _OFFSET, "channels_last")
# Kernels of 8 and 4 bits take rows of so many bytes: ATen/native/cuda/ScaledBlas.cpp asks it of K and of N.
_BYTES = 16
_Shape = tuple[int, ...]


class DrawnTensor(Struct, frozen=True):
    """A tensor by its structure and the law of its contents; recorded is the one that it was drawn around."""

    shape: tuple[int, ...]
    dtype: str
    layout: str = "contiguous"
    regime: str = "gaussian"
    requires_grad: bool = False
    recorded: TensorSpec | None = None

    @property
    def spec(self) -> TensorSpec:
        """The tensor as a dump would describe it."""
        found = TensorSpec(self.dtype, self.shape) if self.recorded is None else resize(self.recorded, self.shape)
        strides = None if self.layout == _OFFSET else layout_strides(self.layout, self.shape)
        return replace(
            found, dtype=self.dtype, stride=strides, data_name=None, requires_grad=self.requires_grad, address=None
        )

    def numbers(self, role: Role | None, rng: np.random.Generator, limits: Limits) -> Any:
        """Contents, by the tensor's role where it has one, else by its regime."""
        spec = TensorSpec(self.dtype, self.shape) if self.recorded is None else self.spec
        kind = kind_of(self.dtype)
        if role is not None and spec.size and kind in role.kinds:
            return role.make(replace(spec, stride=None), rng)
        if kind == "float":
            return floats(self.regime, self.dtype, self.shape, self.recorded, rng, limits=limits)
        return generate(replace(spec, stride=None), rng)

    def __str__(self) -> str:
        layout = "" if self.layout == "contiguous" else f" {self.layout}"
        return f"{self.dtype}{list(self.shape)}{layout} {self.regime}"


class DrawnCall(Struct, frozen=True, dict=True):
    """A call of an API ("Functional.softmax") whose arguments are trees with a DrawnTensor for each tensor.
    The same seed gives the same contents; limits keep them within what the API can compute."""

    api: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    seed: int
    signatures: Signatures
    limits: Limits = field(default_factory=Limits)

    def call(self) -> Call:
        """The call as a dump would describe it, without outputs, and with unknown incoming gradients."""

        def spec(value: Any, _: str) -> Any:
            return value.spec if isinstance(value, DrawnTensor) else value

        args, kwargs = map_tree(self.args, "input", spec), map_tree(dict(self.kwargs), "kwargs", spec)
        return Call(args, kwargs, None, (), surroundings=Surroundings())

    def arguments(self, call: Call) -> Arguments:
        """The arguments; call is what `call` gives. What an argument must be for other reasons than its regime (an
        index, a probability) holds."""
        bound = self.signatures.bind(self.api, call.args, call.kwargs)
        found, streams = roles(bound, call), RecordStreams(self.api, self.seed)
        products = scaled.places_of(bound)

        def leaf(value: Any, path: str) -> Any:
            if not isinstance(value, DrawnTensor):
                return value
            rng, strides = streams.at(path), None
            if value.layout != _OFFSET:
                strides = layout_strides(value.layout, value.shape)
            numbers = value.numbers(found.get(path), rng, self.limits)
            for place, of_product in products.items():
                if path == place or path.startswith(f"{place}."):  # in a list of scales
                    numbers = scaled.changed(of_product, numbers, value.dtype, rng)
            if value.layout == EXPANDED and numbers.size:
                numbers = np.array(np.broadcast_to(numbers[:1], numbers.shape))
            array = np.asarray(round_to_dtype(np.asarray(numbers), value.dtype))
            offset = int(value.layout == _OFFSET)
            return Leaf(array, value.requires_grad, strides if numbers.size else None, offset)

        args, kwargs = map_tree(self.args, "input", leaf), map_tree(dict(self.kwargs), "kwargs", leaf)
        if products:
            scaled.give_largest_scale(self.signatures.bind(self.api, args, kwargs), streams.at("largest scale"))
        return Arguments(args, kwargs, ())

    def __str__(self) -> str:
        return _call_text(self.api, self.args, self.kwargs)

    @cached_property
    def with_seed(self) -> str:
        """Its text with the seed, which differs for different calls."""
        return f"{self} (seed {self.seed})"


class _Words(str):
    """What represents a tensor in the text of a call."""

    __slots__ = ()


def arguments_text(api: str, arguments: Arguments) -> str:
    """A call in one line, its tensors by dtype, shape and strides: "softmax(float32[3, 17], dim=-1)"."""

    def shown(value: Any, _: str) -> Any:
        if not isinstance(value, Leaf):
            return value
        layout = f" strides {list(value.strides)}" if value.strides is not None else ""
        return _Words(f"{dtype_name(value.array.dtype)}{list(value.array.shape)}{layout}")

    found = mapped(arguments, shown)
    return _call_text(api, found.args, found.kwargs)


def _call_text(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """A call in one line: "softmax(float32[3, 17] ties, dim=-1)"."""
    words = [_displayed(value) for value in args]
    words += [f"{name}={_displayed(value)}" for name, value in kwargs.items()]
    return f"{api.rpartition('.')[2]}({', '.join(words)})"


def _displayed(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_displayed, value))}]"
    return str(value) if isinstance(value, (DrawnTensor, _Words)) else repr(value)


def fitted(drawn: DrawnCall) -> DrawnCall:
    """The call with K and N that kernels take, and scales and a bias of shapes that go with them; any other call, one
    of groups included, as it is."""
    bound = drawn.signatures.bind(drawn.api, drawn.args, drawn.kwargs)
    if not {"scale_a", "scale_b", "mat2"} <= bound.paths.keys() or "offs" in bound.paths:
        return drawn
    a, b = bound.given["input"], bound.given["mat2"]
    if not all(isinstance(each, DrawnTensor) and len(each.shape) == 2 for each in (a, b)):
        return drawn
    inner, columns = (-(-each.shape[1] // _BYTES) * _BYTES for each in (a, b))
    shapes: dict[str, _Shape] = {bound.paths["input"]: (a.shape[0], inner), bound.paths["mat2"]: (inner, columns)}
    if isinstance(bound.given.get("bias"), DrawnTensor):
        shapes[bound.paths["bias"]] = (columns,)
    try:
        for side, matrix, rows in (("a", a, a.shape[0]), ("b", b, columns)):
            # Rows of numbers that a product adds up, as the record had them.
            assert matrix.recorded is not None
            first, second = matrix.recorded.shape if side == "a" else matrix.recorded.shape[::-1]
            before, after = (first, _numbers(matrix, second)), (rows, _numbers(matrix, inner))
            scaling, given = _recorded_scaling(drawn, side, before), bound.given[f"scale_{side}"]
            path = bound.paths[f"scale_{side}"]
            paths = [f"{path}.{place}" for place in range(len(given))] if isinstance(given, (list, tuple)) else [path]
            for place, (each, value, recipe) in enumerate(zip(paths, listed(given), scaling.recipes, strict=True)):
                order: Order = "grid" if place else scaling.order
                stored = _shapes(order, *recipe.blocks(before)), _shapes(order, *recipe.blocks(after))
                pairs = zip(*stored, strict=True)
                found = next((new for old, new in pairs if old == value.recorded.shape), None)
                if found is None:  # scales of no recipe
                    return drawn
                shapes[each] = found
    except BrokenCall:
        return drawn

    def reshaped(value: Any, path: str) -> Any:
        return replace(value, shape=shapes[path]) if path in shapes and isinstance(value, DrawnTensor) else value

    args, kwargs = map_tree(drawn.args, "input", reshaped), map_tree(dict(drawn.kwargs), "kwargs", reshaped)
    return replace(drawn, args=args, kwargs=kwargs)


def _numbers(matrix: DrawnTensor, extent: int) -> int:
    return extent * 2 if matrix.dtype == PACKED else extent


def _recorded_scaling(drawn: DrawnCall, side: str, shape: tuple[int, int]) -> Scaling:
    """How the record scales an operand, which recipes, dtypes and shapes say."""

    def array(value: Any, _: str) -> Any:
        if not isinstance(value, DrawnTensor) or value.recorded is None:
            return value
        return np.broadcast_to(np.zeros((), numpy_dtype(value.dtype)), value.recorded.shape)

    args, kwargs = map_tree(drawn.args, "input", array), map_tree(dict(drawn.kwargs), "kwargs", array)
    return scaling_of(drawn.signatures.bind(drawn.api, args, kwargs), side, shape)


def _shapes(order: Order, rows: int, columns: int) -> Sequence[_Shape]:
    """The shapes that so many blocks may be stored in."""
    wide = -(-columns // TILE_COLUMNS) * TILE_COLUMNS
    if order == "swizzled":
        high = -(-rows // TILE_ROWS) * TILE_ROWS
        return (high * wide,), (high, wide)
    if order == "columns first":
        return (columns, rows), (wide, rows), (columns * rows,)
    return (rows, columns), (rows * columns,), (1, rows * columns), ()
