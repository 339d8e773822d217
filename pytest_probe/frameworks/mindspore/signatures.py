"""MindSpore: what its APIs and their parameters are called elsewhere. Neither MindSpore nor torch is imported.

Functions of `mindspore.mint` and methods of tensors have the names and parameters of torch's, and so what torch's mean.
Those of `mindspore.ops` have their own: the map says what corresponds to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pytest_probe.frameworks import mapping
from pytest_probe.frameworks.mapping.table import packaged
from pytest_probe.frameworks.python.binding import bound_call, unbound_call
from pytest_probe.frameworks.torch import signatures as torch
from pytest_probe.model.run import BoundCall

# By the first part of a recorded name: what MindSpore calls the module, and where torch has the same names. Operators
# of `mindspore.ops` have names and parameters of their own.
NAMESPACES: Mapping[str, tuple[str, str]] = {
    "MintFunctional": ("mindspore.mint.nn.functional", "Functional"),
    "Mint": ("mindspore.mint", "Torch"),
    "Tensor": ("mindspore.Tensor", "Tensor"),
    "Functional": ("mindspore.ops", ""),
}
# MindSpore's names of dtypes that are more than a capital at the beginning.
_DTYPES = {"bfloat16": "BFloat16", "float8_e4m3fn": "Float8E4M3FN", "float8_e5m2": "Float8E5M2"}
_BARE = {written: bare for bare, written in _DTYPES.items()}
MAP = "mindspore_torch"
# Functions of the map's own that are most like those of this name in `torch.nn.functional`.
_LAYERS = frozenset(("conv2d", "cross_entropy", "nll_loss", "one_hot"))


def path_of(api: str) -> str:
    """What MindSpore calls an API of a dump: "mindspore.mint.add" for "Mint.add"."""
    namespace, _, name = api.partition(".")
    module, _ = NAMESPACES.get(namespace, ("", ""))
    return f"{module}.{name}"


def entry_of(api: str) -> mapping.Mapping | None:
    """What says which call of torch's corresponds to an API; None where one of the same name does."""
    found = packaged(MAP).found(path_of(api))
    return found and found[1]


def called(entry: mapping.Mapping) -> str:
    """The function of torch's that makes the calls of an entry, or that it is most like."""
    if entry.function is None:
        return entry.path
    return f"torch.nn.functional.{entry.path}" if entry.path in _LAYERS else f"torch.{entry.path}"


def counterpart(api: str) -> str:
    """The API of torch's that corresponds to one of MindSpore's: "Torch.add" of "Mint.add"; "" for none."""
    entry = entry_of(api)
    if entry is not None:
        return torch.spelled(called(entry))
    namespace, _, name = api.partition(".")
    _, native = NAMESPACES.get(namespace, ("", ""))
    return f"{native}.{name}" if native else ""


def spelled(glob: str) -> str:
    """A glob with MindSpore's own spelling replaced by the dump's: `mindspore.mint.x` is `Mint.x`."""
    for namespace, (module, _) in NAMESPACES.items():
        if glob.startswith(f"{module}."):
            return namespace + glob[len(module) :]
    return glob


def written(dtype: str) -> tuple[str, str, str]:
    """As msprobe writes them: dtypes with capitals."""
    plain = dtype.replace("uint", "UInt") if dtype.startswith("uint") else dtype.capitalize()
    return "mindspore.Tensor", "mindspore.dtype", _DTYPES.get(dtype, plain)


def bare(dtype: str) -> str:
    """The usual name of a dtype that MindSpore writes with capitals."""
    return _BARE.get(dtype, dtype.lower())


def canonical(api: str) -> str:
    """The API's name without namespace, dunders and in-place mark, as the tables have it."""
    return torch.canonical(counterpart(api) or api)


def bind(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BoundCall:
    """The arguments of a call by the names of its API's parameters; api as a dump has it, "" for no known one.

    The values are whatever represents tensors there.
    """
    entry = entry_of(api)
    if entry is None:
        return replace(torch.bind(counterpart(api) or api, args, kwargs), api=api)
    found = bound_call(api, canonical(api), True, entry.takes, args, kwargs)
    names = torch.signature(counterpart(api)).aliases
    given, paths, defaults = (
        {names.get(name, name): value for name, value in each.items()}
        for each in (found.given, found.paths, found.defaults)
    )
    return replace(found, given=given, paths=paths, defaults=defaults)


def call(api: str, given: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and keyword arguments by which an API takes values that are given by canonical names."""
    entry = entry_of(api)
    if entry is None:
        return torch.call(counterpart(api) or api, given)
    names = {own: name for name, own in torch.signature(counterpart(api)).aliases.items()}
    return unbound_call(entry.takes, {names.get(name, name): value for name, value in given.items()})
