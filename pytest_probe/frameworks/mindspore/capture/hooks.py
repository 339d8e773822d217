"""MindSpore's calls as entries: its functions are replaced by ones that record the outermost call of each thread."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import mindspore
from mindspore import nn
from mindspore.experimental.optim import Optimizer as ExperimentalOptimizer
from mindspore.graph import api as graph
from mindspore.mint import distributed

from pytest_probe.capture import gradients
from pytest_probe.capture.bindings import Bindings, Function
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import CallStacks
from pytest_probe.capture.hooks import functions_of
from pytest_probe.capture.recorder import COMPILED, Recorder, Scope
from pytest_probe.capture.replaced import ReplacedModules, ReplacingHooks, Rule
from pytest_probe.capture.snapshot import NamedEntry
from pytest_probe.frameworks.mindspore.arrays import FLOATS, name_of
from pytest_probe.frameworks.mindspore.capture.names import CLASSES, functions, writing_methods
from pytest_probe.frameworks.mindspore.capture.values import Values, is_of_kernel

OPTIMIZERS: tuple[Any, ...] = (nn.Optimizer, ExperimentalOptimizer)
# What the records of other functions begin with.
_TAKEN = frozenset("Mint MintFunctional Functional Tensor Primitive Cell Jit Distributed MintDistributed".split())
_executor = graph._pynative_executor
_UNSEEN = "is compiled, and what it calls is not recorded; run the program in PyNative mode, without jit, to record it"
_OURS = os.path.join(os.path.dirname(__file__), "")


# What MindSpore compiles is called by these.
COMPILED_METHODS: tuple[tuple[Any, str], ...] = ((graph._JitExecutor, "__call__"), (nn.Cell, "compile_and_run"))


def compiled_name(compiled: Any) -> str:
    """The name of the program's function or cell, "" of MindSpore's own."""
    function = getattr(compiled, "fn", None) or type(compiled)
    return "" if function.__module__.partition(".")[0] == "mindspore" else str(function.__qualname__)


class MindSporeHooks(ReplacingHooks):
    """Sees MindSpore's calls, the outermost ones, and the gradients that come to their outputs."""

    framework = "mindspore"
    suffix = ".npy"
    tensor = mindspore.Tensor
    compiled_methods = COMPILED_METHODS
    uninitialised = ("empty", "empty_like", "new_empty")
    distributed = distributed
    regions: tuple[str, ...] = ("Jit.",)
    _modules: Cells

    def __init__(self, config: CaptureConfig, model: Any = None) -> None:
        self._values = Values(config)
        super().__init__(config, self._values, CallStacks(_OURS, lambda code: False, lambda: False))
        wants = self._wants = Scope(config).wants_api if self._calls else lambda name: False
        named = [*functions(), *((one, name, True) for name, one in functions_of(config.namespaces, _TAKEN))]
        pairs = [(one, self.replacement(one, Rule(name, wants(name), writes))) for one, name, writes in named]
        self._bindings = Bindings(pairs, CLASSES)
        self._modules = Cells(config, self._values, self.stacks, self)
        if model is not None:
            self.follow(model)

    def describe(self) -> Mapping[str, str]:
        return {"mindspore": mindspore.__version__, "gradients": "of outputs; a replay computes those of arguments"}

    def watches(self) -> bool:
        return bool(_executor.grad_flag())

    def has_gradient(self, tensor: Any) -> bool:
        return name_of(tensor.dtype) in FLOATS

    def register(self, tensor: Any, hook: Callable[[Any], None]) -> object:
        return tensor.register_hook(hook)

    def of_program(self, error: Exception) -> bool:
        # It computes while the program goes on: whoever asks next meets what a kernel raised.
        return is_of_kernel(error)

    def _end(self, recorder: Recorder, entry: NamedEntry, rule: Rule, result: Any) -> bool:
        # Python drops what this returns.
        return super()._end(recorder, entry, rule, None if rule.name == "Tensor.__setitem__" else result)

    def before_write(self) -> None:
        self._values.before_write()

    def methods(self) -> Iterator[tuple[Any, str, Function]]:
        yield from super().methods()
        yield from ((kind, name, self._written) for kind, name in writing_methods())
        yield from ((kind, "__call__", self._written) for kind in OPTIMIZERS)

    def _written(self, original: Function, /, *args: Any, **kwargs: Any) -> Any:
        self._values.before_write()
        return original(*args, **kwargs)

    def compiled(self, original: Function, compiled: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A call of what MindSpore compiles: one record, without what it calls."""
        name, function = compiled_name(compiled), functools.partial(original, compiled)
        outermost = self._bindings.there and not self._thread.inside
        with self.aside():
            args, kwargs = unhooked(args), unhooked(kwargs)
        with self.away(COMPILED if name else "", f"pytest-probe: {name} {_UNSEEN}"):
            if not (name and outermost and self._calls):
                return function(*args, **kwargs)
            recorded = f"Jit.{name.rpartition('.')[2]}"
            rule = Rule(recorded, self._wants(recorded), writes=True)
            with self.aside():
                # Above: this, and what `patched` made.
                return self.call(rule, function, args, kwargs, sys._getframe(2))


def unhooked(value: Any) -> Any:
    """An argument of what MindSpore compiles, without our hooks on its tensors, which it would compile as well: a view
    of a tensor has none, and hands the gradient on as it came."""
    if isinstance(value, mindspore.Tensor):
        ours = any(hook.__module__ == gradients.__name__ for hook in value.hooks())
        return value.view(value.shape) if ours else value
    if type(value) in (list, tuple):
        return type(value)(map(unhooked, value))
    if type(value) is dict:
        return {key: unhooked(item) for key, item in value.items()}
    return value


class Cells(ReplacedModules):
    """The calls of MindSpore's cells, and their gradients."""

    kind = nn.Cell
    kind_name = "mindspore.nn.Cell"
    prefix = "Cell"
    atoms = (mindspore.Tensor,)

    def named(self, model: Any) -> Iterable[tuple[str, Any]]:
        found: Iterator[tuple[str, Any]] = model.cells_and_names()
        return found

    def parameters(self, module: Any) -> Mapping[str, Any]:
        return {key: one for key, one in module._params.items() if one is not None}
