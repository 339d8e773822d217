"""MindSpore's calls as entries: its functions are replaced by ones that record the outermost call of each thread."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import mindspore
from mindspore import nn
from mindspore.experimental.optim import Optimizer as ExperimentalOptimizer
from mindspore.graph import api as graph
from mindspore.mint import distributed
from msgspec import UNSET

from pytest_probe.capture import gradients
from pytest_probe.capture.arrays import overflown
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import CallStacks
from pytest_probe.capture.gradients import Fire, Watched
from pytest_probe.capture.hooks import functions as functions_of
from pytest_probe.capture.hooks import modules
from pytest_probe.capture.modules import Watch
from pytest_probe.capture.ranks import named_rank
from pytest_probe.capture.recorder import COMPILED, Recorder, Scope
from pytest_probe.capture.replaced import Bindings, ReplacedModules, ReplacingHooks, Rule, put_back
from pytest_probe.capture.snapshot import NamedEntry, Tree, seen_tensors
from pytest_probe.frameworks.mindspore.arrays import FLOATS, name_of
from pytest_probe.frameworks.mindspore.capture.names import CLASSES, RecordedFunction, functions, writing_methods
from pytest_probe.frameworks.mindspore.capture.values import Values, is_of_kernel

OPTIMIZERS: tuple[Any, ...] = (nn.Optimizer, ExperimentalOptimizer)
# What the records of other functions begin with.
_TAKEN = frozenset("Mint MintFunctional Functional Tensor Primitive Cell Jit Distributed MintDistributed".split())
_UNINITIALISED = ("empty", "empty_like", "new_empty")
_executor = graph._pynative_executor
_UNSEEN = "is compiled, and what it calls is not recorded; run the program in PyNative mode, without jit, to record it"
_OURS = os.path.join(os.path.dirname(__file__), "")


class Regions:
    """Methods that compile, or that write to tensors, by what makes their replacement of the method."""

    def __init__(self, methods: Iterable[tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]]) -> None:
        self._methods = tuple(methods)
        self._put: list[tuple[Any, str, Any, Any, bool]] = []

    def put(self) -> None:
        # Others may have replaced them since.
        for owner, name, made in self._methods:
            original, own = getattr(owner, name), name in vars(owner)
            replacement = made(original)
            setattr(owner, name, replacement)
            self._put.append((owner, name, original, replacement, own))

    def take_back(self) -> None:
        for owner, name, original, replacement, own in reversed(self._put):
            if vars(owner).get(name) is replacement:
                put_back(owner, name, original, own)
        self._put.clear()


def compiled(run: Callable[[str, Callable[..., Any], Any, Any], Any]) -> Iterator[tuple[Any, str, Any]]:
    """What MindSpore compiles is made by run, which is given the name of the function or cell, "" where it is
    MindSpore's own, what makes the call, and its arguments."""

    def made(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def replacement(compiled: Any, *args: Any, **kwargs: Any) -> Any:
            function = getattr(compiled, "fn", None) or type(compiled)
            own = function.__module__.partition(".")[0] == "mindspore"
            return run("" if own else function.__qualname__, functools.partial(original, compiled), args, kwargs)

        return replacement

    yield graph._JitExecutor, "__call__", made
    yield nn.Cell, "compile_and_run", made


class MindSporeHooks(ReplacingHooks):
    """Sees MindSpore's calls, the outermost ones, and the gradients that come to their outputs."""

    framework = "mindspore"
    suffix = ".npy"
    regions: tuple[str, ...] = ("Jit.",)
    _modules: Cells

    def __init__(self, config: CaptureConfig, model: Any = None) -> None:
        self._values = Values(config)
        super().__init__(config, self._values, CallStacks(_OURS, lambda code: False, lambda: False))
        wants = self._wants = Scope(config).wants_api if self._calls else lambda name: False
        rules = [(function, RecordedFunction(name, wants(name), writes)) for function, name, writes in functions()]
        for prefix, module in modules(config.namespaces, _TAKEN):
            for name in functions_of(module):
                rule = RecordedFunction(f"{prefix}.{name}", wants(f"{prefix}.{name}"), writes=True)
                rules.append((getattr(module, name), rule))
        self._bindings = Bindings([(one, self.replacement(one, rule)) for one, rule in rules], CLASSES)
        written = [(kind, name, self._written) for kind, name in writing_methods()]
        written += [(kind, "__call__", self._written) for kind in OPTIMIZERS]
        self._regions = Regions([*compiled(self._compiled), *written])
        self._modules = Cells(config, self._values, self._stacks, self.fire, self.sees, self.aside)
        if model is not None:
            self.follow(model)

    def install(self, recorder: Recorder) -> None:
        super().install(recorder)
        self._regions.put()

    def remove_forward(self) -> None:
        if self._bindings.there:
            self._regions.take_back()
        super().remove_forward()

    def rank(self) -> int | None:
        if distributed.is_initialized():
            return int(distributed.get_rank())
        return named_rank()[0]

    def ranks(self) -> int:
        if distributed.is_initialized():
            return int(distributed.get_world_size())
        return named_rank()[1]

    def describe(self) -> Mapping[str, str]:
        return {"mindspore": mindspore.__version__, "gradients": "of outputs; a replay computes those of arguments"}

    def overflown(self, tree: Tree) -> bool:
        self._values.before_write()
        return any(seen.data is not UNSET and overflown(seen.data) for _, seen in seen_tensors(tree, ""))

    def compiles(self) -> bool:
        # While it compiles, its own functions are in their places.
        return False

    def watches(self) -> bool:
        return bool(_executor.grad_flag())

    def differentiable(self, outputs: Sequence[Any]) -> list[tuple[str, Any]]:
        return list(differentiable(outputs, "output"))

    def watched(self, name: str, entry: NamedEntry, wanting: Sequence[tuple[str, Any]]) -> None:
        OutputGradients(name, entry.parent, wanting, self.fire)

    def surroundings(self, rule: Rule) -> Iterator[tuple[str, Any]]:
        return iter(())

    def uninitialised(self, rule: Rule) -> bool:
        return rule.name.rpartition(".")[2] in _UNINITIALISED

    def of_program(self, error: Exception) -> bool:
        # It computes while the program goes on: whoever asks next meets what a kernel raised.
        return is_of_kernel(error)

    def _end(self, recorder: Recorder, entry: NamedEntry, rule: Rule, result: Any) -> bool:
        # Python drops what this returns.
        return super()._end(recorder, entry, rule, None if rule.name == "Tensor.__setitem__" else result)

    def before_write(self) -> None:
        self._values.before_write()

    def _written(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            self._values.before_write()
            return original(*args, **kwargs)

        return replacement

    def _compiled(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A call of what MindSpore compiles: one record, without what it calls."""
        outermost = self._bindings.there and not self._thread.inside
        with self.aside():
            args, kwargs = unhooked(args), unhooked(kwargs)
        with self.away(COMPILED if name else "", f"pytest-probe: {name} {_UNSEEN}"):
            if not (name and outermost and self._calls):
                return function(*args, **kwargs)
            recorded = f"Jit.{name.rpartition('.')[2]}"
            rule = RecordedFunction(recorded, self._wants(recorded), writes=True)
            with self.aside():
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


def differentiable(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """The tensors among outputs to which a gradient comes, by place."""
    if isinstance(value, mindspore.Tensor):
        if name_of(value.dtype) in FLOATS:
            yield place, value
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from differentiable(item, f"{place}.{index}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from differentiable(item, f"{place}.{key}")


class OutputGradients(Watched):
    __slots__ = ()

    def register(self, tensor: Any, hook: Callable[[Any], None]) -> None:
        tensor.register_hook(hook)


class Cells(ReplacedModules):
    """The calls of MindSpore's cells, and their gradients."""

    kind = nn.Cell
    kind_name = "mindspore.nn.Cell"
    prefix = "Cell"
    atoms = (mindspore.Tensor,)

    def __init__(
        self,
        config: CaptureConfig,
        values: Values,
        stacks: CallStacks,
        fire: Fire,
        sees: Callable[[], bool],
        aside: Callable[[], AbstractContextManager[None]],
    ) -> None:
        super().__init__(config, values, stacks, sees, aside)
        self._fire = fire

    def named(self, model: Any) -> Iterable[tuple[str, Any]]:
        found: Iterator[tuple[str, Any]] = model.cells_and_names()
        return found

    def parameters(self, module: Any) -> Mapping[str, Any]:
        return {key: one for key, one in module._params.items() if one is not None}

    def wants_gradients(self) -> bool:
        return bool(_executor.grad_flag())

    def watching(
        self, entry: NamedEntry, args: Sequence[Any], kwargs: Mapping[str, Any], parameters: Mapping[str, Any]
    ) -> Watch:
        given = {id(one) for _, one in differentiable([*args, *kwargs.values(), *parameters.values()], "")}

        def watch(outputs: Sequence[Any]) -> None:
            # What a cell hands on as it was given has gradients of other calls as well.
            own = [one for one in differentiable(outputs, "output") if id(one[1]) not in given]
            if own:
                OutputGradients(".backward.".join(entry.name.rsplit(".forward.", 1)), entry.parent, own, self._fire)

        return watch
