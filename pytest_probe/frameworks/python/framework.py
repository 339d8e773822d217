"""What frameworks with a Python API do alike, with neutral answers to what makes sense for one of them only; and the
settings of a process that change what a call computes.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from msgspec import Struct

from pytest_probe.errors import SettingsError, Unsupported
from pytest_probe.frameworks.base import Framework, Widened, Widening
from pytest_probe.frameworks.python.calls import PythonCalls
from pytest_probe.model.run import Device, State
from pytest_probe.system.text import suggestion
from pytest_probe.user_errors import first_line

# What a setting belongs to: to how a run is made, and so never to the user; to the call, of which a dump has it; to
# the process, so that a device under test has it as the user does.
Owner = Literal["run", "call", "process"]
EVERY: tuple[Owner, ...] = ("run", "call", "process")
_OWNERS: dict[State, tuple[Owner, ...]] = {"fixed": (), "recorded": ("process",), "users": ("process", "call")}


class Setting(Struct, frozen=True):
    """fixed is what it is without anybody's doing; describe says another value in words, after the name."""

    name: str
    owner: Owner
    read: Callable[[], Any]
    write: Callable[[Any], object]
    fixed: Any
    describe: Callable[[Any], str] = str


def in_words(settings: Sequence[Setting]) -> list[str]:
    """The settings that somebody changed."""
    found = [(setting, setting.read()) for setting in settings]
    return [f"{setting.name} {setting.describe(value)}" for setting, value in found if value != setting.fixed]


class _Thread(threading.local):
    fixed: FixedState | None = None


class ProcessState:
    """The settings of one framework, in their order; generator gives what draws the CPU's random numbers, seeded the
    state of it that references begin with."""

    def __init__(self, settings: Sequence[Setting], generator: Callable[[], Any], seeded: Callable[[], Any]) -> None:
        self.settings = settings
        self.generator = generator
        self.seeded = seeded
        self.of_thread = _Thread()


class FixedState:
    """See Framework.fixed_state. changed holds what was another before, by the setting's place, so long as this is in
    force; drawn the state of the generator that is not in use."""

    process: ClassVar[ProcessState]

    def __init__(self) -> None:
        self._changed: dict[int, Any] = {}
        self._drawn = self.process.seeded()
        self._outermost = False

    def __enter__(self) -> None:
        self._outermost = self.process.of_thread.fixed is None
        if self._outermost:
            self.fix(EVERY)
            self.process.of_thread.fixed = self

    def __exit__(self, *raised: object) -> None:
        if self._outermost:
            self.process.of_thread.fixed = None
            self.put_back(EVERY)

    def fix(self, owners: Sequence[Owner]) -> None:
        """Make each setting what it is without anybody's doing; remember the ones that these own."""
        for place, setting in enumerate(self.process.settings):
            value = setting.read()
            if setting.owner in owners:
                self._changed.pop(place, None)
            if value != setting.fixed:
                if setting.owner in owners:
                    self._changed[place] = value
                setting.write(setting.fixed)
        self.swap_generators()

    def put_back(self, owners: Sequence[Owner]) -> None:
        """Give the user what these own of what was changed."""
        self.swap_generators()
        settings = self.process.settings
        for place in sorted(self._changed, reverse=True):
            if settings[place].owner in owners:
                settings[place].write(self._changed[place])

    def swap_generators(self) -> None:
        """What references draw is none of the user's numbers, and depends on nothing."""
        generator = self.process.generator()
        drawn = generator.get_state()
        generator.set_state(self._drawn)
        self._drawn = drawn


class UsersState:
    """See Framework.users_state."""

    def __init__(self, process: ProcessState, state: State) -> None:
        self._thread = process.of_thread
        self._owners = _OWNERS[state]
        self._held: FixedState | None = None

    def __enter__(self) -> None:
        if self._owners:
            self._held, self._thread.fixed = self._thread.fixed, None
        if self._held is not None:
            self._held.put_back(self._owners)

    def __exit__(self, *raised: object) -> None:
        if self._held is not None:
            self._held.fix(self._owners)
            self._thread.fixed = self._held


class PythonDevice:
    """A device of a framework's own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return function(*args, **kwargs)


class PythonFramework(PythonCalls, Framework):
    """A framework with a Python API. kinds are the devices that people name, for the message about another name;
    refusals are the framework's errors for such a name."""

    kinds: ClassVar[tuple[str, ...]]
    refusals: ClassVar[tuple[type[Exception], ...]]
    # What brings the devices of a kind, where the framework alone has none of it.
    packages: ClassVar[Mapping[str, str]] = {}
    widening: Widening
    translates = False

    @abstractmethod
    def opened(self, name: str) -> Any:
        """The framework's own device of that name. Raises one of its refusals without one."""

    @abstractmethod
    def count(self, kind: str) -> int:
        """How many devices of this kind, which is not the CPU, the framework sees."""

    @abstractmethod
    def default_device(self) -> str:
        """See Devices.default_device."""

    def device(self, name: str, option: str = "--probe-device") -> Any:
        try:
            return self.opened(name)
        except self.refusals as error:
            known = ", ".join(sorted({"cpu", self.default_device()}))
            kind = name.partition(":")[0]
            near, package = suggestion(self.kinds, kind), self.packages.get(kind, "")
            says = f"says: {first_line(error)}"
            if package and find_spec(package.partition(".")[0]) is None:
                says = f"has {kind} with the package {package} alone, which is not installed here"
            wanted = f"{self.title} {says}; found here: {known}{near}"
            raise SettingsError(option, name, wanted) from error

    def host(self) -> Any:
        return self.device("cpu")

    def all_devices(self, name: str) -> tuple[str, ...]:
        count = 1 if name == "cpu" or ":" in name else self.count(name)
        return tuple(f"{name}:{number}" for number in range(count)) if count > 1 else (name,)

    def emulating(self, name: str) -> Device:
        raise SettingsError("--probe-emulate", name, f"{self.title} has 16-bit kernels there: leave the option out")

    def composing(self, kind: str, dtype: str) -> Any:
        raise NotImplementedError(f"no autocast of {kind} is known")

    def writes_to(self, target: Any, tensor: Any) -> Any:
        if target.shape != tensor.shape:
            raise Unsupported("it gives the tensor that it writes to another shape", "no counterpart")
        return self.put_into(target, tensor)

    @abstractmethod
    def put_into(self, target: Any, tensor: Any) -> Any:
        """Put a tensor into one of the same shape, which is returned; gradients pass."""

    def widened(self, reference: Callable[..., Any]) -> Widened:
        return Widened(reference, self.widening)
