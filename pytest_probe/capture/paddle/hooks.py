"""Paddle's calls as entries, and their times: its functions are replaced by ones that record the outermost call of each
thread, or that time all calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import paddle
from msgspec import UNSET
from paddle.jit.dy2static import program_translator

from pytest_probe.capture.bindings import Bindings, Function
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import Args, CallStacks, Kwargs
from pytest_probe.capture.hooks import Rule, functions_of
from pytest_probe.capture.paddle.names import (
    BACKWARDS,
    functions_at,
    recorded_functions,
)
from pytest_probe.capture.paddle.values import Values, collectives, may_be_far, place
from pytest_probe.capture.patched_functions import (
    ReplacedCalls,
    ReplacedModules,
    ReplacedTiming,
    ReplacingHooks,
    WatchedOutputs,
)
from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.profiling.track import WaitingClock
from pytest_probe.capture.recorder import COMPILED
from pytest_probe.capture.scope import Scope
from pytest_probe.capture.snapshot import Json, NamedEntry, PlainEntry, Tree
from pytest_probe.frameworks.paddle.arrays import SIZES, is_float

# Asked at every call.
_grads = paddle.is_grad_enabled
_default = paddle.get_default_dtype
_tracer: Any = paddle.base.framework._dygraph_tracer
_modes: Any = paddle.base.framework.global_var
_KINDS = [getattr(program_translator, name, None) for name in ("ASTStaticFunction", "SymbolicStaticFunction")]
_OFF = paddle.base.core.AmpLevel.O0
# Paddle casts nothing on its CPU.
_AMP = may_be_far()
# What the records of other functions begin with.
_TAKEN = frozenset({"paddle", "Distributed"})
# Arguments that may be the name of a device.
_DEVICES = ("place", "device")


class _WatchedParameters(WatchedOutputs):
    """The gradients of a layer's own parameters in the first backward: sums over all that used them in it."""

    __slots__ = ("_handles",)

    def __init__(self, name: str, parameters: Sequence[tuple[str, Any]], hooks: ReplacingHooks) -> None:
        self._handles: list[tuple[Any, int]] = []
        super().__init__(name, UNSET, parameters, hooks)

    def register(self, hooks: ReplacingHooks, tensor: Any, hook: Callable[[Any], None]) -> None:
        self._handles.append((tensor, tensor._register_grad_hook(hook)))

    def leave(self) -> None:
        """Take the hooks away: parameters outlive every capture. Not from inside a hook."""
        for tensor, handle in self._handles:
            tensor._remove_grad_hook(handle)
        self._handles.clear()

    def entries(self) -> Iterator[NamedEntry]:
        yield NamedEntry(self.name, {place: [tree] for place, tree in self.incoming.items() if tree is not None})


class Modules(ReplacedModules):
    """The calls of Paddle's layers, and their gradients."""

    kind = paddle.nn.Layer
    kind_name = "paddle.nn.Layer"
    atoms = (paddle.Tensor, *SIZES)

    def __init__(self, config: CaptureConfig, hooks: ReplacingHooks) -> None:
        super().__init__(config, hooks)
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
            if not watched.seen:
                return
            watched.leave()
        wanting = [(key, one) for key, one in parameters.items() if not one.stop_gradient and is_float(one)]
        if wanting:
            self._parameters[stem] = _WatchedParameters(f"{stem}.parameters_grad.{number}", wanting, self._hooks)


class PaddleCalls(ReplacedCalls):
    framework = "paddle"
    tensor = paddle.Tensor
    # What paddle.jit.to_static has compiled is called by these: what such a function calls is not the program's.
    compiled_methods: Sequence[tuple[Any, str]] = tuple((kind, "__call__") for kind in _KINDS if kind is not None)

    @staticmethod
    def compiles() -> bool:
        """Does Paddle build a static graph now?"""
        return _modes._dygraph_tracer_ is None


