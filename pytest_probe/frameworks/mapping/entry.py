"""One entry of a map: the call of one framework that corresponds to a call of another one's API."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Callable
from collections.abc import Mapping as MappingOf
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct, field

from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.python.binding import Signature

# The kind of a skip, and how its reason begins.
NO_COUNTERPART = "no counterpart"
_CALL = re.compile(r"([A-Za-z_][\w.]*)\((.*)\)", re.DOTALL)
# What a framework's functions call the name of their result, which changes nothing.
_NAME = "name"
Lookup: TypeAlias = Callable[[], Callable[..., Any]]
Special: TypeAlias = Callable[[str], Any]
Write: TypeAlias = Callable[[Any, Any], Any]


class Mapping(Struct, frozen=True):
    """What corresponds to an API of the framework that records are of.

    call is the other framework's API with what the record's API takes, in that one's order: "torch.sum(input/x
    dim/axis=None keepdim=False)". A parameter is "theirs/own=default"; the default is the record's API's, which the
    other is always given. A number in the place of their name is a place: "torch.Tensor.__add__(0/x 1/y)". "*rest"
    takes all further positional arguments, as a tuple.

    function makes the call where no single API corresponds: it gets the parameters by name. back is what their API
    takes, in their order and with their defaults, where that is otherwise ("input dim=None | dtype=None"). values has
    by their parameter what their values are by the own ones; only the one value of a parameter that is right to leave
    out. single names those whose value the record's API keeps in float32, constant the ones without a
    gradient. outputs are the places of their outputs that the own API returns; a single number: that output alone.
    one_way: calls of the other framework are not made by it.
    """

    call: str
    function: Callable[..., Any] | None = None
    back: str = ""
    values: MappingOf[str, MappingOf[Any, Any]] = field(default_factory=dict)
    only: MappingOf[str, Any] = field(default_factory=dict)
    single: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()
    outputs: int | tuple[int, ...] | None = None
    one_way: bool = False

    @property
    def path(self) -> str:
        """The other framework's API, or the name of the function."""
        return self._parts[0]

    @property
    def takes(self) -> Signature:
        """What the record's API takes, by the other framework's names."""
        return Signature.parsed(self._parts[1])

    @property
    def given_back(self) -> Signature:
        """What the other framework's API takes, by its own names."""
        return Signature.parsed(self.back or re.sub(r"/[^\s=]+", "", self._parts[1]))

    @property
    def reverses(self) -> bool:
        """Can a call of the other framework be made by it?"""
        made_of_one = self.function is None and "." in self.path and self.outputs is None
        return made_of_one and not self.one_way and not self.constant

    @property
    def _parts(self) -> tuple[str, str]:
        match = _CALL.fullmatch(self.call.strip())
        if match is None:
            raise ValueError(f"{self.call!r} is no call; write it as torch.sum(input/x dim/axis=None)")
        return match[1], match[2]


