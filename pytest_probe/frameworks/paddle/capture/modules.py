"""The calls of Paddle's layers, and their gradients.

paddle.nn.Layer.__call__ is replaced: hooks of layers would make them take another path, and do not see an exception.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import paddle

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import CallStacks
from pytest_probe.capture.modules import ModuleCalls, Watch
from pytest_probe.capture.recorder import Recorder
from pytest_probe.capture.snapshot import NamedEntry
from pytest_probe.frameworks.paddle.arrays import is_float
from pytest_probe.frameworks.paddle.capture.gradients import Fire, Watched, WatchedParameters, differentiable
from pytest_probe.frameworks.paddle.capture.values import Values

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
        fire: Fire,
        sees: Callable[[], bool],
        aside: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """sees: are calls recorded now? aside: inside none are."""
        super().__init__(config, values, stacks)
        self._fire = fire
        self._sees = sees
        self._aside = aside
        self._parameters: dict[str, WatchedParameters] = {}

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
            self._parameters[stem] = WatchedParameters(f"{stem}.parameters_grad.{number}", wanting, self._fire)
