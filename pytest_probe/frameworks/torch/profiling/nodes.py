"""The time of each call's gradients: that between the hooks of the nodes that the call has made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from pytest_probe.frameworks.torch.recording.gradients import ACCUMULATE, MOST_NODES
from pytest_probe.profiling.stopwatch import Stopwatch
from pytest_probe.profiling.track import Api, Track

_grads = torch.is_grad_enabled
_number = torch._C._autograd._get_sequence_nr

# In a node's metadata: the call that its time is counted for.
_OWNED = "pytest_probe.profiling"


class Nodes:
    """Puts hooks on the nodes of calls, and adds up what each call's nodes take."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self.track = stopwatch.track
        self._nested = stopwatch.nested
        # Calls of which some nodes have run.
        self.begun: set[_Backward] = set()
        self.ended = False

    def end(self) -> None:
        """Calls of which some nodes never ran are told; graphs that live on keep their hooks, which do nothing more."""
        self.ended = True
        for call in self.begun:
            call.tell(self.track())
        self.begun.clear()

    def count(self) -> int:
        """Where the numbers of nodes stand that are made from now on; -1 where none are made."""
        return _number() if _grads() else -1

    def watch(self, api: Api, result: Any, start: int) -> None:
        """After a call: time its nodes, those with numbers from start on."""
        if 0 <= start < _number():
            made = list(_made(result, start))
            if self._nested:
                # They belong to the innermost call.
                made = [node for node in made if node.metadata.setdefault(_OWNED, api) is api]
            call = _Backward(self, api, len(made))
            for node in made:
                node.register_prehook(call.before)
                node.register_hook(call.after)


class _Backward:
    """The nodes of one call. Autograd runs a node's hooks on the thread that runs the node."""

    __slots__ = ("_api", "_begin", "_inner", "_left", "_nodes", "_owner", "_spent")

    def __init__(self, owner: Nodes, api: Api, nodes: int) -> None:
        self._owner = owner
        self._api = api
        self._nodes = self._left = nodes
        self._begin = self._spent = self._inner = 0

    def before(self, gradients: Any) -> None:
        if not self._owner.ended:
            self._owner.track().begin(self._api)

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
        if not self._left:
            self.tell(track)
            owner.begun.discard(self)
        elif self._nodes > 1:
            owner.begun.add(self)

    def tell(self, track: Track) -> None:
        """One backward of the call is over; another one may follow, where the graph was kept."""
        track.note(self._api, self._begin, self._spent, self._inner)
        self._left = self._nodes
        self._begin = self._spent = self._inner = 0


def _made(result: Any, start: int) -> Iterator[Any]:
    """The nodes between outputs and inputs."""
    found = [tensor.grad_fn for tensor in _tensors(result) if tensor.grad_fn is not None]
    known: set[Any] = set()
    while found and len(known) < MOST_NODES:
        node = found.pop()
        # A leaf's is of the backward, and its number tells nothing.
        if node in known or type(node) is ACCUMULATE or node._sequence_nr() < start:
            continue
        known.add(node)
        yield node
        found.extend(following for following, _ in node.next_functions if following is not None)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
