"""Paddle's calls as entries: its functions are replaced by ones that record the outermost call of each thread."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import CodeType, FrameType
from typing import Any

import paddle
from msgspec import UNSET

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import CallStacks, remove_our_frames
from pytest_probe.capture.hooks import CallHooks, functions, modules
from pytest_probe.capture.ranks import named_rank
from pytest_probe.capture.recorder import Recorder, Scope
from pytest_probe.capture.snapshot import NamedEntry, PlainEntry, Tree, seen_tensors
from pytest_probe.errors import OverflowFound
from pytest_probe.frameworks.paddle.capture.bindings import Bindings, CompiledRegions
from pytest_probe.frameworks.paddle.capture.gradients import Modules, Watched, differentiable
from pytest_probe.frameworks.paddle.capture.names import RecordedFunction, RecordedFunctions, functions_at
from pytest_probe.frameworks.paddle.capture.values import Values, collectives, may_be_far, overflown, place

# Asked at every call.
_grads = paddle.is_grad_enabled
_default = paddle.get_default_dtype
_modes: Any = paddle.base.framework.global_var
_tracer: Callable[[], Any] = paddle.base.framework._dygraph_tracer
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


class _Thread(threading.local):
    # Is a call of Paddle's made here, whose own calls are not recorded?
    inside = False


class PaddleHooks(CallHooks):
    """Sees Paddle's calls, the outermost ones, and the gradients that come to their outputs."""

    framework = "paddle"
    _modules: Modules

    def __init__(self, config: CaptureConfig, model: Any = None) -> None:
        self._values = Values(config)
        super().__init__(config, self._values, _call_stacks())
        self._thread = _Thread()
        self._late: OverflowFound | None = None
        wants = Scope(config).wants_api if self._calls else lambda name: False
        self._functions = RecordedFunctions(wants, _named(config), all=self._calls and config.targets is None)
        pairs = [(function, self._replacement(function, rule)) for function, rule in self._functions.rules]
        pairs += [(function, self._ending(function)) for function in _BACKWARDS]
        self._bindings = Bindings(pairs, [paddle.Tensor])
        self._regions = CompiledRegions(self._away)
        self._modules = Modules(config, self._values, self._stacks, self._fire, self._sees, self._aside)
        if model is not None:
            self.follow(model)

    def install(self, recorder: Recorder) -> None:
        super().install(recorder)
        self._bindings.put()
        self._regions.put()
        if self._placed:
            self._modules.begin(recorder)

    def remove_forward(self) -> None:
        super().remove_forward()
        if self._bindings.there:
            self._regions.take_back()
            self._bindings.take_back()

    def remove(self) -> None:
        super().remove()
        self._modules.leave()

    def rank(self) -> int | None:
        if paddle.distributed.is_initialized():
            return int(paddle.distributed.get_rank())
        return named_rank()[0]

    def ranks(self) -> int:
        if paddle.distributed.is_initialized():
            return int(paddle.distributed.get_world_size())
        return named_rank()[1]

    def describe(self) -> Mapping[str, str]:
        # Read by people: where the gradients of arguments are.
        return {"paddle": str(paddle.__version__), "gradients": "of outputs; a replay computes those of arguments"}

    def overflown(self, tree: Tree) -> bool:
        return any(seen.data is not UNSET and overflown(seen.data) for _, seen in seen_tensors(tree, ""))

    def _replacement(self, function: Callable[..., Any], rule: RecordedFunction) -> Callable[..., Any]:
        """A function that makes the call, and records it where no other is under way on this thread."""
        thread, sites, call = self._thread, self._sites, self.call

        def replacement(*args: Any, **kwargs: Any) -> Any:
            if thread.inside:
                return sites.of(sys._getframe(1))(function, args, kwargs)
            if _modes._dygraph_tracer_ is None:
                self._entered_static()
                return sites.of(sys._getframe(1))(function, args, kwargs)
            thread.inside = True
            try:
                return call(rule, function, args, kwargs)
            except BaseException as error:
                remove_our_frames(error)
                raise
            finally:
                thread.inside = False

        return like(function, replacement)

    def _ending(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A backward, behind which an overflow that a hook has found ends the program."""

        def replacement(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            late, self._late = self._late, None
            if late is not None:
                raise late
            return result

        return like(function, replacement)

    def call(
        self, rule: RecordedFunction, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Make a call of the program's, and record it. Raises what the call raises, and OverflowFound."""
        # The caller of Paddle's function: above are this method and the replacement.
        frame = sys._getframe(2)
        calling = self._sites.of(frame)
        writes = rule.writes or "out" in kwargs
        recorder = self._recorder
        if recorder is None or not self._seeing or not rule.wanted:
            return self._made(writes, calling, function, args, kwargs)
        name = f"{rule.name}.{next(self._numbers[rule.name])}"
        if not (recorder.scope.whole or recorder.scope.wants(name)):
            return self._made(writes, calling, function, args, kwargs)
        entry = self._begin(recorder, name, rule, args, kwargs, frame)
        result = self._made(writes, calling, function, args, kwargs)
        if entry is not None and result is not NotImplemented and self._end(recorder, entry, rule, result):
            recorder.overflowed(entry.name)
        return result

    def _begin(
        self,
        recorder: Recorder,
        name: str,
        rule: RecordedFunction,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        frame: FrameType,
    ) -> NamedEntry | None:
        """What a call is given, as it is now, since the call may write to it."""
        try:
            leaves, other = self._values.leaves, self._values.other
            trees = [leaves.get(type(value), other)(value) for value in args]
            named = {key: leaves.get(type(value), other)(value) for key, value in kwargs.items()}
            _find_devices(rule.name, trees, named)
            return self._entry(name, trees, named, frame, dict(_surroundings(rule)) or UNSET)
        except Exception as error:
            recorder.failed(f"{name}.forward", error)
            return None

    def _end(self, recorder: Recorder, entry: NamedEntry, rule: RecordedFunction, result: Any) -> bool:
        """Record what a call gave. Did it overflow?"""
        overflows = False
        try:
            several = isinstance(result, (list, tuple)) and not isinstance(result, paddle.Size)
            outputs: Sequence[Any] = result if several else (result,)
            trees = [self._values.take(value) for value in outputs]
            if self._outputs:
                entry.body.output = trees
            if self._backward and _grads():
                wanting = list(differentiable(outputs, "output"))
                if wanting:
                    Watched(f"{entry.name[:-7]}backward", entry.parent, wanting, self._fire)
            made = rule.name.rpartition(".")[2] in _UNINITIALISED
            overflows = self._overflow and not made and self.overflown(trees)
            if self._forward and (overflows or not self._overflow):
                recorder.put(entry, self._values.taken())
        except Exception as error:
            recorder.failed(entry.name, error)
        return overflows

    def _fire(self, watched: Watched, place: str, gradient: Any) -> None:
        """A gradient came to an output. Raises nothing: that would end the program's backward."""
        recorder = self._recorder
        if recorder is None or not watched.missing:
            return
        with self._aside():
            try:
                watched.came(place, self._values.take(gradient))
                if watched.missing:
                    self._open[watched] = None
                elif self._complete(recorder, watched):
                    recorder.overflowed(watched.name)
            except OverflowFound as error:
                # It is raised when the backward has ended.
                self._late = error
            except Exception as error:
                recorder.failed(watched.name, error)

    def _sees(self) -> bool:
        """Are calls recorded now, which are no part of what Paddle compiles?"""
        return self._bindings.there and _modes._dygraph_tracer_ is not None

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """No call of Paddle's that is made in here is recorded."""
        inside, self._thread.inside = self._thread.inside, True
        try:
            yield
        finally:
            self._thread.inside = inside

    def _entered_static(self) -> None:
        if self._recorder is not None:
            self._recorder.tell(
                "static graph", "pytest-probe: what builds a static graph of Paddle's is not recorded, nor what it runs"
            )

    @contextmanager
    def _away(self) -> Iterator[None]:
        """Inside a region that Paddle compiles its own functions are in their places again."""
        if not self._bindings.there or self._thread.inside:
            yield
            return
        if self._recorder is not None:
            self._recorder.tell(
                "to_static",
                "pytest-probe: what runs inside paddle.jit.to_static is not recorded; run the program without it to "
                "record it",
            )
        self._bindings.take_back()
        try:
            yield
        finally:
            if self._seeing:
                self._bindings.put()


def _named(config: CaptureConfig) -> list[tuple[str, Any]]:
    """The functions of the user's choice, by the names of their records. Raises SettingsError."""
    found = list(collectives()) if config.targets is None else functions_at(config.targets)
    for prefix, module in modules(config.namespaces, _TAKEN):
        found += [(f"{prefix}.{name}", getattr(module, name)) for name in functions(module)]
    return found


def like(function: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement with the name, the text and the signature of the function."""
    functools.update_wrapper(replacement, function)
    # Some look at the arguments of a function without looking for what it wraps; those in C++ have none.
    with suppress(TypeError, ValueError):
        replacement.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return replacement


def _find_devices(name: str, trees: list[Tree], named: dict[str, Tree]) -> None:
    """The names of devices among arguments as what they are: `x.to("gpu:0")`, `place="cpu"`."""
    for key in _DEVICES:
        if isinstance(tree := named.get(key), PlainEntry) and tree.type == "str":
            named[key] = place(tree.value)
    if name == "paddle.Tensor.to":
        trees[:] = [place(one.value) if isinstance(one, PlainEntry) and one.type == "str" else one for one in trees]


def _surroundings(rule: RecordedFunction) -> Iterator[tuple[str, Any]]:
    """What the outcome, and the kernel, depend on apart from the arguments."""
    if not _grads():
        yield "grad", False
    if _AMP and (tracer := _tracer())._amp_level != _OFF:
        yield "autocast", {paddle.device.get_device().partition(":")[0]: str(tracer._amp_dtype)}
    if _default() != "float32":
        yield "default_dtype", _default()
    if rule.draws:
        yield "rng", " ".join(str(state) for state in paddle.get_rng_state())


_OURS = os.path.join(os.path.dirname(__file__), "")
# The file's name ends so, with either separator; these of its functions run in a backward.
_RECOMPUTE = ("recompute.py", "recompute_hybrid.py")
_BACKWARD = ("backward", "unpack", "inner_unpack")


def _call_stacks() -> CallStacks:
    return CallStacks(_OURS, _computes_again, lambda: True)


def _computes_again(code: CodeType) -> bool:
    return code.co_name in _BACKWARD and code.co_filename.endswith(_RECOMPUTE)
