"""The arguments of a call, with NumPy's arrays in the place of tensors.

They are walked once: `Arguments` keeps its leaves, tensors and dtypes by name, since a dozen rooms ask for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.model.dump import ATOMS, TREES, leaves
from pytest_probe.numerics.dtypes import is_complex, is_floating


class Leaf(Struct, frozen=True):
    """A tensor argument on its way to the framework: its values, already in the case's dtype.

    strides, in elements, lay it out as a test's own tensor was, or a recorded one; None: in order. offset is how many
    elements after an aligned address it begins, as a view may.
    """

    array: np.ndarray
    requires_grad: bool = False
    strides: tuple[int, ...] | None = None
    offset: int = 0


class Array(Struct, frozen=True):
    """An argument that is an array of NumPy's, and stays one: each run gets a copy, on the host, with floats as wide as
    those of the reference's tensors."""

    array: np.ndarray


class Arguments(Struct, frozen=True, dict=True):
    """The arguments of a call with a Leaf for each tensor, an Array for each of NumPy's, everything else as recorded.

    gradients are the incoming gradients of the outputs; None where the record has no backward entry.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    gradients: tuple[Leaf | None, ...] | None

    @cached_property
    def named(self) -> tuple[tuple[str, Any], ...]:
        """All leaves of the tree, tensors or not, by name."""
        return (*leaves(self.args, "input"), *leaves(self.kwargs, "kwargs"))

    @cached_property
    def tensors(self) -> Mapping[str, Leaf]:
        """All tensor arguments by name."""
        return {name: value for name, value in self.named if isinstance(value, Leaf)}

    @cached_property
    def dtypes(self) -> Mapping[str, np.dtype[Any]]:
        """The dtypes of the tensors that hold real or complex numbers, by name."""
        return floats_of(self.tensors)

    def bound(self, api: str, bind: Bind) -> BoundCall:
        """The arguments by the names of an API's parameters, as its framework binds them; bound once."""
        if api not in self._bound:
            self._bound[api] = bind(api, self.args, self.kwargs)
        return self._bound[api]

    @cached_property
    def _bound(self) -> dict[str, BoundCall]:
        return {}


Bind: TypeAlias = "Callable[[str, tuple[Any, ...], dict[str, Any]], BoundCall]"


class BoundCall(Struct, frozen=True):
    """A call whose arguments have the names of its API's parameters, as the framework's signature binds them.

    api is the name that a dump gives it ("Functional.linear"); name is the canonical one, which all spellings of the
    API share ("linear"), "" where nothing is known of the function; in_place tells that its name says that it writes to
    its first argument, native that the framework itself has it and no module that a user added. given holds the
    arguments by parameter, those without one by their place ("input.3"), with whatever stands for tensors; defaults are
    those of the signature; paths says where each stood in the call ("input.1", "kwargs.weight").
    """

    api: str
    name: str
    in_place: bool
    native: bool
    given: Mapping[str, Any]
    paths: Mapping[str, str]
    defaults: Mapping[str, Any]

    def argument(self, name: str) -> Any:
        """The value of a parameter: as given, else its default; None where the API has no such parameter."""
        return self.given[name] if name in self.given else self.defaults.get(name)

    def at(self, path: str) -> Any:
        """The argument at a place of the call ("input.1"); None where none stands there."""
        return next(
            (self.given[name] for name, place in self.paths.items() if place == path and name in self.given), None
        )

    @property
    def arrays(self) -> list[np.ndarray]:
        """The arguments that are arrays, but for those inside lists, in the order of the call. What a parameter takes
        in any number (the operands of einsum) stands in no list."""
        values = itertools.chain.from_iterable(
            value if f"{name}.0" in self.paths else (value,) for name, value in self.given.items()
        )
        return [value for value in values if isinstance(value, np.ndarray)]

    def mapped(self, change: Callable[[Any], Any]) -> BoundCall:
        """The call with every leaf of its arguments replaced by change(leaf)."""
        given = {name: map_tree(value, "", lambda leaf, _: change(leaf)) for name, value in self.given.items()}
        return replace(self, given=given)


LEAVES = ATOMS | {Leaf, Array}


def mapped(arguments: Arguments, change: Callable[[Any, str], Any]) -> Arguments:
    """The arguments with every leaf of the tree (tensor or not) replaced by change(leaf, name)."""
    args, kwargs = map_tree(arguments.args, "input", change), map_tree(arguments.kwargs, "kwargs", change)
    return Arguments(args, kwargs, arguments.gradients)


def map_tree(tree: Any, path: str, change: Callable[[Any, str], Any]) -> Any:
    """A tree of lists, tuples and dicts with every leaf replaced by change(leaf, path); a path is "input.1.0"."""
    if isinstance(tree, (list, tuple)):
        return type(tree)([_mapped(value, f"{path}.{index}", change) for index, value in enumerate(tree)])
    if isinstance(tree, TREES):
        return {key: _mapped(value, f"{path}.{key}", change) for key, value in tree.items()}
    return change(tree, path)


def _mapped(value: Any, path: str, change: Callable[[Any, str], Any]) -> Any:
    return change(value, path) if type(value) in LEAVES else map_tree(value, path, change)


def with_value(arguments: Arguments, path: str, value: Any) -> Arguments:
    """The arguments with another value at the place of one of them ("input.4", "kwargs.eps"), or with one more."""
    kind, _, name = path.partition(".")
    if kind == "kwargs":
        return replace(arguments, kwargs={**arguments.kwargs, name: value})
    place = int(name)
    return replace(arguments, args=(*arguments.args[:place], value, *arguments.args[place + 1 :]))


def with_leaves(arguments: Arguments, leaves: Mapping[str, Leaf]) -> Arguments:
    return mapped(arguments, lambda value, name: leaves[name] if isinstance(value, Leaf) else value)


def floats_of(leaves: Mapping[str, Leaf]) -> dict[str, np.dtype[Any]]:
    found = ((name, leaf.array.dtype) for name, leaf in leaves.items())
    return {name: dtype for name, dtype in found if is_floating(dtype) or is_complex(dtype)}
