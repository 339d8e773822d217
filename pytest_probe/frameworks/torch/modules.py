"""PyTorch: Modules as functions of their parameters and buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from msgspec import Struct

from pytest_probe.errors import SettingsError
from pytest_probe.frameworks.base import Functions

# What a compiled Module puts before the names of the one that it was made of.
_COMPILED = "_orig_mod."


def functions(function: Callable[..., Any], reference: Callable[..., Any]) -> Functions:
    """Two functions, of which each may be a Module; see Framework.functions."""
    own = _State.of(function) if isinstance(function, torch.nn.Module) else None
    others = _State.of(reference) if isinstance(reference, torch.nn.Module) else None
    if own is None and others is None:
        return Functions(function, reference)
    if own is None or others is None:
        # The other side knows nothing of these, so that no gradient and no change of theirs can be compared.
        state = own or others
        assert state is not None
        call = _Call(function, own, writes=False), _Call(reference, others, writes=False)
        return Functions(*call, {"module": state.tensors}, _named("module", state.tensors))
    _check_alike(own, others)
    buffers = {name: tensor for name, tensor in others.tensors.items() if name not in own.tensors}
    fixed = {name for name, tensor in own.tensors.items() if name in own.buffers or not tensor.requires_grad}
    constant = _named("module", fixed) | _named("reference", buffers)
    tensors = {"module": own.tensors, **({"reference": buffers} if buffers else {})}
    return Functions(_Call(function, own), _Call(reference, others), tensors, constant)


def _named(root: str, names: Any) -> frozenset[str]:
    return frozenset(f"kwargs.{root}.{name}" for name in names)


class _State(Struct, frozen=True):
    """A Module's parameters and buffers, by the names that it would have uncompiled; buffers names the latter."""

    module: torch.nn.Module
    tensors: Mapping[str, torch.Tensor]
    buffers: frozenset[str]

    @classmethod
    def of(cls, module: torch.nn.Module) -> _State:
        parameters = {_plain(name): tensor for name, tensor in module.named_parameters()}
        buffers = {_plain(name): tensor for name, tensor in module.named_buffers()}
        return cls(module, {**parameters, **buffers}, frozenset(buffers))

    def own_names(self) -> dict[str, str]:
        """The names that the Module itself gives, by ours."""
        named = (*self.module.named_parameters(), *self.module.named_buffers())
        return {_plain(name): name for name, _ in named}


def _plain(name: str) -> str:
    return name.replace(_COMPILED, "")


def _check_alike(own: _State, others: _State) -> None:
    """Raises SettingsError where the Modules have other parameters, or other shapes."""
    lonely = [
        f"{name} of the {side}"
        for side, first, second in (("function", own, others), ("reference", others, own))
        for name in first.tensors
        if name not in first.buffers and name not in second.tensors
    ]
    if lonely:
        advice = "two Modules must name their parameters alike; make the reference a function of its tensors instead"
        raise SettingsError("probe.check: reference", type(others.module).__name__, f"{advice}: {', '.join(lonely)}")
    for name in own.tensors:
        first, second = own.tensors[name].shape, others.tensors.get(name, own.tensors[name]).shape
        if first != second:
            found = f"{name} is {list(second)} there and {list(first)} in the function; they must be alike"
            raise SettingsError("probe.check: reference", type(others.module).__name__, found)


class _Call:
    """Calls a function, or a Module with the parameters and buffers that it is given."""

    def __init__(self, function: Callable[..., Any], state: _State | None, *, writes: bool = True) -> None:
        self._function = function
        self._state = state
        self._writes = writes
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, *args: Any, module: Any, reference: Any = None, **kwargs: Any) -> Any:
        if self._state is None:
            return self._function(*args, **kwargs)
        given = {**module, **(reference or {})}
        named = {own: given[name] for name, own in self._state.own_names().items()}
        if not self._writes:
            buffers = self._state.buffers
            named = {name: each.clone() if _plain(name) in buffers else each for name, each in named.items()}
        before = dict(named)
        result = torch.func.functional_call(self._state.module, named, args, kwargs)
        for name, tensor in before.items():
            if named[name] is not tensor:
                _write(named[name], tensor)
        return result


def _write(assigned: torch.Tensor, tensor: torch.Tensor) -> None:
    """What a Module made one of its tensors, as a change of the one that it was given."""
    with torch.no_grad():
        (tensor if assigned.shape == tensor.shape else tensor.resize_(assigned.shape)).copy_(assigned)
