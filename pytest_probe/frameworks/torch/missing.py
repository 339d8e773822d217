"""PyTorch: values for arguments that a dump never recorded: each axis, each reduction, both truth values, the dtype of
the output, in the places and under the keywords that a function has for them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import torch
import torch.overrides
from msgspec import Struct

from pytest_probe.model.dump import Argument, DtypeSpec, Lost, named_tensors

Kind: TypeAlias = Literal["axis", "reduction", "flag", "dtype"]
_AXES = frozenset(("dim", "axis", "dims"))
# As functions written in Python take them, and as operators do.
_WORDS, _NUMBERS = ("mean", "sum", "none", "batchmean"), (0, 1, 2)
_ORDER: tuple[Kind, ...] = ("axis", "reduction", "flag", "dtype")


class _Parameter(Struct, frozen=True):
    """place: its number among positional arguments, -1 where only its keyword gives it; words: it takes a reduction by
    its name."""

    name: str
    kind: Kind
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
    found = _parameters(function, name)
    for parameter in sorted(found, key=lambda each: _ORDER.index(each.kind)):
        if 0 <= parameter.place < len(args) and parameter.place not in gaps:
            continue
        path = f"input.{parameter.place}" if parameter.place in gaps else f"kwargs.{parameter.name}"
        for value in _values(parameter, rank, dtype):
            if (path, repr(value)) not in given:
                given.add((path, repr(value)))
                yield path, value
    # An empty list is no argument to ptdbg, which records what is in it.
    yield from ((f"input.{place}", []) for place in gaps)


def _values(parameter: _Parameter, rank: int, dtype: str | None) -> Sequence[Any]:
    if parameter.kind == "axis":
        return range(rank + 1)  # stack makes one more
    if parameter.kind == "flag":
        return (True, False)
    if parameter.kind == "reduction":
        return _WORDS if parameter.words else _NUMBERS
    return () if dtype is None else (DtypeSpec(dtype),)


def _parameters(function: Callable[..., Any], name: str) -> list[_Parameter]:
    """What may be missing of a function: as Python tells of it, as torch's own list of overridable functions does, and
    as the operator of its name does. Each knows of some that the others lack."""
    described = _overridable().get(function)
    forms = [*_signature(function), *(_signature(described) if described is not None else ()), *_schemas(name)]
    return list(dict.fromkeys(forms))


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


def _kind(name: str, is_flag: bool) -> Kind | None:
    if name in _AXES:
        return "axis"
    if name in ("reduction", "dtype"):
        return "reduction" if name == "reduction" else "dtype"
    return "flag" if is_flag else None
