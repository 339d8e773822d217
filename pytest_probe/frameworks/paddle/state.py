"""PaddlePaddle: what a process may have set that changes what a call computes, or how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import paddle

from pytest_probe.core.run import State

# What a setting belongs to: to how a run is made, and so never to the user; to the call, of which a dump tells it; to
# the process, so that a device under test has it as the user does.
Owner = Literal["run", "call", "process"]
EVERY: tuple[Owner, ...] = ("run", "call", "process")
OWNERS: dict[State, tuple[Owner, ...]] = {"fixed": (), "recorded": ("process",), "users": ("process", "call")}
# Flags that change numbers, or that end calls which give NaN. Not every build has each.
FLAGS = (
    "FLAGS_check_nan_inf",
    "FLAGS_cudnn_deterministic",
    "FLAGS_embedding_deterministic",
    "FLAGS_use_accuracy_compatible_kernel",
)

_core: Any = paddle.base.core
_flags: Any = _core.globals()
_tracer: Callable[[], Any] = paddle.base.framework._dygraph_tracer
_OFF = _core.AmpLevel.O0


@dataclass(frozen=True, slots=True)
class Setting:
    """fixed is what it is without anybody's doing; shown says another value in words, after the name."""

    name: str
    owner: Owner
    read: Callable[[], Any]
    write: Callable[[Any], object]
    fixed: Any
    shown: Callable[[Any], str] = str


def _is_static() -> bool:
    return not paddle.in_dynamic_mode()


def _set_static(value: bool) -> None:
    (paddle.enable_static if value else paddle.disable_static)()


def _set_grad(value: bool) -> None:
    _tracer()._has_grad = value


def _set_amp(value: Any) -> None:
    _tracer()._amp_level = value


def _set_flag(name: str, value: Any) -> None:
    _flags[name] = value


def _of_flags() -> Iterator[Setting]:
    for name in FLAGS:
        if name in _flags.keys():  # noqa: SIM118 (no mapping of Python's)
            yield Setting(
                name, "process", partial(_flags.__getitem__, name), partial(_set_flag, name), False, lambda _: "on"
            )


# The graph comes first: a program that is being built has no tracer.
SETTINGS = (
    Setting("static graph", "run", _is_static, _set_static, False, lambda _: "on"),
    Setting("grad mode", "run", lambda: _tracer()._has_grad, _set_grad, True, lambda _: "off"),
    Setting("default dtype", "call", paddle.get_default_dtype, paddle.set_default_dtype, "float32"),
    Setting("amp", "call", lambda: _tracer()._amp_level, _set_amp, _OFF, lambda level: str(level.name)),
    *_of_flags(),
)


def differing() -> str:
    """In words, what is set to something else than Paddle's own default; "" for nothing."""
    found = []
    for setting in SETTINGS[1:] if not _is_static() else SETTINGS[:1]:
        value = setting.read()
        if value != setting.fixed:
            found.append(f"{setting.name} {setting.shown(value)}")
    return ", ".join(found)


@cache
def _seeded() -> Any:
    """The state of a generator that references begin with."""
    generator = _core.default_cpu_generator()
    before = generator.get_state()
    generator.manual_seed(0)
    state = generator.get_state()
    generator.set_state(before)
    return state


def random_state() -> bytes:
    """The state of the CPU's generator, which Paddle writes out with the address where it keeps it."""
    fields = str(_core.default_cpu_generator().get_state()).split()
    return " ".join(field for field in fields if not field.startswith("0x")).encode()


class Fixed:
    """See Framework.fixed_state. changed holds what was another before, by the setting's place, so long as this is in
    force; drawn the state of the generator that is not in use."""

    def __init__(self) -> None:
        self._changed: dict[int, Any] = {}
        self._drawn = _seeded()
        self._outermost = False

    def __enter__(self) -> None:
        self._outermost = _thread.fixed is None
        if self._outermost:
            self.fix(EVERY)
            _thread.fixed = self

    def __exit__(self, *raised: object) -> None:
        if self._outermost:
            _thread.fixed = None
            self.put_back(EVERY)

    def fix(self, owners: Sequence[Owner]) -> None:
        """Make each setting what it is without anybody's doing; remember those that these own."""
        for place, setting in enumerate(SETTINGS):
            value = setting.read()
            if setting.owner in owners:
                self._changed.pop(place, None)
            if value != setting.fixed:
                if setting.owner in owners:
                    self._changed[place] = value
                setting.write(setting.fixed)
        self._swap()

    def put_back(self, owners: Sequence[Owner]) -> None:
        """Give the user what these own of what was changed."""
        self._swap()
        for place in sorted(self._changed, reverse=True):
            if SETTINGS[place].owner in owners:
                SETTINGS[place].write(self._changed[place])

    def _swap(self) -> None:
        """Change generators: what references draw is none of the user's numbers, and hangs on nothing."""
        generator = _core.default_cpu_generator()
        drawn = generator.get_state()
        generator.set_state(self._drawn)
        self._drawn = drawn


class OfUser:
    """See Framework.users_state."""

    def __init__(self, state: State) -> None:
        self._owners = OWNERS[state]
        self._held: Fixed | None = None

    def __enter__(self) -> None:
        if self._owners:
            self._held, _thread.fixed = _thread.fixed, None
        if self._held is not None:
            self._held.put_back(self._owners)

    def __exit__(self, *raised: object) -> None:
        if self._held is not None:
            self._held.fix(self._owners)
            _thread.fixed = self._held


class _Thread(threading.local):
    fixed: Fixed | None = None


_thread = _Thread()
