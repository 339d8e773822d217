"""What a process may have set that changes what a call computes: fixed for references, and given back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from msgspec import Struct

from pytest_probe.model.run import State

# What a setting belongs to: to how a run is made, and so never to the user; to the call, of which a dump has it; to
# the process, so that a device under test has it as the user does.
Owner = Literal["run", "call", "process"]
EVERY: tuple[Owner, ...] = ("run", "call", "process")
OWNERS: dict[State, tuple[Owner, ...]] = {"fixed": (), "recorded": ("process",), "users": ("process", "call")}


class Setting(Struct, frozen=True):
    """fixed is what it is without anybody's doing; shown says another value in words, after the name."""

    name: str
    owner: Owner
    read: Callable[[], Any]
    write: Callable[[Any], object]
    fixed: Any
    shown: Callable[[Any], str] = str


def in_words(settings: Sequence[Setting]) -> list[str]:
    """Those that are not what they are without anybody's doing."""
    found = [(setting, setting.read()) for setting in settings]
    return [f"{setting.name} {setting.shown(value)}" for setting, value in found if value != setting.fixed]


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
        """Make each setting what it is without anybody's doing; remember those that these own."""
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
        """What references draw is none of the user's numbers, and hangs on nothing."""
        generator = self.process.generator()
        drawn = generator.get_state()
        generator.set_state(self._drawn)
        self._drawn = drawn


class UsersState:
    """See Framework.users_state."""

    def __init__(self, process: ProcessState, state: State) -> None:
        self._thread = process.of_thread
        self._owners = OWNERS[state]
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
