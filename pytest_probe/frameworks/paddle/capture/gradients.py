"""The gradients of Paddle's calls and layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import paddle
from msgspec import UNSET

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import CallStacks
from pytest_probe.capture.gradients import Fire, Watched
from pytest_probe.capture.replaced import ReplacedModules, ReplacingHooks
from pytest_probe.capture.snapshot import NamedEntry
from pytest_probe.frameworks.paddle.arrays import SIZES, is_float
from pytest_probe.frameworks.paddle.capture.values import Values


class OutputGradients(Watched):
    __slots__ = ()

    def register(self, tensor: Any, hook: Callable[[Any], None]) -> None:
        tensor._register_grad_hook(hook)


class _WatchedParameters(Watched):
    """The gradients of a layer's own parameters in the first backward: sums over all that used them in it."""

    __slots__ = ("_hooks",)

    def __init__(self, name: str, parameters: Sequence[tuple[str, Any]], fire: Fire) -> None:
        self._hooks: list[tuple[Any, int]] = []
        super().__init__(name, UNSET, parameters, fire)

    def register(self, tensor: Any, hook: Callable[[Any], None]) -> None:
        self._hooks.append((tensor, tensor._register_grad_hook(hook)))

    def leave(self) -> None:
        """Take the hooks away: parameters outlive every capture. Not from inside a hook."""
        for tensor, hook in self._hooks:
            tensor._remove_grad_hook(hook)
        self._hooks.clear()

    def entries(self) -> Iterator[NamedEntry]:
        yield NamedEntry(self.name, {place: [tree] for place, tree in self.gradients.items() if tree is not None})


class Modules(ReplacedModules):
    """The calls of Paddle's layers, and their gradients."""

    kind = paddle.nn.Layer
    kind_name = "paddle.nn.Layer"
    atoms = (paddle.Tensor, *SIZES)

    def __init__(self, config: CaptureConfig, values: Values, stacks: CallStacks, hooks: ReplacingHooks) -> None:
        super().__init__(config, values, stacks, hooks)
        self._parameters: dict[str, _WatchedParameters] = {}

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

    def version(self, tensor: Any) -> int:
        return int(tensor._inplace_version())

    def watch_parameters(self, name: str, parameters: Mapping[str, Any]) -> None:
        """From the first call of a layer on, until gradients come: they are those of all its calls together."""
        stem, _, number = name.rpartition(".forward.")
        watched = self._parameters.get(stem)
        if watched is not None:
            if not watched.began:
                return
            watched.leave()
        wanting = [(key, one) for key, one in parameters.items() if not one.stop_gradient and is_float(one)]
        if wanting:
            self._parameters[stem] = _WatchedParameters(f"{stem}.parameters_grad.{number}", wanting, self._hooks.fire)
