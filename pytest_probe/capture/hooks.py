"""What the hooks of all frameworks have in common: how a call becomes an entry, which gradients it waits for, and the
modules of the user's choice whose functions are recorded as well."""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, ModuleType
from typing import Any, Protocol

from msgspec import UNSET

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import Calling, CallSites, CallStacks
from pytest_probe.capture.modules import ModuleCalls
from pytest_probe.capture.ranks import named_rank
from pytest_probe.capture.recorder import Recorder
from pytest_probe.capture.snapshot import BackwardEntry, ForwardEntry, Json, NamedEntry, Snapshots, Tree
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


class _Gradients(Protocol):
    """The gradients of one call, as they come; missing counts what may still come."""

    missing: int

    def entries(self) -> Iterator[NamedEntry]:
        """The entries of the gradients that came."""


class CallHooks:
    """Hooks of a framework: a subclass sees the calls. values takes their snapshots, stacks numbers their callers."""

    # What dumps call it.
    framework: str
    # How the files of tensors end.
    suffix = ".pt"
    # How the names of records begin that stand for all that a compiled function calls.
    regions: tuple[str, ...] = ()
    # The framework's module that knows which process this is among those that train together, None where it has none.
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
        self.stacks = stacks
        self._sites = CallSites()
        # The records of each name in this step, for all threads.
        self._numbers: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)
        # In their order: entries of a dump hang on no address.
        self._open: dict[_Gradients, None] = {}
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
            self._placed = model is not None

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

    def _made(
        self,
        writes: bool,
        calling: Calling,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Make a call of the program's; writes: it may write to its arguments behind the framework's back."""
        result = calling(function, args, kwargs)
        if writes:
            self.snapshots.distrust([*args, *kwargs.values()])
        return result

    def _entry(self, name: str, args: Tree, kwargs: Tree, frame: FrameType, probe: Json) -> NamedEntry:
        """The forward entry of a call, which frame makes; probe is what only readers of our own know."""
        where = self.stacks.number(frame) if self._stacked else -1
        body = ForwardEntry(is_recompute=self.stacks.recomputes(where), probe=probe)
        if self._inputs:
            body.input_args, body.input_kwargs = args, kwargs
        entry = NamedEntry(f"{name}.forward", body, where)
        if self._placed:
            self._modules.place(entry)
        return entry

    def _complete(self, recorder: Recorder, watched: _Gradients) -> bool:
        """All gradients of a call are there, or no more will come. Did one overflow?"""
        self._open.pop(watched, None)
        watched.missing = 0
        found = list(watched.entries())
        overflows = self._overflow and any(self.overflown(_gradients(entry.body)) for entry in found)
        if overflows or not self._overflow:
            for entry in found:
                body = entry.body
                if type(body) is BackwardEntry:
                    body.input = body.input if self._inputs else UNSET
                    body.output = body.output if self._outputs else UNSET
                recorder.put(entry, self.snapshots.taken())
        return overflows


def _gradients(body: Any) -> Tree:
    return [body.input, body.output] if type(body) is BackwardEntry else body
