"""The calls of a model's modules: entries of their own at levels L0 and mix, and the place of every API call.

What is common to all frameworks; each has a subclass, which sees the calls and reads the gradients.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, Struct

from pytest_probe.capture.bindings import patched
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import Args, Kwargs
from pytest_probe.capture.recorder import Recorder, log
from pytest_probe.capture.snapshot import ForwardEntry, NamedEntry, Parent
from pytest_probe.errors import SettingsError

if TYPE_CHECKING:
    from pytest_probe.capture.hooks import CallHooks

# Given what a module returned, watches for the gradients of the call.
Watch: TypeAlias = Callable[[Sequence[Any]], None]


class _KnownModule(Struct, frozen=True):
    """A module of the model, by a weak reference; its entries are named after stem, "Module.fc.Linear", empty for the
    model itself."""

    module: Callable[[], Any]
    path: str
    stem: str


class _Thread(threading.local):
    def __init__(self) -> None:
        # The calls of modules that run on this thread, each with the parent of the calls inside.
        self.calls: list[tuple[_KnownModule, Parent]] = []


class ModuleCalls:
    """Follows the module calls of all threads: the method by which modules are called is replaced. Hooks of modules
    would make them take another path, and do not see an exception.

    kind is the framework's class of modules, kind_name what users call it, prefix what their records begin with; atoms
    are the classes whose values are not opened, though they may be sequences. finds: where no model is given, is one
    that is called by no other a model? Of several the paths of all but the first begin with the name of the class.
    """

    kind: type
    kind_name: str
    prefix = "Module"
    finds = False
    atoms: tuple[type, ...]

    def __init__(self, config: CaptureConfig, hooks: CallHooks) -> None:
        self._level = config.level
        self._models: Sequence[tuple[str, Any]] = ()
        self._records = config.level != "L1"
        self._modes = config.modes
        self._hooks = hooks
        self._stacked = config.stacks
        self._recorder: Recorder | None = None
        self._nowhere: Parent = None if self._records else UNSET
        self._known: dict[int, _KnownModule] = {}
        self._found = False
        self._counts: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)
        self._thread = _Thread()
        self._patches = ExitStack()

    # Positional only: the program's keywords may have any name.
    def called(self, original: Callable[..., Any], module: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A module is called: by `made` if that is recorded here and now, else by original."""
        raise NotImplementedError

    def named(self, model: Any) -> Iterable[tuple[str, Any]]:
        """The modules inside a model, itself included, each after its path."""
        raise NotImplementedError

    def parameters(self, module: Any) -> Mapping[str, Any]:
        """A module's own parameters that have values."""
        raise NotImplementedError

    def watching(self, entry: NamedEntry, args: Args, kwargs: Kwargs, parameters: Mapping[str, Any]) -> Watch:
        """Called before a call with these arguments: what to do with its outputs. entry is its forward entry."""
        raise NotImplementedError

    def follow(self, model: Any) -> None:
        """Record the modules of this model from the next `begin` on. Raises SettingsError for an object that is no
        model, or for a level that needs a model."""
        self._models = self._checked(model)

    def begin(self, recorder: Recorder) -> None:
        self._patches.close()
        self._recorder = recorder
        # Anew each time: modules may have been added to the model.
        for prefix, model in self._models:
            self._know(prefix, model)
        self._patches.enter_context(patched(self.kind, "__call__", self.called))

    def _know(self, prefix: str, model: Any) -> None:
        for name, module in self.named(model):
            path = ".".join(filter(None, (prefix, name))).encode(errors="backslashreplace").decode()
            stem = f"{self.prefix}.{path}.{type(module).__name__}" if name else ""
            known = self._known.get(id(module))
            if known is None or known.module() is not module:
                self._known[id(module)] = _KnownModule(weakref.ref(module), path, stem)

    def _known_of(self, module: Any) -> _KnownModule | None:
        known = self._known.get(id(module))
        if known is not None and known.module() is module:
            return known
        if self._models or not self.finds or self._thread.calls:
            return None
        try:
            inside = next((name for name, _ in self.named(module) if name), "")
            self._know(type(module).__name__ if self._found and inside else "", module)
            self._found |= bool(inside)
        except Exception as error:
            log.warning("pytest-probe: a model has no paths (%s: %s)", type(error).__name__, error)
        return self._known.get(id(module))

    def end(self) -> None:
        self._patches.close()
        self._recorder = None
        self._known, self._found = {}, False

    def restart(self) -> None:
        """Count calls anew."""
        self._counts.clear()

    def place(self, entry: NamedEntry) -> None:
        """Note in the forward entry of an API call which module makes it."""
        calls = self._thread.calls
        if not calls:
            entry.parent = self._nowhere
            return
        known, entry.parent = calls[-1]
        if known.path:
            entry.body.tell("module", known.path)

    def made(self, original: Callable[..., Any], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call of a module's, and record it. Raises what the call raises."""
        recorder = self._recorder
        known = None if recorder is None else self._known_of(module)
        if known is None or recorder is None:
            return original(module, *args, **kwargs)
        calls = self._thread.calls
        parent = calls[-1][1] if calls else self._nowhere
        name = f"{known.stem}.forward.{next(self._counts[known.stem])}" if known.stem else ""
        wanted = bool(name) and recorder.scope.enters(name)
        begun = self._begin(recorder, name, known, parent, args, kwargs) if wanted and self._records else None
        calls.append((known, parent if begun is None else name))
        try:
            result = original(module, *args, **kwargs)
        except BaseException as error:
            if begun is not None:
                begun[0].body.tell("raised", type(error).__name__)
                self._put(recorder, begun[0])
            raise
        finally:
            calls.pop()
            if name:
                recorder.scope.leaves(name)
        if begun is not None:
            self._end(recorder, *begun, result)
        return result

    def _begin(
        self,
        recorder: Recorder,
        name: str,
        known: _KnownModule,
        parent: Parent,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[NamedEntry, Watch | None] | None:
        """The entry of a module with what it is given, as it is now."""
        watches, take = "backward" in self._modes and self._hooks.watches(), self._hooks.snapshots.take
        with self._hooks.aside():
            try:
                given, named = (
                    [self._opened(value) for value in args],
                    {key: self._opened(kwargs[key]) for key in kwargs},
                )
                parameters = self.parameters(known.module())
                where = self._hooks.stacks.number(sys._getframe()) if self._stacked else -1
                body = ForwardEntry(is_recompute=self._hooks.stacks.recomputes(where))
                if "input" in self._modes:
                    body.input_args = take(given)
                    body.input_kwargs = {key: take(value) for key, value in named.items()}
                    body.parameters = {key: take(value) for key, value in parameters.items()} or UNSET
                entry = NamedEntry(name, body, where, parent)
                return entry, self.watching(entry, given, named, parameters) if watches else None
            except Exception as error:
                recorder.failed(name, error)
                return None

    def _end(self, recorder: Recorder, entry: NamedEntry, watch: Watch | None, result: Any) -> None:
        """What a module gave."""
        with self._hooks.aside():
            try:
                opened = self._opened(result)
                outputs = opened if isinstance(opened, list | tuple) else (opened,)
                if "output" in self._modes:
                    entry.body.output = [self._hooks.snapshots.take(value) for value in outputs]
                if watch is not None:
                    watch(outputs)
                self._put(recorder, entry)
            except Exception as error:
                recorder.failed(entry.name, error)

    def _put(self, recorder: Recorder, entry: NamedEntry) -> None:
        if "forward" in self._modes:
            recorder.put(entry, self._hooks.snapshots.taken())

    def _checked(self, model: Any) -> Sequence[tuple[str, Any]]:
        """The models, each with the prefix of its paths: its number in a list, nothing for a single model."""
        if model is None and (self.finds or self._level == "L1"):
            return ()
        several = isinstance(model, list | tuple)
        models = tuple(model) if several else (model,)
        if not models or not all(isinstance(one, self.kind) for one in models):
            needs = "" if self._level == "L1" else f"level {self._level} records modules: "
            wanted = f"{needs}give a {self.kind_name}, or a list of them"
            raise SettingsError("PrecisionDebugger: model", model, wanted)
        return tuple((str(index) if several else "", one) for index, one in enumerate(models))

    def _opened(self, value: Any) -> Any:
        """A tree of arguments or results in which dataclasses and named tuples are dicts of their fields."""
        if isinstance(value, self.atoms):
            return value
        if isinstance(value, Mapping):
            return {key: self._opened(item) for key, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {key: self._opened(item) for key, item in zip(value._fields, value, strict=True)}
        if isinstance(value, list | tuple):
            items = [self._opened(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: self._opened(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return value
