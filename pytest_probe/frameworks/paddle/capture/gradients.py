"""The gradients that come to a call's outputs: hooks on them, registered at the call.

A hook sees the gradient after it was summed up over all that used the output. Those of the arguments cannot be had by
hooks, which would see the sums over other calls: a replay computes them. What a hook raised would end the program's
backward, so that it raises nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import paddle
from msgspec import UNSET

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import CallStacks
from pytest_probe.capture.modules import ModuleCalls, Watch
from pytest_probe.capture.recorder import Recorder
from pytest_probe.capture.snapshot import BackwardEntry, NamedEntry, Parent, Tree, backward_of
from pytest_probe.frameworks.paddle.arrays import is_float
from pytest_probe.frameworks.paddle.capture.values import Values


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

    def __init__(self, name: str, parent: Parent, outputs: Sequence[tuple[str, Any]], fire: _Fire) -> None:
        self.name = name
        self.parent = parent
        self.gradients: dict[str, Tree] = {place: None for place, _ in outputs}
        self.missing = len(outputs)
        self._came: set[str] = set()
        for place, tensor in outputs:
            self._register(tensor, self._hook(place, fire))

    def _register(self, tensor: Any, hook: Callable[[Any], None]) -> None:
        tensor._register_grad_hook(hook)

    def _hook(self, place: str, fire: _Fire) -> Callable[[Any], None]:
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


class _WatchedParameters(Watched):
    """The gradients of a layer's own parameters in the first backward: sums over all that used them in it."""

    __slots__ = ("_hooks",)

    def __init__(self, name: str, parameters: Sequence[tuple[str, Any]], fire: _Fire) -> None:
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


_Fire = Callable[[Watched, str, Any], None]


# The calls of Paddle's layers, and their gradients.
#
# paddle.nn.Layer.__call__ is replaced: hooks of layers would make them take another path, and do not see an exception.


_original = paddle.nn.Layer.__call__


class Modules(ModuleCalls):
    """Follows the layer calls of all threads."""

    kind = paddle.nn.Layer
    kind_name = "paddle.nn.Layer"
    atoms = (paddle.Tensor, paddle.Size)

    def __init__(
        self,
        config: CaptureConfig,
        values: Values,
        stacks: CallStacks,
        fire: _Fire,
        sees: Callable[[], bool],
        aside: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """sees: are calls recorded now? aside: inside none are."""
        super().__init__(config, values, stacks)
        self._fire = fire
        self._sees = sees
        self._aside = aside
        self._parameters: dict[str, _WatchedParameters] = {}

        @functools.wraps(_original)
        def replacement(layer: Any, /, *args: Any, **kwargs: Any) -> Any:
            if self._sees():
                return self.made(_original, layer, args, kwargs)
            return _original(layer, *args, **kwargs)

        self._replacement = replacement

    def begin(self, recorder: Recorder) -> None:
        super().begin(recorder)
        if paddle.nn.Layer.__call__ is _original:
            paddle.nn.Layer.__call__ = self._replacement

    def end(self) -> None:
        if paddle.nn.Layer.__call__ is self._replacement:
            paddle.nn.Layer.__call__ = _original
        super().end()

    def leave(self) -> None:
        """No gradients of parameters come any more."""
        for watched in self._parameters.values():
            watched.leave()
        self._parameters.clear()

    def named(self, model: Any) -> Iterable[tuple[str, Any]]:
        found: Iterator[tuple[str, Any]] = model.named_sublayers(include_self=True)
        return found

    def parameters(self, module: Any) -> Mapping[str, Any]:
        return {key: one for key, one in module._parameters.items() if one is not None and one._is_initialized()}

    def aside(self) -> AbstractContextManager[None]:
        return self._aside()

    def wants_gradients(self) -> bool:
        return bool(paddle.is_grad_enabled())

    def watching(
        self, entry: NamedEntry, args: Sequence[Any], kwargs: Mapping[str, Any], parameters: Mapping[str, Any]
    ) -> Watch:
        # What a layer hands on as it was given has gradients of other calls as well.
        given = {
            id(tensor): tensor._inplace_version()
            for _, tensor in differentiable([*args, *kwargs.values(), *parameters.values()], "")
        }

        def watch(outputs: Sequence[Any]) -> None:
            found = differentiable(outputs, "output")
            own = [one for one in found if given.get(id(one[1])) != one[1]._inplace_version()]
            if own:
                name = ".backward.".join(entry.name.rsplit(".forward.", 1))
                Watched(name, entry.parent, own, self._fire)
            self._watch_parameters(entry.name, parameters)

        return watch

    def _watch_parameters(self, name: str, parameters: Mapping[str, Any]) -> None:
        """From the first call of a layer on, until gradients come: they are those of all its calls together."""
        stem, _, number = name.rpartition(".forward.")
        watched = self._parameters.get(stem)
        if watched is not None:
            if not watched.began:
                return
            watched.leave()
        wanting = [(key, one) for key, one in parameters.items() if not one.stop_gradient and is_float(one)]
        if wanting:
            self._parameters[stem] = _WatchedParameters(f"{stem}.parameters_grad.{number}", wanting, self._fire)
