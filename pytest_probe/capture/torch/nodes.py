"""The time of each call's gradients: that between the hooks of the nodes that the call has made.

Hooks are registered by a function of ours, which makes no handles and is shorter than torch's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, TypeAlias

import torch

from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.profiling.track import Api, Track
from pytest_probe.capture.torch.functions import tensors
from pytest_probe.capture.torch.gradients import ACCUMULATE, MOST_NODES

Hooks: TypeAlias = tuple[Callable[..., None], Callable[..., None]]
# That of the next node that this thread makes.
number: Callable[[], int] = torch._C._autograd._get_sequence_nr

# In a node's metadata: its time is counted for a call.
_OWNED = "pytest_probe.capture.profiling"


class Nodes:
    """Puts hooks on the nodes of calls, and adds up what each call's nodes take."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self.track = stopwatch.track
        self.local = stopwatch.local
        self._nested = stopwatch.nested
        self._tell = stopwatch.tell
        # Calls of which some nodes have run.
        self.begun: set[_Several] = set()
        self._ours: set[Callable[..., None]] = set()
        self.ended = False

    def end(self) -> None:
        """Reports calls of which some nodes never ran; graphs that live on keep their hooks, which do nothing more."""
        self.ended = True
        for call in list(self.begun):
            call.tell(self.track())
        self.begun.clear()

    def hooks(self, api: Api) -> Hooks:
        """What runs before and after a node that is a call's only one. Autograd runs both on the node's thread."""
        local, track = self.local, self.track

        def before(gradients: Any) -> None:
            if not self.ended:
                (local.track or track()).begin(api)

        def after(gradients: Any, incoming: Any) -> None:
            if not self.ended:
                (local.track or track()).end_call(api)

        hooks = before, after
        self._ours.update(hooks)
        return hooks

    def watch(self, api: Api, hooks: Hooks, result: Any, start: int, made: int) -> None:
        """After a call that made so many nodes: time those with numbers from start on. Raises nothing."""
        try:
            if made == 1 and not self._nested and isinstance(result, torch.Tensor):
                # What most calls make: the node of their output.
                node: Any = result.grad_fn
                if node is not None and node._sequence_nr() >= start:
                    node.register_prehook(hooks[0])
                    node.register_hook(hooks[1])
            else:
                self._watch(api, hooks, _made(result, start))
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
            self._tell("nodes", f"pytest-probe: the gradients of a call of {api.name} have no time ({found})")

    def _watch(self, api: Api, hooks: Hooks, made: Sequence[Any]) -> None:
        if self._nested:
            # They belong to the innermost call.
            made = [node for node in made if _OWNED not in node.metadata]
            for node in made:
                node.metadata[_OWNED] = True
        if len(made) != 1:
            several = _Several(self, api, len(made))
            hooks = several.before, several.after
        for node in made:
            node.register_prehook(hooks[0])
            node.register_hook(hooks[1])

    @contextmanager
    def registered_quickly(self) -> Iterator[None]:
        """While it lasts our hooks get no handle, which would remove them: to make one takes longer than the rest."""
        function: Any = torch.autograd.Function
        original, before, ours = function._register_hook, vars(function).get("_register_hook"), self._ours

        def register(registered: Any, hook: Any) -> tuple[Any, Any]:
            # Hooks of the program's need not be hashable.
            if registered is None and type(hook) is FunctionType and hook in ours:
                hooks: OrderedDict[Any, Any] = OrderedDict()
                hooks[None] = hook
                return hooks, None
            found: tuple[Any, Any] = original(registered, hook)
            return found

        function._register_hook = staticmethod(register)
        try:
            yield
        finally:
            if before is not None:
                function._register_hook = before
            else:
                del function._register_hook


class _Several:
    """The nodes of one call, whose times are added up."""

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
    found: list[Any] = [tensor.grad_fn for tensor in tensors(result) if tensor.grad_fn is not None]
    known: dict[Any, None] = {}
    while found and len(known) < MOST_NODES:
        node = found.pop()
        # A leaf's is of the backward, and its number tells nothing.
        if node not in known and type(node) is not ACCUMULATE and node._sequence_nr() >= start:
            known[node] = None
            found.extend(following for following, _ in node.next_functions if following is not None)
    return tuple(known)
