"""Structs whose fields hold any value of their types, of the types alone."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import strategies as st

FLOATS = (
    0.0, -0.0, 1.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308, 2.0**63,
    math.inf, -math.inf, math.nan,
)  # fmt: skip
INTEGERS = (0, -1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 2**70)
# What is text in JSON, too, where it is none in a Struct.
TEXTS = ("", "output.0", "null", "nan", "-inf", "1e999", "true", "max_ulp", "noise_ratio", "noise_ratio_limit")
_OF = {
    float: st.sampled_from(FLOATS),
    int: st.sampled_from(INTEGERS),
    bool: st.booleans(),
    str: st.sampled_from(TEXTS),
    types.NoneType: st.none(),
}


def values(of: Any) -> st.SearchStrategy[Any]:
    """Values of a type: a Struct, a container or a plain one."""
    origin, inside = typing.get_origin(of), typing.get_args(of)
    if of in _OF:
        return _OF[of]
    if isinstance(of, type) and issubclass(of, msgspec.Struct):
        return st.builds(of, **{field.name: values(field.type) for field in msgspec.structs.fields(of)})
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values, inside))
    if origin is typing.Literal:
        return st.sampled_from(inside)
    if origin is tuple and inside[-1] is ...:
        return st.lists(values(inside[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, inside))
    assert origin in (dict, Mapping), of
    return st.dictionaries(*map(values, inside), max_size=2)


def filled(of: Any, number: float) -> Any:
    """A value in which each field that may be a float is this number, and nothing is empty that may hold one."""
    origin, inside = typing.get_origin(of), typing.get_args(of)
    if of is float:
        return number
    if isinstance(of, type) and issubclass(of, msgspec.Struct):
        return of(**{field.name: filled(field.type, number) for field in msgspec.structs.fields(of)})
    if origin in (typing.Union, types.UnionType):
        return (
            number if float in inside else filled(next(each for each in inside if each is not types.NoneType), number)
        )
    if origin is typing.Literal:
        return inside[0]
    if origin is tuple:
        return tuple(filled(each, number) for each in inside if each is not ...)
    if origin in (dict, Mapping):
        return {filled(inside[0], number): filled(inside[1], number)}
    return of(1)


def written_plainly(value: Any) -> Any:
    """A value as builtins, with texts for numbers that are not finite."""
    if isinstance(value, dict):
        return {key: written_plainly(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [written_plainly(each) for each in value]
    if isinstance(value, msgspec.Struct):
        return written_plainly(msgspec.to_builtins(value))
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value
