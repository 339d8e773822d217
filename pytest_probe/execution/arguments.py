"""The arguments of a call: their tensors by name, and what is changed in them before both sides run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_probe.errors import Unsupported
from pytest_probe.execution.likeness import output_specs
from pytest_probe.frameworks.base import Leaf
from pytest_probe.inputs import Arguments
from pytest_probe.numerics.dtypes import float_format, is_complex, is_floating, round_to, widen
from pytest_probe.records.model import Call, DtypeSpec, Lost, Record, leaves
from pytest_probe.standards.facts import facts

NARROW = ("bfloat16", "float16")
# Classes of APIs whose dtype is that of what they move, make or draw.
NO_ARITHMETIC = frozenset({"exact", "factory", "random", "uninitialised"})
# Fused APIs that draw random numbers unless this argument is 0: keyword and position.
FUSED_DROPOUT: Mapping[str, tuple[str, int]] = {
    "scaled_dot_product_attention": ("dropout_p", 4),
    "multi_head_attention_forward": ("dropout_p", 10),
    "lstm": ("dropout", 5),
    "gru": ("dropout", 5),
    "rnn_tanh": ("dropout", 5),
    "rnn_relu": ("dropout", 5),
}
# A Python float decides the size of the output: rounded to float32 it would give another.
SIZING = frozenset(
    "interpolate upsample upsample_bilinear upsample_nearest fractional_max_pool2d fractional_max_pool3d "
    "fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices".split()
)


def named_leaves(arguments: Arguments) -> dict[str, Leaf]:
    """All tensor arguments by name."""
    trees = itertools.chain(leaves(arguments.args, "input"), leaves(dict(arguments.kwargs), "kwargs"))
    return {name: value for name, value in trees if isinstance(value, Leaf)}


def mapped(arguments: Arguments, change: Callable[[Any, str], Any]) -> Arguments:
    """The arguments with every leaf of the tree (tensor or not) replaced by change(leaf, name)."""
    args = tuple(_map(value, f"input.{index}", change) for index, value in enumerate(arguments.args))
    kwargs = {key: _map(value, f"kwargs.{key}", change) for key, value in arguments.kwargs.items()}
    return replace(arguments, args=args, kwargs=kwargs)


def _map(tree: Any, name: str, change: Callable[[Any, str], Any]) -> Any:
    if isinstance(tree, (list, tuple)):
        return type(tree)(_map(value, f"{name}.{index}", change) for index, value in enumerate(tree))
    if isinstance(tree, dict):
        return {key: _map(value, f"{name}.{key}", change) for key, value in tree.items()}
    return change(tree, name)


def with_leaves(arguments: Arguments, leaves: Mapping[str, Leaf]) -> Arguments:
    return mapped(arguments, lambda value, name: leaves[name] if isinstance(value, Leaf) else value)


def tuples(arguments: Arguments) -> Arguments:
    """Top-level lists as tuples, which dumps cannot tell apart."""
    args = tuple(tuple(value) if isinstance(value, list) else value for value in arguments.args)
    kwargs = {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.kwargs.items()}
    return replace(arguments, args=args, kwargs=kwargs)


def floats_of(leaves: Mapping[str, Leaf]) -> dict[str, np.dtype[Any]]:
    return {
        name: leaf.array.dtype
        for name, leaf in leaves.items()
        if is_floating(leaf.array.dtype) or is_complex(leaf.array.dtype)
    }


def cast_of(api: str, arguments: Arguments) -> str:
    """The dtype that a call says it computes in, where some of its tensors are wider: softmax(x, dtype=bfloat16)."""
    trees = itertools.chain(leaves(arguments.args, "input"), leaves(dict(arguments.kwargs), "kwargs"))
    named = [value.name for _, value in trees if isinstance(value, DtypeSpec) and is_floating(value.name)]
    if len(named) != 1 or not facts(api).classes.isdisjoint(NO_ARITHMETIC):
        return ""
    least = float_format(named[0]).precision
    wider = (float_format(dtype).precision > least for dtype in floats_of(named_leaves(arguments)).values())
    return named[0] if any(wider) else ""


def cast_first(api: str, arguments: Arguments) -> Arguments:
    """The arguments rounded to that dtype, lest the rounding counts as the device's error."""
    cast = cast_of(api, arguments)
    return arguments if not cast else with_leaves(arguments, rounded_leaves(named_leaves(arguments), cast))


def rounded_leaves(found: Mapping[str, Leaf], dtype: np.dtype[Any] | str) -> dict[str, Leaf]:
    """Floating tensors with the values that a dtype has, in their own dtypes."""
    return {
        name: replace(leaf, array=round_to(widen(leaf.array), dtype).astype(leaf.array.dtype))
        if is_floating(leaf.array.dtype)
        else leaf
        for name, leaf in found.items()
    }


