"""What goes with --probe-against."""

from __future__ import annotations

from pytest_probe.features.against.standards import CLOSENESS
from pytest_probe.settings import RawOptions, Settings, on_no_device, refuse


def check(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError for an option that needs a device, or other items."""
    refuse(
        options,
        "with --probe-against it compares what two dumps stored, and no device runs; leave it out",
        **on_no_device(settings),
        inputs=settings.inputs not in ("generated", "exact"),
        fuzz=settings.fuzz is None,
        unique=not settings.unique,
        benchmark=settings.benchmark is None,
        baseline=settings.baseline is None,
    )
    if settings.standard not in ("auto", *CLOSENESS):
        wanted = f"with --probe-against give auto, {', '.join(CLOSENESS)}"
        raise options["standard"].wrong(wanted)


def check_standard(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError where a standard that compares two dumps has one alone."""
    if settings.standard in CLOSENESS and settings.standard != "exact" and settings.against is None:
        raise options["standard"].wrong("it compares two dumps: add --probe-against=PATH")
