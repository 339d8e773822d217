"""Calls of a framework that has no mode that sees them: its functions are replaced wherever modules hold them, by ones
that record the outermost call of each thread, or that time all calls, and put back.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

from msgspec import UNSET

from pytest_probe.capture.bindings import Bindings, Function, like, patched
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import Args, CallStacks, Kwargs, remove_our_frames
from pytest_probe.capture.hooks import CallHooks, Rule, Watched, placed
from pytest_probe.capture.modules import ModuleCalls, Watch
from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.profiling.track import DeviceClock, ShapeRows
from pytest_probe.capture.recorder import Recorder
from pytest_probe.capture.snapshot import NamedEntry, Parent, Snapshots, Tree, backward_of, seen_tensors
from pytest_probe.capture.statistics import overflown
from pytest_probe.errors import OverflowFound


class _Thread(threading.local):
    # Is a call of the framework's made here, whose own calls are not recorded?
    inside = False


class ReplacedCalls:
    """The functions of a framework, replaced from `put` until `take_back`. A subclass sets _bindings. tensor is the
    framework's class of tensors, compiled_methods are the methods that run what it compiles, by owner and name."""

    framework: str
    tensor: type
    compiled_methods: Sequence[tuple[Any, str]]
    # Does the framework build a graph now, and compute nothing? None where its own functions are in their places
    # meanwhile.
    compiles: Callable[[], bool] | None = None
    _bindings: Bindings

    def __init__(self) -> None:
        self._methods = ExitStack()
        self._listening = False

    def methods(self) -> Iterator[tuple[Any, str, Function]]:
        """The methods that are replaced as well, each with its replacement as `patched` takes it."""
        return ((owner, name, self.compiled) for owner, name in self.compiled_methods)

    def compiled(self, original: Function, compiled: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Make a call of what the framework compiles."""
        raise NotImplementedError

    def put(self) -> None:
        self._methods.close()
        self._listening = True
        self._bindings.put()
        # All are looked up first: a class may inherit what another one gets.
        for patch in [patched(*method) for method in self.methods()]:
            self._methods.enter_context(patch)

    def take_back(self) -> None:
        self._listening = False
        self._methods.close()
        if self._bindings.there:
            self._bindings.take_back()

    @contextmanager
    def own_functions(self) -> Iterator[None]:
        """Inside a region that the framework compiles its own functions are in their places again."""
        if not self._bindings.there:
            yield
            return
        self._bindings.take_back()
        try:
            yield
        finally:
            if self._listening:
                self._bindings.put()


class ReplacedTiming(ReplacedCalls):
    """Times calls between begin and end, on all threads. functions have the names of their rows; classes are those
    whose methods are among them. clock is what each first-level call asks, synchronize waits for the device."""

    def __init__(
        self,
        stopwatch: Stopwatch,
        functions: Iterable[tuple[Function, str]],
        classes: Sequence[type],
        clock: DeviceClock | None,
        synchronize: Callable[[], object],
    ) -> None:
        super().__init__()
        self._stopwatch = stopwatch
        self._clock = clock
        self._synchronize = synchronize
        self._bindings = Bindings([(one, self._replacement(one, name)) for one, name in functions], classes)

    def begin(self) -> None:
        self.put()

    def end(self) -> None:
        self.take_back()
        self._stopwatch.wait(self._synchronize)

    def _replacement(self, function: Function, name: str) -> Function:
        api = self._stopwatch.api(self.framework, name, clock=self._clock)
        track, by_shape, compiles = self._stopwatch.track, self._stopwatch.by_shape, self.compiles
        rows, local = ShapeRows(api, self.tensor), self._stopwatch.local

        # Each call waits for what is done here: what is known of this thread is looked up first.
        def replacement(*args: Any, **kwargs: Any) -> Any:
            if compiles is not None and compiles():
                return function(*args, **kwargs)
            return (local.track or track()).call(rows.of(args, kwargs) if by_shape else api, function, args, kwargs)

        return like(function, replacement)

    @contextmanager
    def away(self, name: str, message: str) -> Iterator[None]:
        """Around a region that the framework compiles, which is one row of this name; a warning says so."""
        self._stopwatch.tell(name, message)
        api, track = self._stopwatch.api(self.framework, name), self._stopwatch.track()
        track.begin(api)
        try:
            with self.own_functions():
                yield
        finally:
            track.end_call(api)


class WatchedOutputs(Watched):
    """The gradients of the outputs of one call: hooks on them, registered at the call.

    A hook sees the gradient after it was summed up over all that used the output. Those of the arguments cannot be had
    by hooks, which would see the sums over other calls: a replay computes them.
    """

    __slots__ = ("seen",)

    sees_arguments = False

    def __init__(self, name: str, parent: Parent, outputs: Sequence[tuple[str, Any]], hooks: ReplacingHooks) -> None:
        super().__init__(name, parent)
        self.incoming = {place: None for place, _ in outputs}
        self.missing = len(outputs)
        # The places to which one came.
        self.seen: set[str] = set()
        for place, tensor in outputs:
            self.register(hooks, tensor, self._hook(hooks, place))

    def register(self, hooks: ReplacingHooks, tensor: Any, hook: Callable[[Any], None]) -> None:
        hooks.register(tensor, hook)

    def _hook(self, hooks: ReplacingHooks, place: str) -> Callable[[Any], None]:
        def hook(gradient: Any) -> None:
            hooks.gradient(self, place, gradient)

        return hook

    def on_gradient(self, take: Callable[[Any], Tree], *gradients: Any) -> None:
        place, gradient = gradients
        if place in self.seen:
            self.missing = 0
            return
        self.seen.add(place)
        self.incoming[place] = take(gradient)
        self.missing -= 1


class ReplacingHooks(CallHooks, ReplacedCalls):
    """Sees the outermost calls of replaced functions, and the gradients that come to their outputs. A subclass sets
    _bindings and _modules."""

    _modules: ReplacedModules

    def __init__(self, config: CaptureConfig, values: Snapshots, stacks: CallStacks) -> None:
        super().__init__(config, values, stacks)
        ReplacedCalls.__init__(self)
        self._thread = _Thread()
        self._late: OverflowFound | None = None

    def entered_graph(self) -> None:
        """A call was made that builds a graph."""

    def has_gradient(self, tensor: Any) -> bool:
        """Does a gradient come to this output?"""
        raise NotImplementedError

    def differentiable(self, value: Any, place: str) -> list[tuple[str, Any]]:
        """The tensors among outputs to which a gradient comes, by place."""
        return [one for one in placed(value, place, self.tensor) if self.has_gradient(one[1])]

    def register(self, tensor: Any, hook: Callable[[Any], None]) -> object:
        """Have the hook called with the tensor's gradient."""
        raise NotImplementedError

    def overflown(self, tree: Tree) -> bool:
        self.before_write()
        return any(seen.data is not UNSET and overflown(seen.data) for _, seen in seen_tensors(tree, ""))

    def before_write(self) -> None:
        """A call may write to what was seen before, and has not been looked at."""

    def install(self, recorder: Recorder) -> None:
        super().install(recorder)
        if self._placed:
            self._modules.begin(recorder)
        self.put()

    def remove_forward(self) -> None:
        self.take_back()
        super().remove_forward()

    def replacement(self, function: Function, rule: Rule) -> Function:
        """A function that makes the call, and records it where no other is under way on this thread."""
        thread, sites, call, compiles = self._thread, self._sites, self.call, self.compiles
        writes, before_write = rule.writes, self.before_write

        def replacement(*args: Any, **kwargs: Any) -> Any:
            if thread.inside:
                if writes:
                    before_write()
                return sites.of(sys._getframe(1))(function, args, kwargs)
            if compiles is not None and compiles():
                self.entered_graph()
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

    def call(self, rule: Rule, function: Function, args: Args, kwargs: Kwargs, frame: FrameType | None = None) -> Any:
        """Make a call of the program's, and record it. Raises what the call raises, and OverflowFound."""
        # The caller of the framework's function: above are this method and the replacement.
        frame = frame or sys._getframe(2)
        calling = self._sites.of(frame)
        writes = rule.writes or "out" in kwargs
        recorder = self._recorder
        wanted = recorder is not None and self._seeing and rule.wanted
        name = f"{rule.name}.{next(self._numbers[rule.name])}" if wanted else ""
        if recorder is None or not name or not (recorder.scope.whole or recorder.scope.wants(name)):
            if writes:
                self.before_write()
            return self._made(writes, calling, function, args, kwargs)
        entry = self.before(recorder, name, rule, args, kwargs, frame, None)
        if writes:
            self.before_write()
        result = self._made(writes, calling, function, args, kwargs)
        if entry is not None and result is not NotImplemented and self.after(recorder, entry, result, None, 0):
            recorder.overflowed(entry.name)
        return result

    def gave(self, entry: NamedEntry, outputs: Sequence[Any], trees: list[Tree], asking: Any, start: int) -> None:
        if self._backward and self.watches() and (wanting := self.differentiable(outputs, "output")):
            WatchedOutputs(f"{entry.name[:-7]}backward", entry.parent, wanting, self)

    def overflowed(self, recorder: Recorder, name: str) -> None:
        with self.aside():
            try:
                super().overflowed(recorder, name)
            except OverflowFound as error:
                # It is raised when the backward has ended.
                self._late = error
            except Exception as error:
                recorder.failed(name, error)

    def ending(self, function: Function) -> Function:
        """A backward, behind which an overflow that a hook has found ends the program."""

        def replacement(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            late, self._late = self._late, None
            if late is not None:
                raise late
            return result

        return like(function, replacement)

    def sees(self) -> bool:
        """Are calls recorded now, which are no part of what the framework compiles?"""
        return self._bindings.there and not (self.compiles is not None and self.compiles())

    @contextmanager
    def aside(self) -> Iterator[None]:
        """No call of the framework's that is made in here is recorded."""
        inside, self._thread.inside = self._thread.inside, True
        try:
            yield
        finally:
            self._thread.inside = inside

    @contextmanager
    def away(self, about: str, message: str) -> Iterator[None]:
        """Around a region that the framework compiles; a warning about it says so once, where there is something to
        say."""
        if not self._bindings.there or self._thread.inside:
            yield
            return
        if about and self._recorder is not None:
            self._recorder.tell(about, message)
        with self.own_functions():
            yield


class ReplacedModules(ModuleCalls):
    """The calls of modules, whose outputs have hooks for their gradients."""

    _hooks: ReplacingHooks

    def called(self, original: Callable[..., Any], module: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self.made(original, module, args, kwargs) if self._hooks.sees() else original(module, *args, **kwargs)

    def version(self, tensor: Any) -> int:
        """How often it was written to, where the framework counts that."""
        return 0

    def watching(self, entry: NamedEntry, args: Args, kwargs: Kwargs, parameters: Mapping[str, Any]) -> Watch:
        given = {
            id(tensor): self.version(tensor)
            for _, tensor in self._hooks.differentiable([*args, *kwargs.values(), *parameters.values()], "")
        }

        def watch(outputs: Sequence[Any]) -> None:
            # What a module passes on as it was given has gradients of other calls as well.
            found = self._hooks.differentiable(outputs, "output")
            own = [one for one in found if given.get(id(one[1])) != self.version(one[1])]
            if own:
                WatchedOutputs(str(backward_of(entry.name)), entry.parent, own, self._hooks)
            self.watch_parameters(entry.name, parameters)

        return watch

    def watch_parameters(self, name: str, parameters: Mapping[str, Any]) -> None:
        """After the call of a module that has this forward entry: wait for the gradients of its own parameters, where
        the framework gives them to hooks."""
