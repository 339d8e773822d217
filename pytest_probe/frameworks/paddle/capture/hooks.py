"""Paddle's calls as entries: its functions are replaced by ones that record the outermost call of each thread."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import paddle
from msgspec import UNSET

from pytest_probe.capture.arrays import overflown
from pytest_probe.capture.bindings import Bindings, Function
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import CallStacks
from pytest_probe.capture.hooks import functions, modules
from pytest_probe.capture.recorder import COMPILED, Scope
from pytest_probe.capture.replaced import ReplacingHooks, Rule
from pytest_probe.capture.snapshot import PlainEntry, Tree, seen_tensors
from pytest_probe.frameworks.paddle.arrays import SIZES, is_float
from pytest_probe.frameworks.paddle.capture.gradients import Modules, OutputGradients
from pytest_probe.frameworks.paddle.capture.names import RecordedFunctions, compiled_kinds, functions_at
from pytest_probe.frameworks.paddle.capture.values import Values, collectives, may_be_far, place

# Asked at every call.
_grads = paddle.is_grad_enabled
_default = paddle.get_default_dtype
_modes: Any = paddle.base.framework.global_var
_tracer: Any = paddle.base.framework._dygraph_tracer
_OFF = paddle.base.core.AmpLevel.O0
# Paddle casts nothing on its CPU.
_AMP = may_be_far()
# What the records of other functions begin with.
_TAKEN = frozenset({"paddle", "Distributed"})
# Arguments that may be the name of a device.
_DEVICES = ("place", "device")
_BACKWARDS: Any = (paddle.Tensor.backward, paddle.autograd.backward, paddle.grad)
# What these give nobody wrote: an overflow there is none.
_UNINITIALISED = ("empty", "empty_like", "create_tensor")


class PaddleHooks(ReplacingHooks):
    """Sees Paddle's calls, the outermost ones, and the gradients that come to their outputs."""

    framework = "paddle"
    shapes = SIZES
    tensor = paddle.Tensor
    output_gradients = OutputGradients
    distributed = paddle.distributed
    _modules: Modules

    def __init__(self, config: CaptureConfig, model: Any = None) -> None:
        self._values = Values(config)
        stacks = CallStacks(
            _OURS, lambda code: code.co_name in _BACKWARD and code.co_filename.endswith(_RECOMPUTE), lambda: True
        )
        super().__init__(config, self._values, stacks)
        wants = Scope(config).wants_api if self._calls else lambda name: False
        self._functions = RecordedFunctions(wants, _named(config), all=self._calls and config.targets is None)
        pairs = [(function, self.replacement(function, rule)) for function, rule in self._functions.rules]
        pairs += [(function, self.ending(function)) for function in _BACKWARDS]
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

    def overflown(self, tree: Tree) -> bool:
        return any(seen.data is not UNSET and overflown(seen.data) for _, seen in seen_tensors(tree, ""))

    def compiles(self) -> bool:
        return _modes._dygraph_tracer_ is None

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

    def uninitialised(self, rule: Rule) -> bool:
        return rule.name.rpartition(".")[2] in _UNINITIALISED

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

    def methods(self) -> Iterator[tuple[Any, str, Function]]:
        return ((kind, "__call__", self._compiled) for kind in compiled_kinds())

    def _compiled(self, original: Function, *args: Any, **kwargs: Any) -> Any:
        unseen = "what runs inside paddle.jit.to_static is not recorded"
        with self.away(COMPILED, f"pytest-probe: {unseen}; run the program without it to record it"):
            return original(*args, **kwargs)


def _named(config: CaptureConfig) -> list[tuple[str, Any]]:
    """The functions of the user's choice, by the names of their records. Raises SettingsError."""
    found = list(collectives()) if config.targets is None else functions_at(config.targets)
    for prefix, module in modules(config.namespaces, _TAKEN):
        found += [(f"{prefix}.{name}", getattr(module, name)) for name in functions(module)]
    return found


_OURS = os.path.join(os.path.dirname(__file__), "")
# The file's name ends so, with either separator; these of its functions run in a backward.
_RECOMPUTE = ("recompute.py", "recompute_hybrid.py")
_BACKWARD = ("backward", "unpack", "inner_unpack")
