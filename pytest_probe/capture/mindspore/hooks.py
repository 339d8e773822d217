"""MindSpore's calls as entries, and their times: its functions are replaced by ones that record the outermost call of
each thread, or that time all calls."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import mindspore
from mindspore import nn
from mindspore.experimental.optim import Optimizer as ExperimentalOptimizer
from mindspore.graph import api as graph
from mindspore.mint import distributed

from pytest_probe.capture import patched_functions
from pytest_probe.capture.bindings import Bindings, Function
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import CallStacks
from pytest_probe.capture.hooks import Rule, functions_of
from pytest_probe.capture.mindspore.names import CLASSES, functions, writing_methods
from pytest_probe.capture.mindspore.values import Values, is_of_kernel
from pytest_probe.capture.patched_functions import ReplacedCalls, ReplacedModules, ReplacedTiming, ReplacingHooks
from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.recorder import COMPILED, Recorder
from pytest_probe.capture.scope import Scope
from pytest_probe.capture.snapshot import NamedEntry
from pytest_probe.frameworks.mindspore.arrays import FLOATS, name_of

OPTIMIZERS: tuple[Any, ...] = (nn.Optimizer, ExperimentalOptimizer)
# What the records of other functions begin with.
_TAKEN = frozenset("Mint MintFunctional Functional Tensor Primitive Cell Jit Distributed MintDistributed".split())
_executor = graph._pynative_executor
_UNSEEN = "is compiled, and what it calls is not recorded; run the program in PyNative mode, without jit, to record it"


def _compiled_name(compiled: Any) -> str:
    """The name of the program's function or cell, "" of MindSpore's own."""
    function = getattr(compiled, "fn", None) or type(compiled)
    return "" if function.__module__.partition(".")[0] == "mindspore" else str(function.__qualname__)


class MindSporeCalls(ReplacedCalls):
    framework = "mindspore"
    tensor = mindspore.Tensor
    # What MindSpore compiles is called by these.
    compiled_methods: Sequence[tuple[Any, str]] = ((graph._JitExecutor, "__call__"), (nn.Cell, "compile_and_run"))


class MindSporeHooks(MindSporeCalls, ReplacingHooks):
    """Sees MindSpore's calls, the outermost ones, and the gradients that come to their outputs."""

    suffix = ".npy"
    uninitialised = ("empty", "empty_like", "new_empty")
    distributed = distributed
    regions: tuple[str, ...] = ("Jit.",)
    _modules: Cells

    def __init__(self, config: CaptureConfig, model: Any = None) -> None:
        self._values = Values(config)
        super().__init__(config, self._values, CallStacks(lambda code: False, lambda: False))
        wants = self._wants = Scope(config).wants_api if self._calls else lambda name: False
        named = [*functions(), *((one, name, True) for name, one in functions_of(config.namespaces, _TAKEN))]
        pairs = [(one, self.replacement(one, Rule(name, wants(name), writes))) for one, name, writes in named]
        self._bindings = Bindings(pairs, CLASSES)
        self._modules = Cells(config, self)
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

    def after(self, recorder: Recorder, entry: NamedEntry, result: Any, asking: Any, start: int) -> bool:
        # Python drops what this returns.
        dropped = entry.name.startswith("Tensor.__setitem__.")
        return super().after(recorder, entry, None if dropped else result, asking, start)

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
        name, function = _compiled_name(compiled), functools.partial(original, compiled)
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


class MindSporeTiming(MindSporeCalls, ReplacedTiming):
    """Each call waits for its kernel, unless the stopwatch is asynchronous: to ask for the device after each would take
    milliseconds. This cannot be changed once MindSpore has computed."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        if not stopwatch.asynchronous:
            mindspore.runtime.launch_blocking()
        named = [(function, name) for function, name, _ in functions()]
        super().__init__(stopwatch, named, CLASSES, None, mindspore.runtime.synchronize)
        stopwatch.versions["mindspore"] = mindspore.__version__
        if stopwatch.backward:
            words = "MindSpore's graph has no hooks that times could be taken in: its backward has no row"
            stopwatch.tell("mindspore", f"pytest-probe: {words}")

    def compiled(self, original: Function, compiled: Any, /, *args: Any, **kwargs: Any) -> Any:
        shown = _compiled_name(compiled) or "MindSpore's own"
        words = f"{shown} is compiled, and is one row; run the program without jit to see the calls inside"
        with self.away(f"Jit.{shown}", f"pytest-probe: {words}"):
            return original(compiled, *args, **kwargs)


def unhooked(value: Any) -> Any:
    """An argument of what MindSpore compiles, without our hooks on its tensors, which it would compile as well: a view
    of a tensor has none, and hands the gradient on as it came."""
    if isinstance(value, mindspore.Tensor):
        ours = any(hook.__module__ == patched_functions.__name__ for hook in value.hooks())
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
