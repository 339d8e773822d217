"""Calls that a proof makes: drawn from what each argument of an API may be.

A group has by parameter the values that it may be; `float_(2, 3)` stands for a tensor that is drawn anew for each call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from pytest_probe.model.run import Leaf, map_tree

Group = Mapping[str, Sequence[Any]]
Made = Callable[[np.random.Generator], np.ndarray]


class Drawn(Struct, frozen=True):
    """A tensor that is drawn for each call."""

    made: Made


class Absent(Struct, frozen=True):
    """The argument is left out."""


ABSENT = Absent()
LEFT_OUT = "(left out)"


class DrawnCall(Struct, frozen=True):
    """A call: its arguments, and by parameter what each is, as text."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shown: Mapping[str, str]

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.shown.items())


def float_(*shape: int) -> Drawn:
    """Numbers of both signs, none near zero of another sign by chance alone."""
    return Drawn(lambda random: random.standard_normal(shape))


def positive(*shape: int) -> Drawn:
    return Drawn(lambda random: random.uniform(0.1, 3.0, shape))


def unit(*shape: int) -> Drawn:
    """Numbers from 0.05 to 0.95."""
    return Drawn(lambda random: random.uniform(0.05, 0.95, shape))


def int_(high: int, *shape: int, low: int = 0) -> Drawn:
    return Drawn(lambda random: random.integers(low, high, shape))


def int32(high: int, *shape: int, low: int = 0) -> Drawn:
    return Drawn(lambda random: random.integers(low, high, shape).astype(np.int32))


def bool_(*shape: int) -> Drawn:
    return Drawn(lambda random: np.asarray(random.random(shape) < 0.5))


def complex_(*shape: int) -> Drawn:
    return Drawn(lambda random: random.standard_normal(shape) + 1j * random.standard_normal(shape))


def matrix(*shape: int) -> Drawn:
    """Well-conditioned square matrices."""
    return Drawn(lambda random: random.standard_normal(shape) + 3 * np.eye(shape[-1]))


def definite(*shape: int) -> Drawn:
    """Symmetric positive definite matrices."""

    def made(random: np.random.Generator) -> np.ndarray:
        half = random.standard_normal(shape)
        return np.asarray(half @ half.swapaxes(-1, -2) + np.eye(shape[-1]))

    return Drawn(made)


def fixed(values: Any, dtype: str = "float64") -> Drawn:
    return Drawn(lambda random: np.array(values, dtype))


def drawn(name: str, function: Callable[..., Any], groups: Sequence[Group], count: int) -> Iterator[DrawnCall]:
    """At least so many calls: each value of each argument at least once, then any together. name seeds them."""
    random = np.random.default_rng(list(name.encode()))
    order = _order(function)
    made = 0
    while True:
        for group in groups:
            longest = max(map(len, group.values()), default=1)
            for place in range(longest):
                shift = made // max(1, len(groups))
                yield _call(
                    random, order, {key: _chosen(values, place, shift, random) for key, values in group.items()}
                )
                made += 1
        if made >= count:
            return


def _chosen(values: Sequence[Any], place: int, shift: int, random: np.random.Generator) -> Any:
    if shift == 0:
        return values[place % len(values)]
    return values[int(random.integers(len(values)))]


def _order(function: Callable[..., Any]) -> tuple[tuple[str, ...], str]:
    """The parameters that may be given by place, and that which takes the others."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return (), ""
    rest = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), "")
    placed = (each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD))
    return tuple(placed), rest


def _call(random: np.random.Generator, order: tuple[tuple[str, ...], str], chosen: Mapping[str, Any]) -> DrawnCall:
    """Some of the first arguments by place, the others by name."""
    given = {name: value for name, value in chosen.items() if value is not ABSENT}
    made = {name: _made(value, random) for name, value in given.items()}
    shown = {name: _shown(value) for name, value in chosen.items()}
    # A name that begins with a star has all further arguments.
    rest = next((made.pop(name) for name in tuple(made) if name.startswith("*")), ())
    placed, _ = order
    names = placed if placed else tuple(made)
    args: list[Any] = []
    limit = len(names) if rest or not placed else int(random.integers(0, len(names) + 1))
    for name in names[:limit]:
        if name not in made:
            break
        args.append(made.pop(name))
    return DrawnCall((*args, *rest), made, shown)


def _made(value: Any, random: np.random.Generator) -> Any:
    return map_tree(
        value, "", lambda leaf, _: Leaf(np.asarray(leaf.made(random)), True) if isinstance(leaf, Drawn) else leaf
    )


def _shown(value: Any) -> str:
    if isinstance(value, Drawn):
        array = np.asarray(value.made(np.random.default_rng(0)))
        return f"{array.dtype.name}{list(array.shape)}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    return LEFT_OUT if value is ABSENT else repr(value)
