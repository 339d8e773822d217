"""What options may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pytest_probe.errors import SettingsError
from pytest_probe.system.decoding import one_of

if TYPE_CHECKING:
    from pytest_probe.model.dump import Direction

DTYPE_CHOICES = ("recorded", "float64", "float32", "float16", "bfloat16")
INPUTS = ("auto", "generated", "stored")
DIRECTION_CHOICES: Mapping[str, tuple[Direction, ...]] = {
    "both": ("forward", "backward"),
    "forward": ("forward",),
    "backward": ("backward",),
}
ALONE = ("auto", "none")
SAVE = ("failing", "all")
# What --probe-gate compares with the baseline.
METRICS, BITS = "metrics", "bits"
# What --probe-mode asks for.
ACCURACY, TIME, MEMORY = "acc", "time", "mem"


def check_name(option: str, value: str, choices: Iterable[str]) -> str:
    """The value, where it is one of the choices. Raises SettingsError with the closest of them otherwise."""
    choices = tuple(choices)
    if value in choices:
        return value
    raise SettingsError(option, value, one_of(choices, value))
