"""The tensors that `probe.tensor` makes: what a test asks for, checked, and the values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from pytest_probe.errors import SettingsError
from pytest_probe.inputs.draws import round_to_dtype
from pytest_probe.inputs.fills import FILLS, describe_array, fill_values, resize
from pytest_probe.inputs.generated import generate, kind_of
from pytest_probe.inputs.memory import LAYOUTS, layout_strides
from pytest_probe.inputs.planted import values_like
from pytest_probe.model.dump import TensorSpec
from pytest_probe.model.run import Leaf
from pytest_probe.numerics.dtypes import DTYPES
from pytest_probe.records.fields import Fields
from pytest_probe.records.msprobe.entries import tensor as read_tensor
from pytest_probe.system.text import one_of

Take = Callable[[Any], Any]


class Request(Struct, frozen=True):
    """What a test asked for; None where it did not say."""

    shape: Iterable[int] | int | None
    dtype: object
    low: float | None
    high: float | None
    like: object
    fill: str | None
    layout: str
    index_below: int | None

    def leaf(self, rng: np.random.Generator, take: Take) -> Leaf:
        """The tensor. take brings the framework's own from the device. Raises SettingsError where the request cannot
        be met."""
        self._check_words()
        spec, strides = self._spec(take)
        return Leaf(round_to_dtype(self._values(spec[0], rng), spec[1]), False, strides)

    def _spec(self, take: Take) -> tuple[tuple[TensorSpec, str], tuple[int, ...] | None]:
        """The tensor to draw, the dtype to round it to, and its strides."""
        like = None if self.like is None else self._like(take)
        shape = _shape(self.shape) if self.shape is not None or like is None else like.shape
        spec = self._drawn(shape) if like is None else resize(like, shape)
        dtype = spec.dtype if self.dtype is None else dtype_name(self.dtype)
        if kind_of(dtype) != kind_of(spec.dtype):
            raise _refused("dtype, like", (dtype, spec.dtype), "give a dtype of the kind that like has")
        try:
            strides = layout_strides(self.layout, shape)
        except ValueError as error:
            raise _refused("layout", self.layout, f"it needs {error}; this one is {list(shape)}") from None
        return (spec, dtype), strides

    def _values(self, spec: TensorSpec, rng: np.random.Generator) -> Any:
        if self.layout == "expanded" and spec.size:
            one = resize(spec, (1, *spec.shape[1:]))
            return np.broadcast_to(self._plain_values(one, rng), spec.shape)
        return self._plain_values(spec, rng)

    def _plain_values(self, spec: TensorSpec, rng: np.random.Generator) -> Any:
        if self.fill is not None:
            return fill_values(self.fill, spec, rng)
        return generate(spec, rng) if self.like is None else values_like(spec, rng)

    def _check_words(self) -> None:
        if self.fill is not None and self.fill not in FILLS:
            raise _refused("fill", self.fill, one_of(FILLS, str(self.fill)))
        if self.layout not in LAYOUTS:
            raise _refused("layout", self.layout, one_of(LAYOUTS, str(self.layout)))
        ways = {"like": self.like, "low, high": self.low, "index_below": self.index_below}
        given = [name for name, value in ways.items() if value is not None]
        given += ["fill"] if self.fill is not None and (self.like is not None or self.fill in FILLS[:2]) else []
        if len(given) > 1:
            raise _refused(" and ".join(given), "both", "each says what the values are; give one of them")

    def _drawn(self, shape: tuple[int, ...]) -> TensorSpec:
        """A tensor of which a range is known, or nothing."""
        if self.index_below is None:
            return TensorSpec(dtype_name(self.dtype or "float32"), shape, *_range(self.low, self.high))
        dtype = dtype_name(self.dtype or "int64")
        if kind_of(dtype) != "integer":
            raise _refused("dtype", dtype, "indices are integers: give int64 or int32")
        if self.index_below < 1:
            raise _refused("index_below", self.index_below, "give the size that is indexed, 1 or more")
        return TensorSpec(dtype, shape, self.index_below - 1, 0)

    def _like(self, take: Take) -> TensorSpec:
        """What a dump says of a tensor, as its JSON has it or as a record has it; or a tensor, described so."""
        if isinstance(self.like, TensorSpec):
            return self.like
        if isinstance(self.like, Mapping):
            return read_tensor(Fields(Path("probe.tensor"), "like"), self.like, "like")
        leaf = take(self.like)
        if not isinstance(leaf, Leaf):
            raise _refused(
                "like", self.like, "give a tensor, or a tensor's entry of a dump: {'dtype': ..., 'Max': ...}"
            )
        return describe_array(leaf.array)


def dtype_name(dtype: object) -> str:
    """The name of a dtype, which may be the framework's. Raises SettingsError."""
    name = str(dtype).removeprefix("torch.")
    try:
        kind_of(name)
    except ValueError:
        raise _refused("dtype", name, one_of(DTYPES, name)) from None
    return name


def _shape(shape: Iterable[int] | int | None) -> tuple[int, ...]:
    if shape is None:
        raise _refused("shape", shape, "give the sizes, or a tensor with like=")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(size < 0 for size in sizes):
        raise _refused("shape", sizes, "sizes are 0 or more")
    return sizes


def _range(low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """Maximum and minimum, in the order of a TensorSpec."""
    if (low is None) != (high is None) or (low is not None and high is not None and not low <= high):
        raise _refused("low, high", (low, high), "give both, low <= high, or neither")
    return high, low


def _refused(name: str, value: object, wanted: str) -> SettingsError:
    return SettingsError(f"probe.tensor: {name}", value, wanted)