class PaddleHooks(PaddleCalls, ReplacingHooks):
    """Sees Paddle's calls, the outermost ones, and the gradients that come to their outputs."""

    shapes = SIZES
    uninitialised = ("empty", "empty_like", "create_tensor")
    distributed = paddle.distributed
    _modules: Modules

    def __init__(self, config: CaptureConfig, model: Any = None) -> None:
        self._values = Values(config)
        stacks = CallStacks(
            lambda code: code.co_name in _BACKWARD and code.co_filename.endswith(_RECOMPUTE), lambda: True
        )
        super().__init__(config, self._values, stacks)
        wants = Scope(config).wants_api if self._calls else lambda name: False
        named = list(collectives()) if config.targets is None else functions_at(config.targets)
        named += functions_of(config.namespaces, _TAKEN)
        functions = recorded_functions(wants, named, all=self._calls and config.targets is None)
        pairs = [(function, self.replacement(function, rule)) for function, rule in functions]
        pairs += [(function, self.ending(function)) for function in BACKWARDS.values()]
        self._bindings = Bindings(pairs, [paddle.Tensor])
        self._modules = Modules(config, self)
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

    def given(
        self, rule: Rule, args: Args, kwargs: Kwargs, trees: list[Tree], named: dict[str, Tree], asking: Any
    ) -> Json:
        # The names of devices among arguments as what they are: `x.to("gpu:0")`, `place="cpu"`.
        for key in _DEVICES:
            if isinstance(tree := named.get(key), PlainEntry) and tree.type == "str":
                named[key] = place(tree.value)
        if rule.name == "paddle.Tensor.to":
            trees[:] = [place(one.value) if isinstance(one, PlainEntry) and one.type == "str" else one for one in trees]
        found: dict[str, Any] = {} if _grads() else {"grad": False}
        if _AMP and (tracer := _tracer())._amp_level != _OFF:
            found["autocast"] = {paddle.device.get_device().partition(":")[0]: str(tracer._amp_dtype)}
        if _default() != "float32":
            found["default_dtype"] = _default()
        if rule.draws:
            found["rng"] = " ".join(str(state) for state in paddle.get_rng_state())
        return found or UNSET

    def compiled(self, original: Function, compiled: Any, /, *args: Any, **kwargs: Any) -> Any:
        unseen = "what runs inside paddle.jit.to_static is not recorded"
        with self.away(COMPILED, f"pytest-probe: {unseen}; run the program without it to record it"):
            return original(compiled, *args, **kwargs)


class PaddleTiming(PaddleCalls, ReplacedTiming):
    def __init__(self, stopwatch: Stopwatch) -> None:
        named = [(function, rule.name) for function, rule in recorded_functions(lambda name: True) if rule.name]
        named += [(function, name) for name, function in BACKWARDS.items()]
        clock = None
        if _ahead() and not stopwatch.asynchronous:
            allocated = paddle.device.cuda.memory_allocated if paddle.is_compiled_with_cuda() else None
            clock = WaitingClock(paddle.device.synchronize, allocated)
        super().__init__(stopwatch, named, [paddle.Tensor], clock, lambda: _ahead() and paddle.device.synchronize())
        stopwatch.versions["paddle"] = str(paddle.__version__)
        if stopwatch.backward:
            words = "Paddle's graph has no hooks that times could be taken in: its whole backward is one row"
            stopwatch.tell("paddle", f"pytest-probe: {words}")

    def compiled(self, original: Function, compiled: Any, /, *args: Any, **kwargs: Any) -> Any:
        name = "paddle.jit.to_static"
        words = f"what runs inside {name} is one row; run the program without it to see the calls inside"
        with self.away(name, f"pytest-probe: {words}"):
            return original(compiled, *args, **kwargs)


def _ahead() -> bool:
    """Does the device go on while the host does?"""
    return bool(paddle.device.get_device() != "cpu")


# The file's name ends so, with either separator; these of its functions run in a backward.
_RECOMPUTE = ("recompute.py", "recompute_hybrid.py")
_BACKWARD = ("backward", "unpack", "inner_unpack")
