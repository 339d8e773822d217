"""torch's calls while a program runs, for who asks some of them further: a mode that copies the arguments of those."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from pytest_probe.frameworks.python.binding import works_in_place
from pytest_probe.frameworks.torch.capture.modes import Presence, transforming, unseen
from pytest_probe.frameworks.torch.capture.names import ALIASING, RecordedFunctions

_NARROW = (torch.float16, torch.bfloat16)
# By this a checkpoint ends its forward's second run, where that has saved what was wanted.
_RECOMPUTED = "_StopRecomputationError"
# Of a roundoff of the call's own dtype: so far may another order of the wider dtype's additions move what is rounded.
_TIE = 1 / 256


class Made(NamedTuple):
    """A call that the program made, of an API ("Functional.linear"). result is None where the call may write to its
    arguments, and these are then copies from before it."""

    api: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: Any

    @property
    def given(self) -> list[torch.Tensor]:
        return _tensors((self.args, self.kwargs))

    @property
    def place(self) -> str:
        """The device of the first tensor, "" without one."""
        return str(self.given[0].device) if self.given else ""


class Asks(Protocol):
    """Who asks. What asking raises does not reach the program."""

    def chosen(self, api: str) -> bool:
        """Is this call of an API asked?"""

    def ask(self, call: Made) -> bool:
        """Is the call suspicious?"""

    def failed(self, api: str, error: Exception) -> None:
        """A call could not be asked."""

    def keep(self, call: Made) -> None:
        """Record a suspicious call."""

    def fixed(self, call: Made) -> Any:
        """What takes the place of the result of a call that writes to none of its arguments; None: nothing."""


class TorchAsking:
    """Sees the program's calls between begin and end, on this thread and on threads that it starts."""

    def __init__(self, wants: Callable[[str], bool], asks: Asks) -> None:
        self._mode = _Mode(RecordedFunctions(wants), asks)
        self._presence = Presence(self._mode, lambda: None)

    def begin(self) -> None:
        self._mode.asking = True
        self._presence.begin()

    def end(self) -> None:
        """Leave no hook; a thread that is still running keeps the mode, idle."""
        self._mode.asking = False
        self._presence.end()


class _Mode(TorchFunctionMode):
    def __init__(self, rules: RecordedFunctions, asks: Asks) -> None:
        super().__init__()
        self._rules, self._asks, self.asking = rules, asks, False

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        rule = self._rule(function)
        if rule is None or not (rule.wanted and self.asking) or transforming() or not self._asks.chosen(rule.name):
            return function(*args, **kwargs)
        writes = rule.writes or works_in_place(rule.name) or "out" in kwargs
        try:
            with _alike(), unseen():
                given = tree_map(_copied if writes else _detached, (tuple(args), dict(kwargs)))
        except Exception as error:  # a tensor that cannot be copied, or no memory
            self._asks.failed(rule.name, error)
            return function(*args, **kwargs)
        drawn = _Drawn() if rule.draws else None
        result = function(*args, **kwargs)
        if drawn is not None and drawn.moved():
            return result
        try:
            found = None if writes else self._asks.fixed(Made(rule.name, function, args, kwargs, result))
            with _alike(), _without_autocast(given, result) as (own_args, own_kwargs):
                self._ask(Made(rule.name, function, own_args, own_kwargs, None if writes else result))
        except Exception as error:
            if type(error).__name__ == _RECOMPUTED:
                raise
            self._asks.failed(rule.name, error)
            return result
        return result if found is None else found

    def _ask(self, call: Made) -> None:
        with unseen():
            wrong = self._asks.ask(call)
        if wrong:
            self._asks.keep(call)

    def _rule(self, function: Any) -> Any:
        try:
            rule = self._rules.table[function] if function in self._rules.table else self._rules.learn(function)
        except TypeError:
            return None
        return None if rule is ALIASING else rule


@contextmanager
def _alike() -> Iterator[None]:
    """Nothing in here draws the program's numbers, enters its graph, or is saved as a checkpoint saves."""
    with _drawing_nothing(), torch.no_grad(), saved_tensors_hooks(_itself, _itself):
        yield


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


class _Drawn:
    """Where the program's random numbers stand."""

    def __init__(self) -> None:
        kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        device: Any = None if kind is None else torch.get_device_module(kind.type)
        self._places: list[Any] = [place for place in (torch, device) if hasattr(place, "get_rng_state")]
        self._states = self._now()

    def _now(self) -> list[torch.Tensor]:
        return [place.get_rng_state() for place in self._places]

    def moved(self) -> bool:
        return not all(map(torch.equal, self._states, self._now()))

    def put_back(self) -> None:
        for place, state in zip(self._places, self._states, strict=True):
            place.set_rng_state(state)


