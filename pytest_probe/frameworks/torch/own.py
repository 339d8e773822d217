"""torch's own functions, whatever a program has put in their places, before this is imported or after it.

What is written in C lies in torch._C as well. What is written in Python is made anew from its source file, where
something else stands in its place already: nothing may hold the function any more.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial, partialmethod
from itertools import chain
from operator import itemgetter
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple, TypeGuard

import torch
from msgspec.structs import replace

from pytest_probe.frameworks import COMPILED
from pytest_probe.frameworks.base import API
from pytest_probe.frameworks.torch.allowlist import is_api, owner_of

_C: Any = torch._C
_PACKAGE = os.path.join(os.path.dirname(torch.__file__), "")
# How records name a place, what of a function's name the place leaves out, and where torch._C has its functions.
_PLACES: Mapping[str, tuple[str, str, tuple[Any, ...]]] = {
    "torch.nn.functional": ("Functional", "", (_C._nn, _C._VariableFunctions)),
    "torch.linalg": ("Torch.linalg", "linalg_", (_C._linalg,)),
    "torch.special": ("Torch.special", "special_", (_C._special,)),
    "torch.fft": ("Torch.fft", "fft_", (_C._fft,)),
    "torch": ("Torch", "", (_C._VariableFunctions,)),
    "torch.Tensor": ("Tensor", "", (_C.TensorBase,)),
}
# Files whose functions have other names in their code than in their places: overloads, and methods for operators.
_MAKING = tuple(os.path.join(_PACKAGE, *name.split("/")) for name in ("_jit_internal.py", "_tensor.py"))
_SOURCES = {
    "torch.nn.functional": ("torch.nn.functional",),
    "torch": ("torch.functional", "torch._lowrank"),
    "torch.Tensor": ("torch._tensor",),
}
# In torch._C under another name.
_NAMES_IN_C = {"logsigmoid": "log_sigmoid"}


class Replaced(NamedTuple):
    """What stands in the place of a function of torch's: place and name are where ("torch.Tensor", "add")."""

    place: str
    name: str
    value: Any

    def __str__(self) -> str:
        return f"{record(self.place, self.name)} is {origin(self.value)}'s"


def record(place: str, name: str) -> str:
    """What captures call a function ("Torch.linalg.svd")."""
    return f"{_PLACES[place][0]}.{name}"


def origin(function: Any) -> str:
    """Where a function is written ("train.py:4"), or the module that it is from."""
    code = code_of(function)
    if code is None:
        return str(getattr(function, "__module__", None) or type(function).__module__)
    return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"


