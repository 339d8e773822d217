"""The calls of a model's modules: entries of their own at levels L0 and mix, and the place of every API call.

torch.nn.Module.__call__ is wrapped, since it sees what the caller gives and gets, whatever hooks the modules have;
hooks of ours on them would turn off the faster paths of torch's own modules.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from msgspec import UNSET
from torch.nn.parameter import is_lazy

from pytest_probe.errors import SettingsError
from pytest_probe.frameworks.torch.recording.gradients import Fire, Wanting, Watched, wanting
from pytest_probe.frameworks.torch.recording.modes import Presence, patched, transforming, unseen
from pytest_probe.frameworks.torch.recording.values import Values
from pytest_probe.recording.config import CaptureConfig
from pytest_probe.recording.recorder import Recorder
from pytest_probe.recording.snapshot import ForwardEntry, NamedEntry, Parent, backward_of
from pytest_probe.recording.stacks import CallStacks

# A module's own nodes, its children's included; a call of an API has fewer.
_MOST_NODES = 1 << 18

# How the places of a module's own parameters begin.
_PARAMETERS = "parameters."


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
    """A module of the model; its entries are named after stem, "Module.fc.Linear", empty for the model itself."""

    module: torch.nn.Module
    path: str
    stem: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Running:
    """A call of a module, while it runs on this thread; parent is that of what is called inside."""

    known: _Known
    parent: Parent


@dataclasses.dataclass(frozen=True, slots=True)
class _Begun:
    """An entry of a module, while its forward runs; start is autograd's number of nodes before it."""

    recorder: Recorder
    entry: NamedEntry
    asking: list[Wanting]
    start: int


class _Thread(threading.local):
    def __init__(self) -> None:
        self.calls: list[_Running] = []


