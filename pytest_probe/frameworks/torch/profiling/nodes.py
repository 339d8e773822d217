"""The time of each call's gradients: that between the hooks of the nodes that the call has made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from pytest_probe.frameworks.torch.recording.gradients import ACCUMULATE, MOST_NODES
from pytest_probe.profiling.stopwatch import Stopwatch
from pytest_probe.profiling.track import Api, Track

_grads = torch.is_grad_enabled
_number = torch._C._autograd._get_sequence_nr

# In a node's metadata: its time is counted for a call.
_OWNED = "pytest_probe.profiling"


class Nodes:
    """Puts hooks on the nodes of calls, and adds up what each call's nodes take."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self.track = stopwatch.track
        self.local = stopwatch.local
        self._nested = stopwatch.nested
        self._tell = stopwatch.tell
        # Calls of which some nodes have run.
        self.begun: set[_Several] = set()
        self.ended = False

    def end(self) -> None:
        """Calls of which some nodes never ran are told; graphs that live on keep their hooks, which do nothing more."""
        self.ended = True
        for call in list(self.begun):
            call.tell(self.track())
        self.begun.clear()

    def count(self) -> int:
        """Where the numbers of nodes stand that are made from now on; -1 where none are made."""
        return _number() if _grads() else -1

    def watch(self, api: Api, result: Any, start: int) -> None:
        """After a call: time its nodes, those with numbers from start on. Raises nothing."""
        if 0 <= start < _number():
            try:
                self._watch(api, result, start)
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
                self._tell("nodes", f"pytest-probe: the gradients of a call of {api.name} have no time ({found})")

    def _watch(self, api: Api, result: Any, start: int) -> None:
        made = _made(result, start)
        if self._nested:
            # They belong to the innermost call.
            made = [node for node in made if _OWNED not in node.metadata]
            for node in made:
                node.metadata[_OWNED] = True
        timer = _Node(self, api) if len(made) == 1 else _Several(self, api, len(made))
        for node in made:
            node.register_prehook(timer.before)
            node.register_hook(timer.after)


class _Node:
    """A call's only node. Autograd runs a node's hooks on the thread that runs the node."""

    __slots__ = ("_api", "_owner")

    def __init__(self, owner: Nodes, api: Api) -> None:
        self._owner = owner
        self._api = api

    def before(self, gradients: Any) -> None:
        owner = self._owner
        if not owner.ended:
            (owner.local.track or owner.track()).begin(self._api)

    def after(self, gradients: Any, incoming: Any) -> None:
        owner = self._owner
        if not owner.ended:
            (owner.local.track or owner.track()).end_call(self._api)


class _Several(_Node):
    """The nodes of one call, whose times are added up."""

    __slots__ = ("_begin", "_inner", "_left", "_nodes", "_spent")

    def __init__(self, owner: Nodes, api: Api, nodes: int) -> None:
        super().__init__(owner, api)
        self._nodes = self._left = nodes
        self._begin = self._spent = self._inner = 0

    def after(self, gradients: Any, incoming: Any) -> None:
        owner = self._owner
        if owner.ended:
            return
        track = owner.track()
        begin, spent, inner = track.end(self._api)
        self._begin = self._begin or begin
        self._spent += spent
        self._inner += inner
        self._left -= 1
        if self._left:
            owner.begun.add(self)
        else:
            self.tell(track)
            owner.begun.discard(self)

    def tell(self, track: Track) -> None:
        """One backward of the call is over; another one may follow, where the graph was kept."""
        track.note(self._api, self._begin, self._spent, self._inner)
        self._left = self._nodes
        self._begin = self._spent = self._inner = 0


def _made(result: Any, start: int) -> Sequence[Any]:
    """The nodes between outputs and inputs."""
    if isinstance(result, torch.Tensor) and _number() == start + 1:
        # What most calls make: the node of their output.
        node: Any = result.grad_fn
        return () if node is None or node._sequence_nr() < start else (node,)
    found: list[Any] = [tensor.grad_fn for tensor in _tensors(result) if tensor.grad_fn is not None]
    known: dict[Any, None] = {}
    while found and len(known) < MOST_NODES:
        node = found.pop()
        # A leaf's is of the backward, and its number tells nothing.
        if node not in known and type(node) is not ACCUMULATE and node._sequence_nr() >= start:
            known[node] = None
            found.extend(following for following, _ in node.next_functions if following is not None)
    return tuple(known)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
