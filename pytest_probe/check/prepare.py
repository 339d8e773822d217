"""What is changed in a call's arguments before both sides run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.errors import Unsupported
from pytest_probe.model.dump import Call, DtypeSpec, Lost
from pytest_probe.model.run import (
    Arguments,
    BoundCall,
    Leaf,
    floats_of,
    mapped,
    with_leaves,
    with_value,
)
from pytest_probe.numerics.dtypes import float_format, is_floating, round_to, widen
from pytest_probe.standards.tables import classes_of, details

# Classes of APIs whose dtype is that of what they move, make or draw, or of their output alone.
NO_ARITHMETIC = frozenset({"exact", "factory", "random", "uninitialised", "scaled_products"})


def as_tuples(arguments: Arguments) -> Arguments:
    """Top-level lists as tuples, which dumps cannot tell apart."""
    args = tuple(tuple(value) if isinstance(value, list) else value for value in arguments.args)
    kwargs = {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.kwargs.items()}
    return replace(arguments, args=args, kwargs=kwargs)


def cast_of(name: str, arguments: Arguments) -> str:
    """The dtype that a call says it computes in, where some of its tensors are wider: softmax(x, dtype=bfloat16)."""
    named = [value.name for _, value in arguments.named if isinstance(value, DtypeSpec) and is_floating(value.name)]
    if len(named) != 1 or not classes_of(name).isdisjoint(NO_ARITHMETIC):
        return ""
    # A cast to a dtype as wide as the tensors' changes nothing.
    least = float_format(named[0]).precision
    wider = (float_format(dtype).precision > least for dtype in arguments.dtypes.values())
    return named[0] if any(wider) else ""


def cast_first(name: str, arguments: Arguments) -> Arguments:
    """The arguments rounded to that dtype, lest the rounding counts as the device's error."""
    cast = cast_of(name, arguments)
    return arguments if not cast else with_leaves(arguments, rounded_leaves(arguments.tensors, cast))


def rounded_leaves(found: Mapping[str, Leaf], dtype: np.dtype[Any] | str) -> dict[str, Leaf]:
    """Floating tensors with the values that a dtype has, in their own dtypes."""
    return {
        name: replace(leaf, array=round_to(widen(leaf.array), dtype).astype(leaf.array.dtype))
        if is_floating(leaf.array.dtype)
        else leaf
        for name, leaf in found.items()
    }


def prepared(bound: BoundCall, call: Call, arguments: Arguments) -> tuple[Arguments, tuple[str, ...]]:
    """The arguments with lost ones filled in, dropout of fused APIs off, tensors cast and Python floats rounded; and
    notes on it. bound: the same arguments by name. Raises Unsupported for one that nothing tells."""
    notes: list[str] = []
    arguments = _filled(call, arguments, notes)
    inner = () if bound.argument("training") is False else details(classes_of(bound.name), "inner_dropout")
    for name in inner:
        found = bound.argument(name)
        if isinstance(found, float) and found != 0.0:
            notes.append(f"run with {name}{_RECORDED}{found:g}")
            arguments = with_value(arguments, bound.paths.get(name, f"kwargs.{name}"), 0.0)
    arguments = cast_first(bound.name, arguments)
    default = default_dtype(call) or "float32"
    return arguments if sizes_by_float(bound.name) else with_float32(arguments, default), tuple(notes)


def default_dtype(call: Call) -> str:
    """What the program had made the framework's default dtype, "" where that is not known to be another."""
    return "" if call.surroundings is None else call.surroundings.default


def sizes_by_float(name: str) -> bool:
    """Does a Python float (a scale) decide the size of what the API gives? Kernels then reckon with it unrounded."""
    return "sized_by_float" in classes_of(name)