class Modules:
    """Follows the module calls of all threads."""

    def __init__(
        self, config: CaptureConfig, presence: Presence, values: Values, stacks: CallStacks, fire: Fire
    ) -> None:
        self._level = config.level
        self._models: Sequence[tuple[str, torch.nn.Module]] = ()
        self._records = config.level != "L1"
        self._modes = config.modes
        self._presence = presence
        self._values = values
        self._stacks = stacks
        self._stacked = config.stacks
        self._fire = fire
        self._recorder: Recorder | None = None
        self._nowhere: Parent = None if self._records else UNSET
        self._known: dict[int, _Known] = {}
        self._counts: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)
        self._thread = _Thread()
        self._patches = ExitStack()

    def follow(self, model: Any) -> None:
        """From the next `begin` on the modules of this model. Raises SettingsError for what is none, or a level that
        needs one."""
        self._models = _models(self._level, model)

    def begin(self, recorder: Recorder) -> None:
        self._recorder = recorder
        # Anew each time: modules may have been added to the model.
        for prefix, model in self._models:
            for name, module in model.named_modules():
                path = ".".join(filter(None, (prefix, name))).encode(errors="backslashreplace").decode()
                stem = f"Module.{path}.{type(module).__name__}" if name else ""
                self._known.setdefault(id(module), _Known(module, path, stem))
        self._patches.enter_context(patched(torch.nn.Module, "__call__", self._call))

    def end(self) -> None:
        self._patches.close()
        self._recorder = None
        self._known = {}

    def restart(self) -> None:
        """Count calls anew."""
        self._counts.clear()

    def place(self, entry: NamedEntry) -> None:
        """Say in the forward entry of an API call where it stands."""
        calls = self._thread.calls
        if not calls:
            entry.parent = self._nowhere
            return
        entry.parent = calls[-1].parent
        path = calls[-1].known.path
        if path:
            entry.body.tell("module", path)

    # Positional only: the program's keywords may have any name.
    def _call(self, original: Callable[..., Any], module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or self._recorder is None:
            return original(module, *args, **kwargs)
        if self._presence.absent():
            with self._presence.present():
                return self._follow(original, module, args, kwargs)
        return self._follow(original, module, args, kwargs)

    def _follow(
        self,
        original: Callable[..., Any],
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        known = self._known.get(id(module))
        recorder = self._recorder
        if known is None or recorder is None or transforming():
            return original(module, *args, **kwargs)
        calls = self._thread.calls
        parent = calls[-1].parent if calls else self._nowhere
        name = f"{known.stem}.forward.{next(self._counts[known.stem])}" if known.stem else ""
        wanted = bool(name) and recorder.scope.enters(name)
        begun = self._begin(recorder, name, known, parent, args, kwargs) if wanted and self._records else None
        calls.append(_Running(known, parent if begun is None else name))
        try:
            result = original(module, *args, **kwargs)
        except BaseException as error:
            if begun is not None:
                self._raised(begun, error)
            raise
        finally:
            calls.pop()
            if name:
                recorder.scope.leaves(name)
        if begun is not None:
            self._end(begun, result)
        return result

    def _begin(
        self,
        recorder: Recorder,
        name: str,
        known: _Known,
        parent: Parent,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> _Begun | None:
        """What a module is given, as it is now."""
        grads, take = torch.is_grad_enabled() and "backward" in self._modes, self._values.take
        with unseen(), torch.no_grad():
            try:
                given, named = [_opened(value) for value in args], {key: _opened(kwargs[key]) for key in kwargs}
                parameters = {key: one for key, one in known.module._parameters.items() if _is_there(one)}
                where = self._stacks.number(sys._getframe()) if self._stacked else -1
                body = ForwardEntry(is_recompute=self._stacks.recomputes(where))
                if "input" in self._modes:
                    body.input_args = take(given)
                    body.input_kwargs = {key: take(value) for key, value in named.items()}
                    body.parameters = take(parameters) if parameters else UNSET
                asking = _asking(given, named, parameters) if grads else []
                # Even where nothing is asked for: the gradients of the outputs are recorded.
                start = torch._C._autograd._get_sequence_nr() if grads else -1
                return _Begun(recorder, NamedEntry(name, body, where, parent), asking, start)
            except Exception as error:
                recorder.failed(name, error)
                return None

    def _end(self, begun: _Begun, result: Any) -> None:
        """What a module gave."""
        name = begun.entry.name
        with unseen(), torch.no_grad():
            try:
                opened = _opened(result)
                outputs = opened if isinstance(opened, list | tuple) else (opened,)
                if "output" in self._modes:
                    begun.entry.body.output = [self._values.take(value) for value in outputs]
                if begun.start >= 0:
                    found = list(wanting(outputs, "output"))
                    watched = _WatchedModule(name, begun.entry.parent)
                    watched.watch(begun.asking, found, begun.start, self._fire, _MOST_NODES)
                if "forward" in self._modes:
                    begun.recorder.put(begun.entry, self._values.taken())
            except Exception as error:
                begun.recorder.failed(name, error)

    def _raised(self, begun: _Begun, error: BaseException) -> None:
        """A forward ended by an exception: what it was given, and the class of the exception."""
        begun.entry.body.tell("raised", type(error).__name__)
        if "forward" in self._modes:
            begun.recorder.put(begun.entry, self._values.taken())


class _WatchedModule(Watched):
    """The gradients of one call of a module. Those of its parameters have an entry; they too are this call's alone."""

    __slots__ = ()

    def entries(self) -> Iterator[NamedEntry]:
        stem, _, number = self.name.rpartition(".forward.")
        parameters = [place for place in self.outgoing if place.startswith(_PARAMETERS)]
        gradients = {place.removeprefix(_PARAMETERS): [self.outgoing.pop(place)] for place in parameters}
        came = {name: trees for name, trees in gradients.items() if trees != [None]}
        if came:
            yield NamedEntry(f"{stem}.parameters_grad.{number}", came)
        yield NamedEntry(f"{stem}.backward.{number}", self.passed(), parent=backward_of(self.parent))


def _models(level: str, model: Any) -> Sequence[tuple[str, torch.nn.Module]]:
    """The models, each with what stands before its paths: its number in a list, nothing before that of a single one."""
    if model is None and level == "L1":
        return ()
    several = isinstance(model, list | tuple)
    models = tuple(model) if several else (model,)
    if not models or not all(isinstance(one, torch.nn.Module) for one in models):
        needs = "" if level == "L1" else f"level {level} records modules: "
        raise SettingsError("PrecisionDebugger: model", model, f"{needs}give a torch.nn.Module, or a list of them")
    return tuple((str(index) if several else "", one) for index, one in enumerate(models))


def _is_there(parameter: torch.nn.Parameter | None) -> bool:
    return parameter is not None and not is_lazy(parameter)


def _opened(value: Any) -> Any:
    """A tree of arguments or results in which dataclasses and named tuples are dicts of their fields."""
    if isinstance(value, torch.Tensor | torch.Size):
        return value
    if isinstance(value, Mapping):
        return {key: _opened(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {key: _opened(item) for key, item in zip(value._fields, value, strict=True)}
    if isinstance(value, list | tuple):
        items = [_opened(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _opened(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _asking(args: Sequence[Any], kwargs: Mapping[str, Any], parameters: Mapping[str, Any]) -> list[Wanting]:
    """The arguments and the module's own parameters that want gradients."""
    return [
        *wanting(args, "input"),
        *wanting(dict(kwargs), "kwargs"),
        *wanting(dict(parameters), _PARAMETERS.removesuffix(".")),
    ]
