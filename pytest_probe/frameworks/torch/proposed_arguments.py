"""PyTorch: what lost arguments of a dump may have been.

`completions` proposes arguments that a dump never recorded: each axis, each reduction, both truth values, the dtype of
the output, in the places and under the keywords that a function has for them. `solved` finds the ones that the
stored tensors determine: numbers, shapes, orders of axes, windows. Each is a guess: a call runs with it only if float64
then gives the stored output."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
import torch.overrides
from msgspec import Struct

from pytest_probe.model.dump import Argument, DtypeSpec, Lost, named_tensors
from pytest_probe.numerics.dtypes import AnyArray, is_floating, widen

_Kind: TypeAlias = Literal["axis", "reduction", "flag", "dtype"]
_AXES = frozenset(("dim", "axis", "dims"))
# As functions written in Python take them, and as operators do.
_WORDS, _NUMBERS = ("mean", "sum", "none", "batchmean"), (0, 1, 2)
_ORDER: tuple[_Kind, ...] = ("axis", "reduction", "flag", "dtype")


class _Parameter(Struct, frozen=True):
    """place: its number among positional arguments, -1 where only its keyword gives it; words: it takes a reduction by
    its name."""

    name: str
    kind: _Kind
    place: int
    words: bool


def completions(
    function: Callable[..., Any], name: str, args: Sequence[Argument], dtype: str | None
) -> Iterator[tuple[str, Any]]:
    """One value for one missing argument after the other, with its place ("input.2", "kwargs.dim").

    function is what runs, name its API's ("softmax"); args are recorded ones, with Lost in gaps; dtype is that of the
    first recorded output.
    """
    rank = max((len(spec.shape) for _, spec in named_tensors(args)), default=0)
    gaps = [place for place, value in enumerate(args) if isinstance(value, Lost)]
    given: set[tuple[str, str]] = set()
    # What may be missing of a function: as Python tells of it, as torch's own list of overridable functions does, and
    # as the operator of its name does. Each knows of some that the others lack.
    described = _overridable().get(function)
    forms = [*_signature(function), *(_signature(described) if described is not None else ()), *_schemas(name)]
    found = list(dict.fromkeys(forms))
    for parameter in sorted(found, key=lambda each: _ORDER.index(each.kind)):
        if 0 <= parameter.place < len(args) and parameter.place not in gaps:
            continue
        path = f"input.{parameter.place}" if parameter.place in gaps else f"kwargs.{parameter.name}"
        values: dict[_Kind, Sequence[Any]] = {
            "axis": range(rank + 1),  # stack makes one more
            "flag": (True, False),
            "reduction": _WORDS if parameter.words else _NUMBERS,
            "dtype": () if dtype is None else (DtypeSpec(dtype),),
        }
        for value in values[parameter.kind]:
            if (path, repr(value)) not in given:
                given.add((path, repr(value)))
                yield path, value
    # An empty list is no argument to ptdbg, which records what is in it.
    yield from ((f"input.{place}", []) for place in gaps)


@functools.cache
def _overridable() -> dict[Callable[..., Any], Callable[..., Any]]:
    return dict(torch.overrides.get_testing_overrides())


def _signature(function: Callable[..., Any]) -> Iterator[_Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    for place, each in enumerate(parameters):
        kind = _kind(each.name, isinstance(each.default, bool))
        if kind is not None and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            yield _Parameter(each.name, kind, -1 if each.kind == each.KEYWORD_ONLY else place, words=True)


def _schemas(name: str) -> Iterator[_Parameter]:
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        for place, each in enumerate(schema.arguments):
            kind = _kind(each.name, str(each.type) == "bool")
            if kind is not None:
                yield _Parameter(each.name, kind, -1 if each.kwarg_only else place, words=False)


def _kind(name: str, is_flag: bool) -> _Kind | None:
    if name in _AXES:
        return "axis"
    if name in ("reduction", "dtype"):
        return "reduction" if name == "reduction" else "dtype"
    return "flag" if is_flag else None


# Below: arguments that the stored tensors determine.


# Values by their places ("input.1", "kwargs.stride").
_Values: TypeAlias = Mapping[str, Any]
_Rule: TypeAlias = Callable[[Sequence[Any], AnyArray], Iterator[_Values]]

# A number that a program gives has few digits; one that was computed has all of float32's.
_DIGITS = range(1, 9)
# A share of a number that its inputs' and output's rounding moves it by.
_NEAR = 1e-5
# Axes of which all orders are looked at: 120.
_MOST_AXES = 5
# The farthest that programs step, pad and spread a window.
_STRIDES, _DILATIONS, _WINDOWS = (1, 2, 4, 3), (1, 2, 3, 4), (2, 3, 1, 4, 5, 7)


def solved(name: str, args: Sequence[Any], output: AnyArray) -> Iterator[_Values]:
    """What the lost arguments of a call may have been, likeliest first; nothing for an API that no rule knows.

    name is the API's, without its namespace ("permute"); args are the recorded positional arguments, with arrays for
    tensors and Lost in gaps; output is the first stored output.
    """
    rule = _RULES.get(name)
    if rule is None or not args or not isinstance(args[0], np.ndarray):
        return
    with np.errstate(all="ignore"):
        yield from rule(args, output)


def _scalar(of: Callable[[AnyArray, AnyArray], AnyArray]) -> _Rule:
    """The other operand, which is one number: of gives it by element, from the output and the first operand."""

    def rule(args: Sequence[Any], output: AnyArray) -> Iterator[_Values]:
        if _is_lost(args) and output.shape == args[0].shape:
            yield from ({"input.1": value} for value in _numbers(of(_wide(output), _wide(args[0]))))

    return rule


def _alpha(sign: float) -> _Rule:
    """The other operand, or what it is multiplied by."""
    other = _scalar(lambda out, x: sign * (out - x))

    def rule(args: Sequence[Any], output: AnyArray) -> Iterator[_Values]:
        if len(args) < 2 or not isinstance(args[1], np.ndarray):
            yield from other(args, output)
            return
        x, y = _wide(args[0]), _wide(args[1])
        yield from ({"kwargs.alpha": value} for value in _numbers(sign * (_wide(output) - x) / y))

    return rule


def _either(one: _Rule, other: _Rule) -> _Rule:
    """Python's operators have one name for both orders."""
    return lambda args, output: itertools.chain(one(args, output), other(args, output))