class Translation(Struct, frozen=True):
    """Makes the calls of an API by another framework's function. Called with the API's own arguments, whose tensors are
    the other framework's, it returns what the API would.

    signature binds the API's own arguments; names leads from a bound name to the other framework's keyword, values
    from one of its values to theirs. api names the API in errors. special makes of a text that names a dtype the
    other framework's own; order names what is given by place, since compiled functions take no names; write puts a
    result into the first argument, where the API works in place.
    """

    api: str
    signature: Signature
    lookup: Lookup
    special: Special
    names: MappingOf[str, str] = field(default_factory=dict)
    values: MappingOf[str, MappingOf[Any, Any]] = field(default_factory=dict)
    only: MappingOf[str, Any] = field(default_factory=dict)
    single: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()
    outputs: int | tuple[int, ...] | None = None
    order: tuple[str, ...] = ()
    write: Write | None = None

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        target = (*args, *kwargs.values())[0] if self.write is not None else None
        if target is not None:
            # What the result depends on may not be written to.
            own = target.clone()
            args, kwargs = ((own, *args[1:]), kwargs) if args else (args, {**kwargs, next(iter(kwargs)): own})
        own_args, own_kwargs = self.translated(args, kwargs)
        result = self.lookup()(*own_args, **own_kwargs)
        if isinstance(self.outputs, int):
            result = result[self.outputs]
        elif self.outputs is not None:
            result = tuple(result[place] for place in self.outputs)
        return result if self.write is None else self.write(target, result)

    def translated(self, args: tuple[Any, ...], kwargs: MappingOf[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The other framework's arguments, by place and by name. Raises Unsupported for one that has no counterpart."""
        given = {**self.signature.defaults, **self._bound(args, kwargs)}
        for name, right in self.only.items():
            if name in given and not _same(given[name], right):
                raise self._lacking(f"{self._own(name)}={given[name]!r}")
        kept = {name: value for name, value in given.items() if name not in self.only}
        found = {self.names.get(name, name): self._valued(name, value) for name, value in kept.items()}
        places = sorted((name for name in found if name.isdigit()), key=int)
        places += itertools.takewhile(found.__contains__, self.order)
        by_place = tuple(found.pop(name) for name in places)
        return by_place, found

    def _bound(self, args: tuple[Any, ...], kwargs: MappingOf[str, Any]) -> dict[str, Any]:
        """The arguments by the names of the signature."""
        parameters, rest = self.signature.parameters, self.signature.rest
        placed = min(len(parameters), self.signature.placed)
        given = dict(zip(parameters[:placed], args, strict=False))
        if rest:
            further = args[placed:]
            listed = len(further) == 1 and isinstance(further[0], (list, tuple))
            given[rest] = tuple(further[0]) if listed else further
        elif any(value is not None for value in args[placed:]):
            raise self._lacking(f"the argument at place {placed}")
        for keyword, value in kwargs.items():
            # Newer functions take another framework's names as well.
            name = self.signature.aliases.get(keyword, keyword)
            if name in parameters:
                given[name] = value
            elif keyword != _NAME and value is not None:
                raise self._lacking(keyword)
        return given

    def _valued(self, name: str, value: Any) -> Any:
        if name in self.values:
            found = self.values[name]
            key = next((own for own in found if _same(own, value)), None)
            if key is None and not any(_same(own, value) for own in found):
                raise self._lacking(f"{self._own(name)}={value!r}")
            return found[key]
        if name in self.constant and hasattr(value, "detach"):
            return value.detach()
        if name in self.single and isinstance(value, float):
            return float(np.float32(value))
        return self.special(value) if isinstance(value, str) and name.endswith("dtype") else value

    def _own(self, name: str) -> str:
        return next((own for own, other in self.signature.aliases.items() if other == name), name)

    def _lacking(self, argument: str) -> Unsupported:
        reason = f"{NO_COUNTERPART} for {argument} of {self.api}"
        return Unsupported(reason, f"{NO_COUNTERPART} for {argument.partition('=')[0]}")


def _same(value: Any, right: Any) -> bool:
    """The same value, of the same kind: 1 is not True."""
    if isinstance(value, (list, tuple)) and isinstance(right, (list, tuple)):
        return list(value) == list(right)
    plain = (bool, int, float, str, type(None))
    alike = isinstance(value, bool) is isinstance(right, bool)
    return isinstance(value, plain) and isinstance(right, plain) and alike and value == right


def forward(api: str, entry: Mapping, lookup: Lookup, special: Special, write: Write | None) -> Translation:
    """Calls of an entry's own API by the other framework."""
    same = {name: getattr(entry, name) for name in ("values", "only", "single", "constant", "outputs")}
    return Translation(api, entry.takes, lookup, special, write=write, **same)


def backward(api: str, entry: Mapping, lookup: Lookup, special: Special, write: Write | None) -> Translation:
    """Calls of the other framework's API by an entry's own one."""
    names = {other: own for own, other in entry.takes.aliases.items()}
    values = {name: {other: own for own, other in found.items()} for name, found in entry.values.items()}
    takes = entry.takes
    order = tuple(names.get(name, name) for name in takes.parameters[: takes.placed])
    return Translation(api, entry.given_back, lookup, special, names=names, values=values, order=order, write=write)


@functools.cache
def literal(text: str) -> Any:
    """What a text of a YAML file means: a Python literal, else itself."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