def prepared(record: Record, call: Call, arguments: Arguments) -> tuple[Arguments, tuple[str, ...]]:
    """The arguments with lost ones filled in, dropout of fused APIs off, tensors cast and Python floats rounded."""
    notes: list[str] = []
    arguments = _filled(call, arguments, notes)
    arguments = cast_first(record.api, _without_dropout(record, arguments, notes))
    default = default_dtype(call) or "float32"
    return arguments if sizes_by_float(record.api) else with_float32(arguments, default), tuple(notes)


def default_dtype(call: Call) -> str:
    """What the program had made the framework's default dtype, "" where that is not known to be another."""
    return "" if call.surroundings is None else call.surroundings.default


def sizes_by_float(api: str) -> bool:
    """Does a Python float (a scale) decide the size of what the API gives? Kernels then reckon with it unrounded."""
    return api.rsplit(".", 1)[-1] in SIZING


def with_float32(arguments: Arguments, default: str = "float64") -> Arguments:
    """Python floats rounded to float32, which kernels of tensors that are no wider compute in. Beside integers a float
    is of the framework's default dtype."""
    integers = default == "float32" and bool(named_leaves(arguments)) and not floats_of(named_leaves(arguments))
    if not integers and not within_float32(arguments):
        return arguments
    return mapped(arguments, lambda value, _: _as_float32(value) if type(value) is float else value)


def within_float32(arguments: Arguments) -> bool:
    """Are there floating tensors, and none wider than float32 or complex64?"""
    floats = floats_of(named_leaves(arguments)).values()
    return bool(floats) and all(dtype.itemsize <= (8 if dtype.kind == "c" else 4) for dtype in floats)


def _as_float32(value: float) -> float:
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    return rounded if np.isfinite(rounded) else value


def narrow_dtype(leaves: Mapping[str, Leaf]) -> np.dtype[Any] | None:
    """The dtype of the tensors where all floating ones share one narrower than float32; those of no dimension (an
    optimizer's steps) promote nothing, and do not count beside others."""
    floats = floats_of(leaves)
    dtypes = {dtype for name, dtype in floats.items() if leaves[name].array.ndim} or set(floats.values())
    only = next(iter(dtypes)) if len(dtypes) == 1 else None
    return only if only is not None and only.itemsize < 4 else None


def has_inexact_floats(arguments: Arguments, dtype: np.dtype[Any]) -> bool:
    return mapped(arguments, lambda value, _: _rounded_float(value, dtype)) != arguments


def numbers(arguments: Arguments, dtype: np.dtype[Any]) -> frozenset[str]:
    """The tensors without dimensions that are wider than the dtype of those that have some: they promote nothing, so
    that a kernel may read them as that dtype, like a Python float. Those in lists count for themselves."""
    least = float_format(dtype).precision
    return frozenset(
        name
        for name, value in _direct(arguments)
        if isinstance(value, Leaf)
        and not value.array.ndim
        and is_floating(value.array.dtype)
        and float_format(value.array.dtype).precision > least
    )


def _direct(arguments: Arguments) -> Iterator[tuple[str, Any]]:
    """The arguments that stand in no list."""
    yield from ((f"input.{index}", value) for index, value in enumerate(arguments.args))
    yield from ((f"kwargs.{key}", value) for key, value in arguments.kwargs.items())


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
    outputs = output_specs(call)

    def fill(value: Any, name: str) -> Any:
        if not isinstance(value, Lost):
            return value
        if call.surroundings is not None:
            raise Unsupported(f"{name} was not recorded: the capture was told to keep no such values", "lost argument")
        if not outputs:
            raise Unsupported(f"{name} was not recorded and no output tells what it was", "lost argument")
        notes.append(f"{name} was lost; {outputs[0].dtype} gives the recorded output")
        return DtypeSpec(outputs[0].dtype)

    return mapped(arguments, fill)


def _without_dropout(record: Record, arguments: Arguments, notes: list[str]) -> Arguments:
    keyword, position = FUSED_DROPOUT.get(record.api.rsplit(".", 1)[-1], ("", -1))
    found = arguments.kwargs.get(keyword, arguments.args[position] if 0 <= position < len(arguments.args) else 0.0)
    if not keyword or not isinstance(found, float) or found == 0.0:
        return arguments
    notes.append(f"run with {keyword} = 0, recorded: {found:g}")
    if keyword in arguments.kwargs:
        return replace(arguments, kwargs={**arguments.kwargs, keyword: 0.0})
    return replace(arguments, args=(*arguments.args[:position], 0.0, *arguments.args[position + 1 :]))


def autocast_of(call: Call, arguments: Arguments) -> str:
    """The 16-bit dtype of an autocast, where the recorded floating dtypes are mixed."""
    names = {dtype.name for dtype in floats_of(named_leaves(arguments)).values()}
    names |= {spec.dtype for spec in output_specs(call) if is_floating(spec.dtype)}
    narrow = [name for name in NARROW if name in names]
    return narrow[0] if narrow and len(names) > 1 else ""
