"""What the hooks of all frameworks have in common: what is recorded before a call, after it, and when its gradients
come; and the modules of the user's choice whose functions are recorded as well."""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import FrameType, ModuleType
from typing import Any

from msgspec import UNSET, Struct

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import Args, Calling, CallSites, CallStacks, Kwargs
from pytest_probe.capture.modules import ModuleCalls
from pytest_probe.capture.ranks import named_rank
from pytest_probe.capture.recorder import Recorder
from pytest_probe.capture.snapshot import (
    BackwardEntry,
    ForwardEntry,
    Json,
    NamedEntry,
    Parent,
    Snapshots,
    Tree,
    backward_of,
)
from pytest_probe.errors import SettingsError


def modules(namespaces: Sequence[tuple[str, str]], taken: frozenset[str]) -> tuple[tuple[str, ModuleType], ...]:
    """The modules of a configuration, each after its prefix; taken are the prefixes of the framework's own records.
    Raises SettingsError where one cannot be used."""
    found = []
    for prefix, path in namespaces:
        if not prefix.isidentifier() or prefix in taken:
            wanted = f"give a prefix of one word, but not one of {', '.join(sorted(taken))}"
            raise SettingsError("namespaces", prefix, wanted)
        try:
            found.append((prefix, importlib.import_module(path)))
        except Exception as error:  # a module's own code may raise anything
            wanted = f"give a module that can be imported ({type(error).__name__}: {error})"
            raise SettingsError(f"namespaces: {prefix}", path, wanted) from error
    return tuple(found)


def functions_of(namespaces: Sequence[tuple[str, str]], taken: frozenset[str]) -> list[tuple[str, Any]]:
    """The functions of these modules, by the names of their records. Raises as `modules` does."""
    found = modules(namespaces, taken)
    return [(f"{prefix}.{name}", getattr(module, name)) for prefix, module in found for name in functions(module)]


def functions(module: ModuleType) -> list[str]:
    """The names of a module's public functions, without functions from other packages."""
    package = _package(module.__name__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and inspect.isroutine(value) and _package(_home(value) or package) == package
    ]


def _home(function: Any) -> str | None:
    """The module that a function is from; for "apply" of an autograd.Function, the module of the class."""
    owner = getattr(function, "__self__", None)
    home: str | None = (owner if isinstance(owner, type) else function).__module__
    return home


def _package(module: str) -> str:
    return module.partition(".")[0]


class Rule(Struct):
    """A function that is seen: the name of its records, "" where it has none, and whether this capture wants them.
    writes: it may write to arguments without the framework counting it; draws: it takes from the random number
    generator. operator is its rule where an operator of Python's calls it."""

    name: str
    wanted: bool
    writes: bool = False
    draws: bool = False
    operator: Rule | None = None


def placed(value: Any, place: str, kind: type) -> list[tuple[str, Any]]:
    """What is of this class in a tree of arguments or results, by place."""
    if isinstance(value, kind):
        return [(place, value)]
    if isinstance(value, list | tuple):
        return [one for index, item in enumerate(value) for one in placed(item, f"{place}.{index}", kind)]
    if isinstance(value, dict):
        return [one for key, item in value.items() for one in placed(item, f"{place}.{key}", kind)]
    return []


class Watched:
    """The gradients of one call, by place, as they come: of its outputs, and of its arguments.
    missing counts what may still come; parent is the forward's. A subclass waits in `on_gradient`."""

    __slots__ = ("incoming", "missing", "name", "outgoing", "parent")

    # Do hooks see the gradients of the arguments?
    sees_arguments = True

    def __init__(self, name: str, parent: Parent) -> None:
        self.name = name
        self.parent = parent
        self.incoming: dict[str, Tree] = {}
        self.outgoing: dict[str, Tree] = {}
        self.missing = 0

    def on_gradient(self, take: Callable[[Any], Tree], *gradients: Any) -> None:
        """Some came. Of several backwards the first counts: another one leaves nothing missing."""
        raise NotImplementedError

    def entries(self) -> Iterator[NamedEntry]:
        """The entries of the gradients that came."""
        yield NamedEntry(self.name, self.passed(), parent=backward_of(self.parent))

    def passed(self) -> BackwardEntry:
        places = {"outputs": list(self.incoming), "inputs": list(self.outgoing)}
        left = list(self.outgoing.values()) if self.sees_arguments else UNSET
        return BackwardEntry(list(self.incoming.values()), left, places)


