"""What --probe-self names, and what goes with --probe-standard=self."""

from __future__ import annotations

from pytest_probe.model.run import RECORDED
from pytest_probe.option_types import Given, Names
from pytest_probe.options import ACCURACY, SELF
from pytest_probe.settings import RawOptions, Settings

NAME = SELF
QUESTIONS = ("wider", "cpu", "smooth", "finite")


class Asked(Names):
    """Names of questions, in the order in which they are asked; none of them for all."""

    def __init__(self) -> None:
        super().__init__(*QUESTIONS)

    def read(self, given: Given) -> tuple[str, ...]:
        named = super().read(given)
        return tuple(name for name in QUESTIONS if name in named)


def check(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError without the standard that asks them."""
    if settings.standard != NAME:
        raise options["self"].wrong(f"it names questions of --probe-standard={NAME}: give that standard as well")


def conflicts(settings: Settings) -> list[str]:
    """The options that need a reference, other calls or no device."""
    fits = {
        "device": RECORDED not in settings.devices,
        "against": settings.against is None,
        "against-call": settings.against_call is None,
        "against-framework": settings.against_framework is None,
        "benchmark": settings.benchmark is None,
        "compile": not settings.compile,
        "framework": settings.framework is None,
        "reference-framework": settings.reference_framework is None,
        "fuzz": settings.fuzz is None,
        "mode": settings.mode == (ACCURACY,),
        "outputs": settings.outputs is None,
        "worth": not settings.worth,
    }
    return [name for name, fit in fits.items() if not fit]