def code_of(function: Any) -> CodeType | None:
    while isinstance(function, (partial, partialmethod)):
        function = function.func
    called: Any = type(function).__call__ if callable(function) else None
    code = getattr(function, "__code__", None) or getattr(called, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _in_c(place: str, name: str) -> Any:
    """The function of torch._C that stands there; None where it has none of that name."""
    _, prefix, homes = _PLACES[place]
    known = (getattr(home, prefix + _NAMES_IN_C.get(name, name), None) for home in homes)
    return next((found for found in known if found is not None), None)


def _is_own(place: str, name: str, value: Any) -> bool:
    """Is it torch's function of that name? Any decorator of torch's may stand around it as well."""
    if isinstance(value, COMPILED):
        return _in_c(place, name) in (None, value)
    code = value.__code__ if isinstance(value, FunctionType) else None
    return of_torch(code) and (code.co_name.strip("_") == name.strip("_") or code.co_filename in _MAKING)


def _line(code: CodeType) -> tuple[str, int]:
    return code.co_filename, code.co_firstlineno


def of_torch(code: CodeType | None) -> TypeGuard[CodeType]:
    return code is not None and code.co_filename.startswith(_PACKAGE)


def is_of_torch(function: Any) -> bool:
    """Is it written in torch, in Python or in C?"""
    code = code_of(function)
    return of_torch(code) if code is not None else origin(function).partition(".")[0] == "torch"


def _found(place: str, name: str) -> Any:
    """torch's function, where something else stands in its place; None where it cannot be had."""
    sources = [sys.modules[source] for source in _SOURCES.get(place, ())]
    held = (vars(module).get(name) for module in sources if place != "torch.Tensor")
    own = next((function for function in held if _is_own(place, name, function)), None)
    if own is not None:
        return own
    try:
        written = [_written(module)[name] for module in sources if name in _written(module)]
    except (OSError, SyntaxError, NameError, AttributeError):  # its file is not there, or not as we know it
        return None
    return written[0] if written else _in_c(place, name)


@functools.cache
def _written(module: ModuleType) -> Mapping[str, Any]:
    """The functions of a module of torch's as its file has them, or the methods of its class Tensor. They see the
    module's globals."""
    made: dict[str, Any] = {}
    with open(str(module.__file__), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    nodes = chain.from_iterable(node.orelse if isinstance(node, ast.If) else (node,) for node in tree.body)
    body = [node for node in nodes if _is_function(node) or getattr(node, "name", "") == "Tensor"]
    for node in body:
        if isinstance(node, ast.ClassDef):
            node.bases, node.keywords = [], []
            node.body = [each for each in node.body if "_add_docstr(" not in ast.unparse(each)]  # which C refuses
    exec(compile(ast.Module(body, []), str(module.__file__), "exec"), vars(module), made)
    methods = vars(made["Tensor"]) if "Tensor" in made else {}
    for method in methods.values():
        free = method.__code__.co_freevars if isinstance(method, FunctionType) else ()
        if "__class__" in free:  # what super() reads
            method.__closure__[free.index("__class__")].cell_contents = torch.Tensor
    return {name: value for name, value in (methods or made).items() if isinstance(value, (FunctionType, *COMPILED))}


def _is_function(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):  # torch notes each overload that is made
        return all("overload" not in ast.unparse(decorator) for decorator in node.decorator_list)
    if not isinstance(node, ast.Assign):
        return False
    return isinstance(node.value, ast.Name) or ast.unparse(node.value).startswith("boolean_dispatch(")


def _table(place: str) -> dict[str, Any]:
    owner = owner_of(place)
    named = ((name, getattr(owner, name)) for name in dir(owner) if is_api(place, name))
    return {name: value if _is_own(place, name, value) else _found(place, name) for name, value in named}


# By place and name torch's functions, None for one that cannot be had.
FUNCTIONS: Mapping[str, Mapping[str, Any]] = {place: _table(place) for place in _PLACES}


def named() -> Iterator[tuple[Any, str, str]]:
    """Functions, with their places and names. The first counts: convolutions are in torch.nn.functional and torch."""
    for place, functions in FUNCTIONS.items():
        found = [(function, place, name) for name, function in functions.items() if function is not None]
        # Of several names for one function its own comes first, then one without underscores, then the shortest.
        yield from sorted(found, key=lambda one: (one[0].__name__ != one[2], one[2].startswith("__"), len(one[2])))


@functools.cache
def names() -> Mapping[Any, str]:
    """What captures call torch's functions."""
    return {function: record(place, name) for function, place, name in reversed(list(named()))}


def is_one(function: Any) -> bool:
    """Is it one of torch's functions that can be had?"""
    return isinstance(function, Hashable) and function in names()


_MISSING = [(place, name) for place, functions in FUNCTIONS.items() for name in functions if functions[name] is None]
# Of the modules what is in each.
_HELD = [
    (place, vars(owner_of(place)), [(name, one) for name, one in functions.items() if one is not None])
    for place, functions in FUNCTIONS.items()
    if place != "torch.Tensor"
]
_OWN = [(names, itemgetter(*(name for name, _ in held)), tuple(one for _, one in held)) for _, names, held in _HELD]
_METHODS = FUNCTIONS["torch.Tensor"]
# Functions that stand nowhere, since references run.
_away: dict[tuple[str, str], Replaced] = {}


def replaced() -> tuple[Replaced, ...]:
    """What stands in the places of functions that can be had."""
    found = []
    try:
        changed = any(held(names) != own for names, held, own in _OWN)
    except KeyError:
        changed = True
    for place, names, held in _HELD if changed else ():
        found += [Replaced(place, name, names[name]) for name, own in held if names.get(name, own) is not own]
    on_tensors = ((name, value) for name, value in vars(torch.Tensor).items() if _METHODS.get(name) is not None)
    found += [Replaced("torch.Tensor", *each) for each in on_tensors if _METHODS[each[0]] is not each[1]]
    # --probe-asserts measures by functions of its own, which give what torch's give.
    return tuple(each for each in found if not type(each.value).__module__.startswith("pytest_probe."))


def describe(found: Sequence[Replaced]) -> str:
    """ "(Functional.gelu is conftest.py:3's, and 4 more)"."""
    return f"({', '.join([*map(str, found[:3]), *([f'and {len(found) - 3} more'] if found[3:] else [])])})"


def put(wanted: tuple[Replaced, ...]) -> None:
    """Let these stand in the places of functions, and no others."""
    for each in replaced():
        _away[each[:2]] = each
        owner, own = owner_of(each.place), FUNCTIONS[each.place][each.name]
        if owner is torch.Tensor and getattr(_C.TensorBase, each.name, None) is own:
            delattr(torch.Tensor, each.name)
        else:
            setattr(owner, each.name, own)
    for each in wanted:
        _away.pop(each[:2], None)
        setattr(owner_of(each.place), each.name, each.value)


def on_both_sides() -> dict[tuple[str, str], str]:
    """By its place, what stands in that of a function that cannot be had, in words."""
    found = (Replaced(place, name, getattr(owner_of(place), name, None)) for place, name in _MISSING)
    return {each[:2]: f"{each}, on both sides" for each in found if not _is_own(*each)}


def marked(api: API) -> API:
    """It with what the user has put in its place, while references run."""
    at: Any = tuple(api.path.rpartition(".")[::2])
    if at in _away:
        return replace(api, on_device=partial(_called, _away[at]), replaced=origin(_away[at].value))
    return replace(api, shared=on_both_sides().get(at, ""))


def _called(each: Replaced) -> Any:
    """What the program gets of its place."""
    owner, value = owner_of(each.place), each.value
    return value.__get__(None, owner) if isinstance(owner, type) and hasattr(value, "__get__") else value


def known(function: Any) -> tuple[str, Any]:
    """See Framework.known."""
    for each in (*_away.values(), *replaced()):
        if each.value is function:
            return record(each.place, each.name), FUNCTIONS[each.place][each.name]
    return (names()[function], function) if is_one(function) else ("", function)


_PYTHON = [one for functions in FUNCTIONS.values() for one in functions.values() if isinstance(one, FunctionType)]
# By file and line, and by module and name: a function that is made anew has them as well.
_BY_LINE = {_line(one.__code__): one for one in _PYTHON if one.__code__.co_name == one.__name__}
_BY_NAME = {(one.__module__, one.__name__): one for one in _PYTHON}


def inside(function: Any, asking: FrameType | None) -> tuple[Any, Any] | None:
    """Of a function that somebody has put into the place of one of torch's, and for which a mode is asked: torch's
    function, None for one that is in no place, and what is to be called. asking is the frame that asks, None for C.
    None where it stands in no place, or nobody can tell which."""
    if asking is not None and (own := _BY_LINE.get(_line(asking.f_code))) is not None:
        return own, own
    if isinstance(function, FunctionType) and of_torch(function.__code__):
        own = _BY_NAME.get((function.__module__, function.__name__))
        return None if own is None else (own, function)
    found = {id(own): own for own in _standing_for(function)}
    own = next(iter(found.values())) if len(found) == 1 else None
    if asking is None:
        # A descriptor gives another object each time.
        own = own or _in_tensor(getattr(function, "__name__", ""))
        return None if own is None else (own, own)
    # A helper of torch's calls what stands there itself; a function of the program's may ask as torch's do.
    asks = asking.f_globals.get(asking.f_code.co_name) if of_torch(asking.f_code) else None
    if getattr(asks, "__code__", None) is asking.f_code:
        return own, asks
    return None if own is None else (own, function)


def _in_tensor(name: str) -> Any:
    """The method in whose place something stands."""
    return _METHODS.get(name) or getattr(_C.TensorBase, name, None) if name in vars(torch.Tensor) else None


def _standing_for(function: Any) -> Iterator[Any]:
    """The functions of torch's in whose places it stands."""
    partials = (getattr(function, name, function) for name in ("_partialmethod", "__partialmethod__"))
    given = {id(function), *map(id, partials)}
    for name, value in vars(torch.Tensor).items():
        if not given.isdisjoint((id(value), id(getattr(value, "__func__", value)))):
            yield _in_tensor(name)
    for _, names, held in _HELD:
        yield from (own for name, own in held if names.get(name) is function)
