"""What goes with --probe-outputs."""

from __future__ import annotations

from pytest_probe.settings import RawOptions, Settings, on_no_device, refuse


def check(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError for an option that needs a device, or other items."""
    refuse(
        options,
        "--probe-outputs judges what two folders hold, and no device runs; leave it out",
        **on_no_device(settings),
        fuzz=settings.fuzz is None,
        unique=not settings.unique,
        against=settings.against is None,
        against_call=settings.against_call is None,
        baseline=settings.baseline is None,
        save=settings.save is None,
    )
