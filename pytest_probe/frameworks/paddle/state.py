"""PaddlePaddle: what a process may have set that changes what a call computes, or how it ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import paddle

from pytest_probe.frameworks.python.framework import FixedState, ProcessState, Setting, UsersState, in_words

# Flags that change numbers, or that end calls which give NaN. Not every build has each.
_FLAGS = (
    *("FLAGS_check_nan_inf", "FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic"),
    "FLAGS_use_accuracy_compatible_kernel",
)

_core: Any = paddle.base.core
_flags: Any = _core.globals()
_tracer: Callable[[], Any] = paddle.base.framework._dygraph_tracer
_OFF = _core.AmpLevel.O0


def _is_static() -> bool:
    return not paddle.in_dynamic_mode()


def _set(attribute: str, value: Any) -> None:
    setattr(_tracer(), attribute, value)


# The graph comes first: a program that is being built has no tracer.
SETTINGS = (
    Setting(
        "static graph",
        "run",
        _is_static,
        lambda value: (paddle.enable_static if value else paddle.disable_static)(),
        False,
        lambda _: "on",
    ),
    Setting("grad mode", "run", lambda: _tracer()._has_grad, partial(_set, "_has_grad"), True, lambda _: "off"),
    Setting("default dtype", "call", paddle.get_default_dtype, paddle.set_default_dtype, "float32"),
    Setting(
        "amp", "call", lambda: _tracer()._amp_level, partial(_set, "_amp_level"), _OFF, lambda level: str(level.name)
    ),
    *(
        Setting(
            name, "process", partial(_flags.__getitem__, name), partial(_flags.__setitem__, name), False, lambda _: "on"
        )
        for name in _FLAGS
        if name in _flags.keys()  # noqa: SIM118 (no mapping of Python's)
    ),
)


def differing() -> str:
    """In words, what is set to something else than Paddle's own default; "" for nothing."""
    return ", ".join(in_words(SETTINGS[:1] if _is_static() else SETTINGS[1:]))


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


class Fixed(FixedState):
    process = ProcessState(SETTINGS, _core.default_cpu_generator, _seeded)


OfUser = partial(UsersState, Fixed.process)
