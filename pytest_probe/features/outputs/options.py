"""What goes with --probe-outputs."""

from __future__ import annotations

from pytest_probe.model.run import RECORDED
from pytest_probe.options import ACCURACY
from pytest_probe.settings import RawOptions, Settings


def check(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError for an option that needs a device, or other items."""
    for name, fits in (
        ("device", set(settings.values["devices"]) <= {RECORDED}),
        ("dtype", settings.selection.dtypes == (None,)),
        ("repeat", settings.repeat == 1),
        ("mode", settings.mode == (ACCURACY,)),
        ("emulate", not settings.emulate),
        ("fuzz", settings.fuzz is None),
        ("unique", not settings.unique),
        ("against", settings.against is None),
        ("against-call", settings.against_call is None),
        ("baseline", settings.baseline is None),
        ("save", settings.save is None),
    ):
        if not fits:
            raise options[name].wrong("--probe-outputs judges what two folders hold, and no device runs; leave it out")