def _slope(args: Sequence[Any], output: AnyArray) -> Iterator[_Values]:
    x = _wide(args[0])
    if _is_lost(args) and output.shape == x.shape:
        yield from ({"kwargs.negative_slope": value} for value in _numbers((_wide(output) / x)[x < 0]))


def _bounds(args: Sequence[Any], output: AnyArray) -> Iterator[_Values]:
    """The least and the largest number of what was cut."""
    x, out = _wide(args[0]), _wide(output)
    if out.shape != x.shape or not out.size:
        return
    least = [*_numbers(out[out > x]), None]
    largest = [*_numbers(out[out < x]), None]
    for low, high in itertools.product(least, largest):
        found = {"kwargs.min": low, "kwargs.max": high}
        yield {path: value for path, value in found.items() if value is not None}


def _shape(args: Sequence[Any], output: AnyArray) -> Iterator[_Values]:
    if _is_lost(args):
        yield {"input.1": list(output.shape)}


def _order(args: Sequence[Any], output: AnyArray) -> Iterator[_Values]:
    if _is_lost(args) and args[0].ndim <= _MOST_AXES:
        for axes in itertools.permutations(range(args[0].ndim)):
            if np.array_equal(args[0].transpose(axes), output, equal_nan=is_floating(output.dtype)):
                yield {"input.1": list(axes)}


def _pair(args: Sequence[Any], output: AnyArray) -> Iterator[_Values]:
    if _is_lost(args):
        for one, other in itertools.combinations(range(args[0].ndim), 2):
            if np.array_equal(args[0].swapaxes(one, other), output, equal_nan=is_floating(output.dtype)):
                yield {"input.1": one, "input.2": other}


def _normalized(args: Sequence[Any], output: AnyArray) -> Iterator[_Values]:
    weights = [value.shape for value in args[1:] if isinstance(value, np.ndarray)]
    if _is_lost(args):
        trailing = (args[0].shape[start:] for start in range(args[0].ndim - 1, -1, -1))
        yield from ({"input.1": list(shape)} for shape in (*weights[:1], *trailing))


def _convolution(args: Sequence[Any], output: AnyArray) -> Iterator[_Values]:
    """Alike in all dimensions, as most are."""
    if len(args) < 2 or not isinstance(args[1], np.ndarray) or args[0].ndim != args[1].ndim:
        return
    (_, channels, *sizes), (_, each, *window) = args[0].shape, args[1].shape
    groups, wanted = channels // max(each, 1), list(output.shape[2:])
    for stride, dilation in itertools.product(_STRIDES, _DILATIONS):
        for padding in range(dilation * (max(window, default=1) - 1) + 1):
            if [_places(n, k, stride, padding, dilation) for n, k in zip(sizes, window, strict=True)] == wanted:
                found = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
                yield {f"kwargs.{name}": value for name, value in found.items()}


def _pool(args: Sequence[Any], output: AnyArray) -> Iterator[_Values]:
    if not _is_lost(args) or args[0].ndim != output.ndim:
        return
    sizes, wanted = args[0].shape[2:], list(output.shape[2:])
    for window in _WINDOWS:
        for stride, padding in itertools.product(dict.fromkeys((window, *_STRIDES)), range(window // 2 + 1)):
            if [_places(n, window, stride, padding, 1) for n in sizes] == wanted:
                yield {"input.1": window, "kwargs.stride": stride, "kwargs.padding": padding}


def _places(size: int, window: int, stride: int, padding: int, dilation: int) -> int:
    """How often a window fits."""
    return (size + 2 * padding - dilation * (window - 1) - 1) // stride + 1


def _is_lost(args: Sequence[Any]) -> bool:
    """Is the second argument?"""
    return len(args) < 2 or isinstance(args[1], Lost)


def _wide(values: AnyArray) -> AnyArray:
    return widen(values) if is_floating(values.dtype) else values.astype(np.float64)


def _numbers(values: AnyArray) -> Iterator[float]:
    """The number that all of these are, with as few digits as are near, and with all of them."""
    usable = values[np.isfinite(values)]
    if not usable.size:
        return
    found = float(np.median(usable))
    short = (float(f"{found:.{digits}g}") for digits in _DIGITS)
    yield from dict.fromkeys((next((each for each in short if abs(each - found) <= _NEAR * abs(found)), found), found))


_RULES: Mapping[str, _Rule] = {
    "add": _alpha(1.0),
    "sub": _either(_alpha(-1.0), _scalar(lambda out, x: out + x)),
    "rsub": _scalar(lambda out, x: out + x),
    "mul": _scalar(lambda out, x: out / x),
    "div": _either(_scalar(lambda out, x: x / out), _scalar(lambda out, x: out * x)),
    "pow": _scalar(lambda out, x: np.log(out) / np.log(x)),
    "leaky_relu": _slope,
    **dict.fromkeys(("clamp", "clip"), _bounds),
    **dict.fromkeys(("reshape", "view", "expand"), _shape),
    "permute": _order,
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), _pair),
    "layer_norm": _normalized,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **{f"{kind}_pool{rank}d": _pool for kind in ("max", "avg") for rank in (1, 2, 3)},
}
