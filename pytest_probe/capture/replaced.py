"""Calls of a framework that has no mode that sees them: its functions are replaced wherever modules hold them, by ones
that record the outermost call of each thread, and put back.

A function is bound in thousands of places: `paddle.add` is `paddle.Tensor.add`, and `from` imports hold both.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any, TypeAlias

from msgspec import UNSET, Struct

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import CallStacks, remove_our_frames
from pytest_probe.capture.gradients import Watched
from pytest_probe.capture.hooks import CallHooks
from pytest_probe.capture.modules import ModuleCalls, Watch
from pytest_probe.capture.recorder import Recorder
from pytest_probe.capture.snapshot import NamedEntry, Snapshots, Tree, backward_of
from pytest_probe.errors import OverflowFound

_Function: TypeAlias = Callable[..., Any]

# Their modules keep the framework's own functions, with which calls are replayed.
_OURS = "pytest_probe"


class Rule(Struct, frozen=True):
    """A function that is replaced: the name of its records, "" where it has none, and whether this capture wants them.
    writes: it may write to arguments without the framework counting it; draws: it takes from the random number
    generator."""

    name: str
    wanted: bool
    writes: bool
    draws: bool = False


class Bindings:
    """Replaces functions: in classes, and in all modules that hold them under any name.

    Modules that are loaded later are looked through at the next `put`, and at `take_back` for replacements that they
    took.
    """

    def __init__(self, pairs: Iterable[tuple[_Function, _Function]], classes: Iterable[type]) -> None:
        # Both stay alive, so that their ids stay their own.
        self._pairs = list(pairs)
        self._replacements = {id(original): replacement for original, replacement in self._pairs}
        self._originals = {id(replacement): original for original, replacement in self._pairs}
        self._methods = [
            (owner, name, value, self._replacements[id(value)], name in vars(owner))
            for owner in classes
            for name in dir(owner)
            if id(value := inspect.getattr_static(owner, name)) in self._replacements
        ]
        self._names: list[tuple[dict[str, Any], str, _Function, _Function]] = []
        self._known: set[str] = set()
        self.there = False

    def put(self) -> None:
        for names in self._unknown():
            for name, value in list(names.items()):
                replacement = self._replacements.get(id(value))
                if replacement is not None:
                    self._names.append((names, name, value, replacement))
        for owner, name, original, replacement, _ in self._methods:
            if next((names[name] for names in map(vars, owner.__mro__) if name in names), None) is original:
                setattr(owner, name, replacement)
        for names, name, original, replacement in self._names:
            if names.get(name) is original:
                names[name] = replacement
        self.there = True

    def take_back(self) -> None:
        """What somebody else has replaced since stays."""
        for owner, name, original, replacement, own in self._methods:
            if vars(owner).get(name) is replacement:
                put_back(owner, name, original, own)
        for names, name, original, replacement in self._names:
            if names.get(name) is replacement:
                names[name] = original
        for names in self._unknown():
            for name, value in list(names.items()):
                function = self._originals.get(id(value))
                if function is not None:
                    names[name] = function
                    self._names.append((names, name, function, value))
        self.there = False

    def _unknown(self) -> list[dict[str, Any]]:
        """The names of modules that were not looked through before; __main__ gets new ones as a program runs."""
        new = sys.modules.keys() - self._known
        self._known |= new
        modules = [sys.modules[name] for name in (*new, "__main__") if name.partition(".")[0] != _OURS]
        return [names for module in modules if isinstance(names := getattr(module, "__dict__", None), dict)]


def put_back(owner: Any, name: str, original: Any, own: bool) -> None:
    """own: the class had the attribute itself, and did not inherit it."""
    if own:
        setattr(owner, name, original)
    else:
        delattr(owner, name)


class Regions:
    """Methods that are replaced, as those that compile or write to tensors, by what makes the replacement of each."""

    def __init__(self, methods: Iterable[tuple[Any, str, Callable[[_Function], _Function]]]) -> None:
        self._methods = tuple(methods)
        self._put: list[tuple[Any, str, Any, Any, bool]] = []

    def put(self) -> None:
        # Others may have replaced them since. All are looked up first: a class may inherit what another one gets.
        found = [(owner, name, getattr(owner, name), name in vars(owner), made) for owner, name, made in self._methods]
        for owner, name, original, own, made in found:
            replacement = made(original)
            setattr(owner, name, replacement)
            self._put.append((owner, name, original, replacement, own))

    def take_back(self) -> None:
        for owner, name, original, replacement, own in reversed(self._put):
            if vars(owner).get(name) is replacement:
                put_back(owner, name, original, own)
        self._put.clear()


def like(function: _Function, replacement: _Function) -> _Function:
    """The replacement with the name, the text and the signature of the function."""
    functools.update_wrapper(replacement, function)
    # Some look at the arguments of a function without looking for what it wraps; those in C++ have none.
    with suppress(TypeError, ValueError):
        replacement.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return replacement


@contextmanager
def steps_end(kinds: Iterable[type], method: str, step: Callable[[], None]) -> Iterator[None]:
    """Call step after each call of this method of the optimizer that is called first; others belong to its steps. kinds
    are the classes that have a method of their own, or shall get one."""
    first: list[weakref.ref[Any]] = []

    def followed(original: _Function) -> _Function:
        @functools.wraps(original)
        def replacement(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(optimizer, *args, **kwargs)
            if not first or first[0]() is None:
                first[:] = [weakref.ref(optimizer)]
            if first[0]() is optimizer:
                step()
            return result

        return replacement

    methods = Regions((kind, method, followed) for kind in kinds)
    methods.put()
    try:
        yield
    finally:
        methods.take_back()


class _Thread(threading.local):
    # Is a call of the framework's made here, whose own calls are not recorded?
    inside = False


class ReplacingHooks(CallHooks):
    """Sees the outermost calls of replaced functions, and the gradients that come to their outputs. A subclass sets
    _bindings, _regions and _modules. tensor is the framework's class of tensors, output_gradients waits for a call's;
    shapes are the classes of results that are one output, though they are sequences."""

    tensor: type
    output_gradients: type[Watched]
    shapes: tuple[type, ...] = ()
    _bindings: Bindings
    _regions: Regions
    _modules: ReplacedModules

    def __init__(self, config: CaptureConfig, values: Snapshots, stacks: CallStacks) -> None:
        super().__init__(config, values, stacks)
        self._thread = _Thread()
        self._late: OverflowFound | None = None

    def compiles(self) -> bool:
        """Does the framework build a graph now, and compute nothing?"""
        raise NotImplementedError

    def entered_graph(self) -> None:
        """A call was made that builds a graph."""

    def watches(self) -> bool:
        """Does the framework record gradients now?"""
        raise NotImplementedError

    def has_gradient(self, tensor: Any) -> bool:
        """Does a gradient come to this output?"""
        raise NotImplementedError

    def differentiable(self, value: Any, place: str) -> Iterator[tuple[str, Any]]:
        """The tensors among outputs to which a gradient comes, by place."""
        if isinstance(value, self.tensor):
            if self.has_gradient(value):
                yield place, value
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                yield from self.differentiable(item, f"{place}.{index}")
        elif isinstance(value, Mapping):
            for key, item in value.items():
                yield from self.differentiable(item, f"{place}.{key}")

    def surroundings(self, rule: Rule) -> Iterator[tuple[str, Any]]:
        """What the outcome, and the kernel, depend on apart from the arguments."""
        raise NotImplementedError

    def uninitialised(self, rule: Rule) -> bool:
        """Does it give what nobody wrote? An overflow there is none."""
        raise NotImplementedError

    def seen(self, name: str, args: list[Tree], kwargs: dict[str, Tree]) -> None:
        """The snapshots of a call's arguments; what they are taken for may be changed here."""

    def of_program(self, error: Exception) -> bool:
        """Is it an error of an earlier call of the program's, which was met here and belongs to the program?"""
        return False

    def before_write(self) -> None:
        """A call may write to what was seen before, and has not been looked at."""

    def install(self, recorder: Recorder) -> None:
        super().install(recorder)
        self._bindings.put()
        if self._placed:
            self._modules.begin(recorder)
        self._regions.put()

    def remove_forward(self) -> None:
        if self._bindings.there:
            self._regions.take_back()
        super().remove_forward()
        if self._bindings.there:
            self._bindings.take_back()

    def replacement(self, function: _Function, rule: Rule) -> _Function:
        """A function that makes the call, and records it where no other is under way on this thread."""
        thread, sites, call, compiles = self._thread, self._sites, self.call, self.compiles
        writes, before_write = rule.writes, self.before_write

        def replacement(*args: Any, **kwargs: Any) -> Any:
            if thread.inside:
                if writes:
                    before_write()
                return sites.of(sys._getframe(1))(function, args, kwargs)
            if compiles():
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

    def call(
        self,
        rule: Rule,
        function: _Function,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        frame: FrameType | None = None,
    ) -> Any:
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
        entry = self._begin(recorder, name, rule, args, kwargs, frame)
        if writes:
            self.before_write()
        result = self._made(writes, calling, function, args, kwargs)
        if entry is not None and result is not NotImplemented and self._end(recorder, entry, rule, result):
            recorder.overflowed(entry.name)
        return result

    def _begin(
        self,
        recorder: Recorder,
        name: str,
        rule: Rule,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        frame: FrameType,
    ) -> NamedEntry | None:
        """What a call is given, as it is now, since the call may write to it."""
        try:
            leaves, other = self.snapshots.leaves, self.snapshots.other
            trees = [leaves.get(type(value), other)(value) for value in args]
            named = {key: leaves.get(type(value), other)(value) for key, value in kwargs.items()}
            self.seen(rule.name, trees, named)
            return self._entry(name, trees, named, frame, dict(self.surroundings(rule)) or UNSET)
        except Exception as error:
            recorder.failed(f"{name}.forward", error)
            if self.of_program(error):
                raise
            return None

    def _end(self, recorder: Recorder, entry: NamedEntry, rule: Rule, result: Any) -> bool:
        """Record what a call gave. Did it overflow?"""
        overflows = False
        try:
            several = isinstance(result, (list, tuple)) and not isinstance(result, self.shapes)
            outputs: Sequence[Any] = result if several else (result,)
            trees = [self.snapshots.take(value) for value in outputs]
            if self._outputs:
                entry.body.output = trees
            if self._backward and self.watches():
                wanting = list(self.differentiable(outputs, "output"))
                if wanting:
                    self.output_gradients(f"{entry.name[:-7]}backward", entry.parent, wanting, self.fire)
            overflows = self._overflow and not self.uninitialised(rule) and self.overflown(trees)
            if self._forward and (overflows or not self._overflow):
                recorder.put(entry, self.snapshots.taken())
        except Exception as error:
            recorder.failed(entry.name, error)
            if self.of_program(error):
                raise
        return overflows

    def fire(self, watched: Watched, place: str, gradient: Any) -> None:
        """A gradient came to an output. Raises nothing: that would end the program's backward."""
        recorder = self._recorder
        if recorder is None or not watched.missing:
            return
        with self.aside():
            try:
                watched.came(place, self.snapshots.take(gradient))
                if watched.missing:
                    self._open[watched] = None
                elif self._complete(recorder, watched):
                    recorder.overflowed(watched.name)
            except OverflowFound as error:
                # It is raised when the backward has ended.
                self._late = error
            except Exception as error:
                recorder.failed(watched.name, error)

    def ending(self, function: _Function) -> _Function:
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
        return self._bindings.there and not self.compiles()

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
        """Inside a region that the framework compiles its own functions are in their places again; a warning about it
        says so once, where there is something to say."""
        if not self._bindings.there or self._thread.inside:
            yield
            return
        if about and self._recorder is not None:
            self._recorder.tell(about, message)
        self._bindings.take_back()
        try:
            yield
        finally:
            if self._seeing:
                self._bindings.put()


