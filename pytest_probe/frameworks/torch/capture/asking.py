"""torch's calls while a program runs, for who asks some of them further: a mode that copies the arguments of those."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from pytest_probe.frameworks.torch.capture.modes import Presence, transforming, unseen
from pytest_probe.frameworks.torch.capture.names import ALIASING, RecordedFunctions

_NARROW = (torch.float16, torch.bfloat16)


class Asks(Protocol):
    """Who asks. What asking raises does not reach the program."""

    def chosen(self, api: str) -> bool:
        """Is this call of an API ("Functional.linear") asked?"""

    def ask(self, api: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Is the call suspicious, which was made? On copies of its arguments."""

    def failed(self, api: str, error: Exception) -> None:
        """A call could not be asked."""

    def keep(self, api: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Record a suspicious call."""

    def fixed(self, api: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What takes the place of the call's result; None: nothing."""


class TorchAsking:
    """Sees the program's calls between begin and end, on this thread and on threads that it starts."""

    def __init__(self, wants: Callable[[str], bool], asks: Asks) -> None:
        self._presence = Presence(_Mode(RecordedFunctions(wants), asks), lambda: None)

    def begin(self) -> None:
        self._presence.begin()

    def end(self) -> None:
        """Leave no hook."""
        self._presence.end()


class _Mode(TorchFunctionMode):
    def __init__(self, rules: RecordedFunctions, asks: Asks) -> None:
        super().__init__()
        self._rules, self._asks = rules, asks

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        rule = self._rule(function)
        # The engine runs other threads' work: a call inside of it is none of the program's.
        if rule is None or not rule.wanted or transforming() or not self._asks.chosen(rule.name):
            return function(*args, **kwargs)
        try:
            with _alike(), unseen():
                copies = tree_map(_copied, (tuple(args), dict(kwargs)))
        except Exception as error:  # a tensor that cannot be copied, or no memory
            self._asks.failed(rule.name, error)
            return function(*args, **kwargs)
        found = self._asks.fixed(rule.name, function, args, kwargs)
        result = function(*args, **kwargs) if found is None else found
        try:
            self._ask(rule.name, function, copies, result)
        except Exception as error:
            self._asks.failed(rule.name, error)
        return result

    def _ask(self, api: str, function: Any, copies: Any, result: Any) -> None:
        with _alike(), _without_autocast(copies, result) as (args, kwargs):
            with unseen():
                wrong = self._asks.ask(api, function, args, kwargs)
            if wrong:
                self._asks.keep(api, function, args, kwargs)

    def _rule(self, function: Any) -> Any:
        try:
            rule = self._rules.table[function] if function in self._rules.table else self._rules.learn(function)
        except TypeError:
            return None
        return None if rule is ALIASING else rule


@contextmanager
def _alike() -> Iterator[None]:
    """Nothing in here draws the program's numbers, or enters its graph."""
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    drawn = torch.get_rng_state()
    device = None if kind is None else torch.get_device_module(kind.type)
    there = device.get_rng_state() if device is not None and hasattr(device, "get_rng_state") else None
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_rng_state(drawn)
        if there is not None and device is not None:
            device.set_rng_state(there)


def _copied(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


@contextmanager
def _without_autocast(copies: Any, result: Any) -> Iterator[Any]:
    """The arguments as an autocast hands them to the kernel, and no autocast."""
    tensors = [leaf for leaf in tree_leaves(copies) if isinstance(leaf, torch.Tensor)]
    kind = tensors[0].device.type if tensors else "cpu"
    given = next((leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)), None)
    narrow = given is not None and torch.is_autocast_enabled(kind) and given.dtype in _NARROW
    if narrow and given is not None:
        dtype = given.dtype
        copies = tree_map(lambda leaf: _rounded(leaf, dtype), copies)
    with torch.autocast(kind, enabled=False):
        yield copies


def _rounded(leaf: Any, dtype: torch.dtype) -> Any:
    if not isinstance(leaf, torch.Tensor) or leaf.dtype is not torch.float32:
        return leaf
    return leaf.detach().to(dtype).requires_grad_(leaf.requires_grad)


def place_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The device of a call's first tensor, "" without one."""
    tensors = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))
    found = next(tensors, None)
    return "" if found is None else str(found.device)


def otherwise(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, on_cpu: bool
) -> Any | None:
    """What the call gives in a wider dtype, or on the CPU, with the gradients of that; None where it has no tensors, or
    its result would be the same."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    narrow = [leaf for leaf in tensors if leaf.dtype in _NARROW]
    if not tensors or not (narrow or (on_cpu and tensors[0].device.type != "cpu")):
        return None
    own, where = (narrow or tensors)[0].dtype, tensors[0].device

    def there(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        wide = leaf.float() if leaf.dtype in _NARROW else leaf
        return wide.cpu() if on_cpu else wide

    def back(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.to(where, own if narrow and leaf.dtype is torch.float32 else leaf.dtype)

    wide_args, wide_kwargs = tree_map(there, (tuple(args), dict(kwargs)))
    return tree_map(back, function(*wide_args, **wide_kwargs))


def made(wants: Callable[[str], bool], asks: Asks) -> TorchAsking:
    """What sees the program's calls."""
    return TorchAsking(wants, asks)