def with_float32(arguments: Arguments, default: str = "float64") -> Arguments:
    """Python floats rounded to float32, which kernels of tensors that are no wider compute in. With integers a float
    is of the framework's default dtype."""
    integers = default == "float32" and bool(arguments.tensors) and not arguments.dtypes
    if not any(type(value) is float for _, value in arguments.named) or not (integers or within_float32(arguments)):
        return arguments

    def narrowed(value: Any, _: str) -> Any:
        if type(value) is not float:
            return value
        with np.errstate(over="ignore"):
            rounded = float(np.float32(value))
        return rounded if np.isfinite(rounded) else value

    return mapped(arguments, narrowed)


def within_float32(arguments: Arguments) -> bool:
    """Are there floating tensors, and none wider than float32 or complex64?"""
    floats = arguments.dtypes.values()
    return bool(floats) and all(dtype.itemsize <= (8 if dtype.kind == "c" else 4) for dtype in floats)


def narrow_dtype(leaves: Mapping[str, Leaf]) -> np.dtype[Any] | None:
    """The dtype of the tensors where all floating ones share one narrower than float32; those of no dimension (an
    optimizer's steps) promote nothing, and do not count if there are others."""
    floats = floats_of(leaves)
    dtypes = {dtype for name, dtype in floats.items() if leaves[name].array.ndim} or set(floats.values())
    only = next(iter(dtypes)) if len(dtypes) == 1 else None
    return only if only is not None and only.itemsize < 4 else None


def has_inexact_floats(arguments: Arguments, dtype: np.dtype[Any]) -> bool:
    return mapped(arguments, lambda value, _: _rounded_float(value, dtype)) != arguments


def python_numbers(arguments: Arguments, dtype: np.dtype[Any]) -> frozenset[str]:
    """The tensors without dimensions that are wider than the dtype of the other tensors: they promote nothing, so
    that a kernel may read them as that dtype, like a Python float. Those in lists count for themselves."""
    least = float_format(dtype).precision
    # The arguments that stand in no list.
    direct = {f"input.{index}": value for index, value in enumerate(arguments.args)}
    direct |= {f"kwargs.{key}": value for key, value in arguments.kwargs.items()}
    return frozenset(
        name
        for name, value in direct.items()
        if isinstance(value, Leaf)
        and not value.array.ndim
        and is_floating(value.array.dtype)
        and float_format(value.array.dtype).precision > least
    )


def with_rounded_floats(
    function: Callable[..., Any],
    dtype: np.dtype[Any],
    tensors: frozenset[str],
    rounded: Callable[[Any], Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """The function's result where Python floats, and the tensors of these names, are rounded to the dtype."""

    def change(value: Any, name: str) -> Any:
        return rounded(value) if name in tensors else _rounded_float(value, dtype)

    changed = mapped(Arguments(args, kwargs, None), change)
    return function(*changed.args, **changed.kwargs)


def _rounded_float(value: Any, dtype: np.dtype[Any]) -> Any:
    return float(widen(round_to(value, dtype))) if type(value) is float else value


def _filled(call: Call, arguments: Arguments, notes: list[str]) -> Arguments:
    """A lost positional argument is a dtype, or a device where the call then changes no dtype: the recorded output's
    dtype gives the recorded result either way."""
    if not any(isinstance(value, Lost) for _, value in arguments.named):
        return arguments
    outputs = call.output_specs()

    def fill(value: Any, name: str) -> Any:
        if not isinstance(value, Lost):
            return value
        # Our own capture keeps dtypes and devices: there a hole is what a user asked to leave out.
        if call.surroundings is not None:
            raise Unsupported(f"{name} was not recorded: the capture was asked to keep no such values", "lost argument")
        if not outputs:
            raise Unsupported(f"{name} was not recorded and no output tells what it was", "lost argument")
        notes.append(f"{name} was lost; {outputs[0].dtype} gives the recorded output")
        return DtypeSpec(outputs[0].dtype)

    return mapped(arguments, fill)


# Between the name of a probability of dropout and what was recorded of it, in the note of a run without it.
_RECORDED = " = 0, recorded: "


def ran_without_dropout(notes: Iterable[str]) -> bool:
    """Do the notes of a reference say that the recorded call dropped elements by chance inside?"""
    return any(_RECORDED in note for note in notes)
