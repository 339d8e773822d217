"""The gradients that come to a call's outputs: hooks on them, registered at the call.

A hook sees the gradient after it was summed up over all that used the output. Those of the arguments cannot be had by
hooks, which would see the sums over other calls: a replay computes them. What a hook raised would end the program's
backward, so that it raises nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import paddle
from msgspec import UNSET

from pytest_probe.capture.snapshot import BackwardEntry, NamedEntry, Parent, Tree, backward_of
from pytest_probe.frameworks.paddle.arrays import is_float


def differentiable(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """The tensors among outputs to which a gradient comes, by place. That of a leaf is no call's, and outlives it."""
    if isinstance(value, paddle.Tensor):
        if not value.stop_gradient and not value.is_leaf and is_float(value):
            yield place, value
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from differentiable(item, f"{place}.{index}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from differentiable(item, f"{place}.{key}")


class Watched:
    """The gradients of the outputs of one call, by place, as they come. Of several backwards the first counts."""

    __slots__ = ("_came", "gradients", "missing", "name", "parent")

    def __init__(self, name: str, parent: Parent, outputs: Sequence[tuple[str, Any]], fire: Fire) -> None:
        self.name = name
        self.parent = parent
        self.gradients: dict[str, Tree] = {place: None for place, _ in outputs}
        self.missing = len(outputs)
        self._came: set[str] = set()
        for place, tensor in outputs:
            self._register(tensor, self._hook(place, fire))

    def _register(self, tensor: Any, hook: Callable[[Any], None]) -> None:
        tensor._register_grad_hook(hook)

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

    def entries(self) -> Iterator[NamedEntry]:
        # No argument has a place here: their gradients were not recorded.
        places = {"outputs": list(self.gradients), "inputs": []}
        yield NamedEntry(
            self.name, BackwardEntry(list(self.gradients.values()), probe=places), parent=backward_of(self.parent)
        )


class WatchedParameters(Watched):
    """The gradients of a layer's own parameters in the first backward: sums over all that used them in it."""

    __slots__ = ("_hooks",)

    def __init__(self, name: str, parameters: Sequence[tuple[str, Any]], fire: Fire) -> None:
        self._hooks: list[tuple[Any, int]] = []
        super().__init__(name, UNSET, parameters, fire)

    def _register(self, tensor: Any, hook: Callable[[Any], None]) -> None:
        self._hooks.append((tensor, tensor._register_grad_hook(hook)))

    @property
    def began(self) -> bool:
        """Did a gradient come?"""
        return bool(self._came)

    def leave(self) -> None:
        """Take the hooks away: parameters outlive every capture. Not from inside a hook."""
        for tensor, hook in self._hooks:
            tensor._remove_grad_hook(hook)
        self._hooks.clear()

    def entries(self) -> Iterator[NamedEntry]:
        yield NamedEntry(self.name, {place: [tree] for place, tree in self.gradients.items() if tree is not None})


Fire = Callable[[Watched, str, Any], None]