class ReplacedModules(ModuleCalls):
    """Follows the module calls of all threads: the method by which modules are called is replaced, since hooks of
    modules would make them take another path, and do not see an exception."""

    def __init__(self, config: CaptureConfig, values: Snapshots, stacks: CallStacks, hooks: ReplacingHooks) -> None:
        super().__init__(config, values, stacks)
        self._hooks = hooks
        kind: Any = self.kind
        original = self._original = kind.__call__

        @functools.wraps(original)
        def replacement(module: Any, /, *args: Any, **kwargs: Any) -> Any:
            if hooks.sees():
                return self.made(original, module, args, kwargs)
            return original(module, *args, **kwargs)

        self._replacement = replacement

    def begin(self, recorder: Recorder) -> None:
        super().begin(recorder)
        kind: Any = self.kind
        if kind.__call__ is self._original:
            kind.__call__ = self._replacement

    def end(self) -> None:
        kind: Any = self.kind
        if kind.__call__ is self._replacement:
            kind.__call__ = self._original
        super().end()

    def aside(self) -> AbstractContextManager[None]:
        return self._hooks.aside()

    def wants_gradients(self) -> bool:
        return self._hooks.watches()

    def version(self, tensor: Any) -> int:
        """How often it was written to, where the framework counts that."""
        return 0

    def watching(
        self, entry: NamedEntry, args: Sequence[Any], kwargs: Mapping[str, Any], parameters: Mapping[str, Any]
    ) -> Watch:
        given = {
            id(tensor): self.version(tensor)
            for _, tensor in self._hooks.differentiable([*args, *kwargs.values(), *parameters.values()], "")
        }

        def watch(outputs: Sequence[Any]) -> None:
            # What a module hands on as it was given has gradients of other calls as well.
            found = self._hooks.differentiable(outputs, "output")
            own = [one for one in found if given.get(id(one[1])) != self.version(one[1])]
            if own:
                self._hooks.output_gradients(str(backward_of(entry.name)), entry.parent, own, self._hooks.fire)
            self.watch_parameters(entry.name, parameters)

        return watch

    def watch_parameters(self, name: str, parameters: Mapping[str, Any]) -> None:
        """After the call of a module that has this forward entry: wait for the gradients of its own parameters, where
        the framework gives them to hooks."""
