"""The gradients that come to a call's outputs: hooks on them, registered at the call.

A hook sees the gradient after it was summed up over all that used the output. Those of the arguments cannot be had by
hooks, which would see the sums over other calls: a replay computes them. What a hook raised would end the program's
backward, so that it raises nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from pytest_probe.capture.snapshot import BackwardEntry, NamedEntry, Parent, Tree, backward_of

Fire: TypeAlias = Callable[["Watched", str, Any], None]
# Has a hook called with a tensor's gradient.
Register: TypeAlias = Callable[[Any, Callable[[Any], None]], object]


class Watched:
    """The gradients of the outputs of one call, by place, as they come. Of several backwards the first counts."""

    __slots__ = ("_came", "gradients", "missing", "name", "parent")

    def __init__(
        self, name: str, parent: Parent, outputs: Sequence[tuple[str, Any]], fire: Fire, register: Register
    ) -> None:
        self.name = name
        self.parent = parent
        self.gradients: dict[str, Tree] = {place: None for place, _ in outputs}
        self.missing = len(outputs)
        self._came: set[str] = set()
        for place, tensor in outputs:
            register(tensor, self._hook(place, fire))

    def _hook(self, place: str, fire: Fire) -> Callable[[Any], None]:
        def hook(gradient: Any) -> None:
            fire(self, place, gradient)

        return hook

    def came(self, place: str, gradient: Tree) -> None:
        if place in self._came:
            self.missing = 0
            return
        self._came.add(place)
        self.gradients[place] = gradient
        self.missing -= 1

    @property
    def began(self) -> bool:
        """Did a gradient come?"""
        return bool(self._came)

    def entries(self) -> Iterator[NamedEntry]:
        # No argument has a place here: their gradients were not recorded.
        places = {"outputs": list(self.gradients), "inputs": []}
        yield NamedEntry(
            self.name, BackwardEntry(list(self.gradients.values()), probe=places), parent=backward_of(self.parent)
        )
