"""A drawn call: its structure as hypothesis drew it, and the arguments that a seed gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

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
from pytest_probe.numerics.dtypes import dtype_name

# A view of memory that begins one element after an aligned address, as a layout in addition to those of `strides`.
_OFFSET = "offset"
EXPANDED = "expanded"
LAYOUTS = ("contiguous", "transposed", "sliced", EXPANDED, _OFFSET, "channels_last")


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
            of_product = scaled.kind_at(products, path)
            numbers = scaled.changed(of_product, numbers, value.dtype, rng) if of_product else numbers
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
