"""How arguments get the canonical names of their API's parameters, for frameworks that are called from Python."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct, field

from pytest_probe.model.run import BoundCall

T = TypeVar("T")
# Operators by the name of the API that they are.
_OPERATORS = {
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "and": "bitwise_and",
    "or": "bitwise_or",
}
# Operators that Python calls with an `i` or an `r` before them, as __iadd__ and __radd__.
_PREFIXED = frozenset("add sub mul div truediv floordiv mod pow matmul and or xor lshift rshift".split())
# Names that may be between double underscores: operators and conversions.
_CALCULATING = frozenset(name.rstrip("_") for name in operator.__all__) | frozenset(
    "bool complex float int long nonzero len reversed div idiv".split()
)

# What makes the tensors of a model, and what puts numbers into them, by canonical names.
_INITIALISING = frozenset(
    "empty empty_like empty_strided new_empty zeros zeros_like new_zeros ones ones_like new_ones full full_like "
    "new_full tensor as_tensor new_tensor to_tensor from_numpy eye arange linspace fill zero constant rand rand_like "
    "randn randn_like randint randint_like randperm normal uniform random bernoulli exponential log_normal".split()
)


def by_name(rows: Mapping[str, T]) -> Mapping[str, T]:
    """A table whose rows begin with all the names that they are for."""
    return {name: value for names, value in rows.items() for name in names.split()}


class Signature(Struct, frozen=True):
    """Parameters of an API by canonical name. aliases leads from the framework's keyword to that; rest is what takes
    all positional arguments behind the others, "" where nothing does. placed is how many may be given by place."""

    parameters: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    rest: str = ""
    placed: int = 1 << 30

    @classmethod
    @functools.cache
    def parsed(cls, text: str) -> Signature:
        """Of "input dim/axis=-1 *operands"; what follows a "|" is given by keyword alone."""
        parameters: list[str] = []
        aliases: dict[str, str] = {}
        defaults: dict[str, Any] = {}
        rest = ""
        by_place, _, by_keyword = text.partition("|")
        for word in (*by_place.split(), *by_keyword.split()):
            if word.startswith("*"):
                rest = word[1:]
                continue
            names, _, default = word.partition("=")
            name, *others = names.split("/")
            parameters.append(name)
            aliases |= dict.fromkeys(others, name)
            if default:
                defaults[name] = ast.literal_eval(default)
        return cls(tuple(parameters), aliases, defaults, rest, len(parameters) - len(by_keyword.split()))


def operator_name(name: str) -> str | None:
    """The canonical name of an operator ("__iadd__", "__radd__"); None for anything else."""
    if not (name.startswith("__") and name.endswith("__")):
        return None
    name = name[2:-2]
    if name[0] in "ir" and name[1:] in _PREFIXED:
        name = name[1:]
    return _OPERATORS.get(name, name)


def is_operator(name: str) -> bool:
    """Is it an operator ("__iadd__", "__rsub__") or a conversion ("__float__")?"""
    core = name.removeprefix("__").removesuffix("__")
    return name == f"__{core}__" and not _CALCULATING.isdisjoint((core, core.removeprefix("r")))


def initialises(name: str) -> bool:
    """Does an API of this canonical name make a tensor from nothing, or overwrite all of one?"""
    return name in _INITIALISING


@functools.cache
def works_in_place(api: str) -> bool:
    """Does the API's name say that it writes to its first argument?"""
    name = api.rsplit(".", 1)[-1]
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in ("__invert__", "__index__", "__int__"))
    return name.endswith("_")


def bound_call(
    api: str, name: str, native: bool, signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> BoundCall:
    """A call of an API by the names of its parameters.

    An argument that the API has no parameter for is kept by its place alone, so that no call is refused.
    """
    given: dict[str, Any] = {}
    paths: dict[str, str] = {}
    for place, value in enumerate(args[: len(signature.parameters)] if signature.rest else args):
        named = place < len(signature.parameters)
        parameter = signature.parameters[place] if named else f"input.{place}"
        given[parameter], paths[parameter] = value, f"input.{place}"
    if signature.rest and len(args) > len(signature.parameters):
        # All further arguments as one tuple: those of einsum come one by one, or in one list.
        first = len(signature.parameters)
        values, path = args[first:], "input"
        if len(values) == 1 and isinstance(values[0], (list, tuple)):
            values, path, first = values[0], f"input.{first}", 0
        given[signature.rest] = tuple(values)
        paths |= {f"{signature.rest}.{place}": f"{path}.{first + place}" for place in range(len(values))}
    for keyword, value in kwargs.items():
        parameter = signature.aliases.get(keyword, keyword)
        given[parameter], paths[parameter] = value, f"kwargs.{keyword}"
    return BoundCall(api, name, works_in_place(api), native, given, paths, signature.defaults)


def unbound_call(signature: Signature, given: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments, from values by canonical names: by place as far as the first parameters are
    given, the others by the framework's keyword."""
    args: list[Any] = []
    for parameter in signature.parameters[: signature.placed]:
        if parameter not in given:
            break
        args.append(given[parameter])
    keywords = {name: keyword for keyword, name in signature.aliases.items()}
    placed = signature.parameters[: len(args)]
    return tuple(args), {keywords.get(name, name): value for name, value in given.items() if name not in placed}


def clamp_limits(
    largest: float, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of nan_to_num(x, nan, posinf, neginf), with its limits written down: those of the tensor's dtype,
    whose largest number this is."""
    given = {**dict(zip(("nan", "posinf", "neginf"), args[1:], strict=False)), **kwargs}
    ends = {"posinf": largest, "neginf": -largest}
    return args[:1], {**given, **{name: end for name, end in ends.items() if given.get(name) is None}}
