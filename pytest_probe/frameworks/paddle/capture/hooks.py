"""Paddle's calls as entries: its functions are replaced by ones that record the outermost call of each thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import paddle
from msgspec import UNSET

from pytest_probe.capture.bindings import Bindings, Function
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import CallStacks
from pytest_probe.capture.gradients import Fire, Watched
from pytest_probe.capture.hooks import functions_of
from pytest_probe.capture.recorder import COMPILED, Scope
from pytest_probe.capture.replaced import ReplacedModules, ReplacingHooks, Rule
from pytest_probe.capture.snapshot import NamedEntry, PlainEntry, Tree
from pytest_probe.frameworks.paddle.arrays import SIZES, is_float
from pytest_probe.frameworks.paddle.capture.names import (
    BACKWARDS,
    COMPILED_METHODS,
    builds_graph,
    functions_at,
    recorded_functions,
)
from pytest_probe.frameworks.paddle.capture.values import Values, collectives, may_be_far, place

# Asked at every call.
_grads = paddle.is_grad_enabled
_default = paddle.get_default_dtype
_tracer: Any = paddle.base.framework._dygraph_tracer
_OFF = paddle.base.core.AmpLevel.O0
# Paddle casts nothing on its CPU.
_AMP = may_be_far()
# What the records of other functions begin with.
_TAKEN = frozenset({"paddle", "Distributed"})
# Arguments that may be the name of a device.
_DEVICES = ("place", "device")


class _WatchedParameters(Watched):
    """The gradients of a layer's own parameters in the first backward: sums over all that used them in it."""

    __slots__ = ("_hooks",)

    def __init__(self, name: str, parameters: Sequence[tuple[str, Any]], fire: Fire) -> None:
        self._hooks: list[tuple[Any, int]] = []
        super().__init__(name, UNSET, parameters, fire, self._register)

    def _register(self, tensor: Any, hook: Callable[[Any], None]) -> None:
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


class PaddleHooks(ReplacingHooks):
    """Sees Paddle's calls, the outermost ones, and the gradients that come to their outputs."""

    framework = "paddle"
    shapes = SIZES
    tensor = paddle.Tensor
    compiled_methods = COMPILED_METHODS
    compiles = staticmethod(builds_graph)
    uninitialised = ("empty", "empty_like", "create_tensor")
    distributed = paddle.distributed
    _modules: Modules

    def __init__(self, config: CaptureConfig, model: Any = None) -> None:
        self._values = Values(config)
        stacks = CallStacks(
            _OURS, lambda code: code.co_name in _BACKWARD and code.co_filename.endswith(_RECOMPUTE), lambda: True
        )
        super().__init__(config, self._values, stacks)
        wants = Scope(config).wants_api if self._calls else lambda name: False
        named = list(collectives()) if config.targets is None else functions_at(config.targets)
        named += functions_of(config.namespaces, _TAKEN)
        functions = recorded_functions(wants, named, all=self._calls and config.targets is None)
        pairs = [(function, self.replacement(function, rule)) for function, rule in functions]
        pairs += [(function, self.ending(function)) for function in BACKWARDS.values()]
        self._bindings = Bindings(pairs, [paddle.Tensor])
        self._modules = Modules(config, self._values, self.stacks, self)
        if model is not None:
            self.follow(model)

    def remove(self) -> None:
        super().remove()
        self._modules.leave()

    def describe(self) -> Mapping[str, str]:
        # Read by people: where the gradients of arguments are.
        return {"paddle": str(paddle.__version__), "gradients": "of outputs; a replay computes those of arguments"}

    def entered_graph(self) -> None:
        if self._recorder is not None:
            self._recorder.tell(
                "static graph", "pytest-probe: what builds a static graph of Paddle's is not recorded, nor what it runs"
            )

    def watches(self) -> bool:
        return bool(_grads())

    def has_gradient(self, tensor: Any) -> bool:
        # That of a leaf is no call's, and outlives it.
        return not tensor.stop_gradient and not tensor.is_leaf and is_float(tensor)

    def register(self, tensor: Any, hook: Callable[[Any], None]) -> object:
        return tensor._register_grad_hook(hook)

    def seen(self, name: str, args: list[Tree], kwargs: dict[str, Tree]) -> None:
        """The names of devices among arguments as what they are: `x.to("gpu:0")`, `place="cpu"`."""
        for key in _DEVICES:
            if isinstance(tree := kwargs.get(key), PlainEntry) and tree.type == "str":
                kwargs[key] = place(tree.value)
        if name == "paddle.Tensor.to":
            args[:] = [place(one.value) if isinstance(one, PlainEntry) and one.type == "str" else one for one in args]

    def surroundings(self, rule: Rule) -> Iterator[tuple[str, Any]]:
        if not _grads():
            yield "grad", False
        if _AMP and (tracer := _tracer())._amp_level != _OFF:
            yield "autocast", {paddle.device.get_device().partition(":")[0]: str(tracer._amp_dtype)}
        if _default() != "float32":
            yield "default_dtype", _default()
        if rule.draws:
            yield "rng", " ".join(str(state) for state in paddle.get_rng_state())

    def compiled(self, original: Function, compiled: Any, /, *args: Any, **kwargs: Any) -> Any:
        unseen = "what runs inside paddle.jit.to_static is not recorded"
        with self.away(COMPILED, f"pytest-probe: {unseen}; run the program without it to record it"):
            return original(compiled, *args, **kwargs)


_OURS = os.path.join(os.path.dirname(__file__), "")
# The file's name ends so, with either separator; these of its functions run in a backward.
_RECOMPUTE = ("recompute.py", "recompute_hybrid.py")
_BACKWARD = ("backward", "unpack", "inner_unpack")