class CallHooks:
    """Hooks of a framework: a subclass sees the calls. values takes their snapshots, stacks numbers their callers."""

    # What dumps call it.
    framework: str
    # The classes of results that are one output, though they are sequences.
    shapes: tuple[type, ...] = ()
    # The last names of functions that give what nobody wrote, so that they cannot overflow.
    uninitialised: tuple[str, ...] = ()
    # How the files of tensors end.
    suffix = ".pt"
    # How the names of records begin that stand for all that a compiled function calls.
    regions: tuple[str, ...] = ()
    # The framework's module that knows which of the processes that train together this is, None where it has none.
    distributed: Any = None
    _modules: ModuleCalls

    def __init__(self, config: CaptureConfig, values: Snapshots, stacks: CallStacks) -> None:
        self._stacked = config.stacks
        self._inputs, self._outputs, self._forward, self._backward = (
            half in config.modes for half in ("input", "output", "forward", "backward")
        )
        self._overflow = config.task == "overflow_check"
        # At L0 calls are seen only for what they may write to tensors behind the framework's back.
        self._calls = config.level != "L0"
        self.snapshots = values
        self._take: Callable[[Any], Tree] = values.take
        self.stacks = stacks
        self._sites = CallSites()
        # The records of each name in this step, for all threads.
        self._numbers: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)
        # In their order: entries of a dump depend on no address.
        self._open: dict[Watched, None] = {}
        self._recorder: Recorder | None = None
        self._seeing = False
        self._placed = False

    # Either alone: a group that is torn down at the end of a process may know one no more.
    def rank(self) -> int | None:
        """The number of this process among processes that train together, None where it is alone."""
        known = self.distributed is not None and self.distributed.is_initialized()
        return int(self.distributed.get_rank()) if known else named_rank()[0]

    def ranks(self) -> int:
        """How many processes train together, 1 where nothing says so."""
        known = self.distributed is not None and self.distributed.is_initialized()
        return int(self.distributed.get_world_size()) if known else named_rank()[1]

    def watches(self) -> bool:
        """Does the framework record gradients now?"""
        raise NotImplementedError

    def overflown(self, tree: Tree) -> bool:
        """Does a tensor of this snapshot hold NaN or inf?"""
        raise NotImplementedError

    def install(self, recorder: Recorder) -> None:
        """See calls from now on."""
        self._recorder = recorder
        self._seeing = True
        self.snapshots.forget()

    def remove_forward(self) -> None:
        """No longer see calls; gradients of calls already seen still come."""
        self._seeing = False
        self._sites.clear()
        self._modules.end()

    def follow(self, model: Any) -> None:
        """From the next `install` on record this model's modules; None: of that before. Raises SettingsError."""
        if not (model is None and self._placed):
            self._modules.follow(model)
            self._placed = model is not None or self._modules.finds

    def remove(self) -> None:
        """Leave no hook."""
        self.remove_forward()
        self._recorder = None

    def end_step(self, recorder: Recorder) -> None:
        """Hand over what is not complete, and count calls anew."""
        for watched in list(self._open):
            self._complete(recorder, watched)
        self._modules.restart()
        self.snapshots.forget()
        self._numbers.clear()

    def describe(self) -> Mapping[str, str]:
        """Versions and flags that change numerics, for the head of the dump."""
        raise NotImplementedError

    def _made(self, writes: bool, calling: Calling, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Make a call of the program's; writes: it may write to its arguments behind the framework's back."""
        result = calling(function, args, kwargs)
        if writes:
            self.snapshots.distrust([*args, *kwargs.values()])
        return result

    def given(
        self, rule: Rule, args: Args, kwargs: Kwargs, trees: list[Tree], named: dict[str, Tree], asking: Any
    ) -> Json:
        """What only readers of our own know of a call: what its outcome and the kernel depend on apart from the
        arguments. The snapshots of these, trees and named, may be changed here. asking is a list that gets the tensors
        that want gradients, None without any."""
        return UNSET

    def gave(self, entry: NamedEntry, outputs: Sequence[Any], trees: list[Tree], asking: Any, start: int) -> None:
        """A call has returned: wait for its gradients. asking is what `given` has found, start autograd's number of
        nodes before the call."""
        raise NotImplementedError

    def aside(self) -> AbstractContextManager[object]:
        """A context in which neither calls nor gradients are recorded."""
        raise NotImplementedError

    def of_program(self, error: Exception) -> bool:
        """Is it an error of an earlier call of the program's, which was met here and belongs to the program?"""
        return False

    def before(
        self, recorder: Recorder, name: str, rule: Rule, args: Args, kwargs: Kwargs, frame: FrameType, asking: Any
    ) -> NamedEntry | None:
        """The forward entry of a call, which frame makes: what it is given, as it is now, since it may write to it."""
        try:
            leaves, other = self.snapshots.leaves, self.snapshots.other
            trees = [leaves.get(type(value), other)(value) for value in args]
            named = {key: leaves.get(type(value), other)(value) for key, value in kwargs.items()} if kwargs else {}
            probe = self.given(rule, args, kwargs, trees, named, asking)
            where = self.stacks.number(frame) if self._stacked else -1
            body = ForwardEntry(is_recompute=self.stacks.recomputes(where), probe=probe)
            if self._inputs:
                body.input_args, body.input_kwargs = trees, named
            entry = NamedEntry(f"{name}.forward", body, where)
            if self._placed:
                self._modules.place(entry)
            return entry
        except Exception as error:
            recorder.failed(f"{name}.forward", error)
            if self.of_program(error):
                raise
            return None

    def after(self, recorder: Recorder, entry: NamedEntry, result: Any, asking: Any, start: int) -> bool:
        """Record what a call gave. Did it overflow?"""
        overflows = False
        try:
            several = isinstance(result, (list, tuple)) and not isinstance(result, self.shapes)
            outputs: Sequence[Any] = result if several else (result,)
            leaves, other = self.snapshots.leaves, self.snapshots.other
            trees = [leaves.get(type(value), other)(value) for value in outputs]
            if self._outputs:
                entry.body.output = trees
            self.gave(entry, outputs, trees, asking, start)
            known = self._overflow and entry.name.rsplit(".", 3)[-3] not in self.uninitialised
            overflows = known and self.overflown(trees)
            if self._forward and (overflows or not self._overflow):
                recorder.put(entry, self.snapshots.taken())
        except Exception as error:
            recorder.failed(entry.name, error)
            if self.of_program(error):
                raise
        return overflows

    def gradient(self, watched: Watched, *gradients: Any) -> None:
        """Gradients came to a call, or left it. Only OverflowFound is raised: it ends the program's backward."""
        recorder = self._recorder
        if recorder is None or not watched.missing:
            return
        overflows = False
        with self.aside():
            try:
                watched.on_gradient(self._take, *gradients)
                if watched.missing:
                    self._open[watched] = None
                else:
                    overflows = self._complete(recorder, watched)
            except Exception as error:
                if self.have_values(gradients):
                    recorder.failed(watched.name, error)
        if overflows:
            self.overflowed(recorder, watched.name)

    def overflowed(self, recorder: Recorder, name: str) -> None:
        """Gradients of this entry overflowed. Raises OverflowFound where that may be raised inside a backward."""
        recorder.overflowed(name)

    def have_values(self, gradients: Sequence[Any]) -> bool:
        """Do these gradients have values of their own? Else others may follow that have."""
        return True

    def _complete(self, recorder: Recorder, watched: Watched) -> bool:
        """All gradients of a call are there, or no more will come. Did one overflow?"""
        self._open.pop(watched, None)
        watched.missing = 0
        found = list(watched.entries())
        bodies = (entry.body for entry in found)
        overflows = self._overflow and any(
            self.overflown([body.input, body.output] if type(body) is BackwardEntry else body) for body in bodies
        )
        if overflows or not self._overflow:
            for entry in found:
                body = entry.body
                if type(body) is BackwardEntry:
                    body.input = body.input if self._inputs else UNSET
                    body.output = body.output if self._outputs else UNSET
                recorder.put(entry, self.snapshots.taken())
        return overflows