@contextmanager
def _drawing_nothing() -> Iterator[None]:
    drawn = _Drawn()
    try:
        yield
    finally:
        drawn.put_back()


def _detached(value: Any) -> Any:
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def _copied(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


@contextmanager
def _without_autocast(given: Any, result: Any) -> Iterator[Any]:
    """The arguments as an autocast hands them to the kernel, and no autocast."""
    tensors, results = _tensors(given), _tensors(result)
    kind = tensors[0].device.type if tensors else "cpu"
    if results and torch.is_autocast_enabled(kind):
        dtype = results[0].dtype
        casts = (torch.float32,) if dtype in _NARROW else _NARROW if dtype is torch.float32 else ()
        given = tree_map(lambda leaf: _cast(leaf, casts, dtype), given)
    with torch.autocast(kind, enabled=False) if tensors else nullcontext():
        yield given


def _cast(leaf: Any, casts: Sequence[torch.dtype], dtype: torch.dtype) -> Any:
    if not isinstance(leaf, torch.Tensor) or leaf.dtype not in casts:
        return leaf
    return leaf.detach().to(dtype).requires_grad_(leaf.requires_grad)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def otherwise(call: Made, *, on_cpu: bool) -> Any | None:
    """What takes the place of a call's result: what it gives in a wider dtype, or on the CPU, in the result's dtypes,
    with the gradients of that; None where it has no tensors, or the result would be the same."""
    own, dtype = _tensors(call.result), _wider(call)
    if not own or not call.given or (dtype is None and not (on_cpu and call.given[0].device.type != "cpu")):
        return None
    with _drawing_nothing(), torch.autocast(call.given[0].device.type, enabled=False):
        found = [leaf.to(of) for leaf, of in zip(_other_run(call, dtype, on_cpu=on_cpu), own, strict=True)]
    # A view stays one: the program may write to it.
    if all(map(_same, own, found)):
        return None
    leaves = iter(found)
    return tree_map(lambda leaf: next(leaves) if isinstance(leaf, torch.Tensor) else leaf, call.result)


def agrees(call: Made, *, on_cpu: bool) -> bool:
    """Is the result what the call gives in a wider dtype, or in float64 on the CPU, rounded once? No kernel can be
    nearer to that. False as well where it cannot be told."""
    own, dtype = _tensors(call.result), _wider(call)
    if not own or dtype is None:
        return False
    try:
        wide = _other_run(call, torch.float64 if on_cpu else dtype, on_cpu=on_cpu)
        return len(own) == len(wide) and all(map(_rounded_once, own, wide))
    except Exception:  # no wider kernel, or no memory: who asks further says so
        return False


def _rounded_once(own: torch.Tensor, wide: torch.Tensor) -> bool:
    wide = wide.to(own.device)
    if own.shape != wide.shape or not own.is_floating_point():
        return torch.equal(own, wide)
    near = _TIE * torch.finfo(own.dtype).eps / 2
    one, other = (wide * (1 - near)).to(own.dtype), (wide * (1 + near)).to(own.dtype)
    return bool(((own >= torch.minimum(one, other)) & (own <= torch.maximum(one, other))).all())


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _wider(call: Made) -> torch.dtype | None:
    """The dtype that is wider than the narrowest of a call's tensors; None where there is none, and for complex."""
    dtypes = {tensor.dtype for tensor in (*call.given, *_tensors(call.result))}
    if any(dtype.is_complex for dtype in dtypes):
        return None
    if not dtypes.isdisjoint(_NARROW):
        return torch.float32
    return torch.float64 if torch.float32 in dtypes else None


def _other_run(call: Made, dtype: torch.dtype | None, *, on_cpu: bool) -> list[torch.Tensor]:
    """The call on copies of its arguments, in their graph, the floating ones in this dtype where that is wider."""

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        wide = leaf.is_floating_point() and dtype is not None and leaf.dtype.itemsize < dtype.itemsize
        return leaf.to("cpu" if on_cpu else leaf.device, dtype if wide else leaf.dtype, copy=True)

    args, kwargs = tree_map(copied, (tuple(call.args), dict(call.kwargs)))
    return _tensors(call.function(*args, **kwargs))


def made(wants: Callable[[str], bool], asks: Asks) -> TorchAsking:
    """What sees the program's calls."""
    return TorchAsking(wants, asks)
