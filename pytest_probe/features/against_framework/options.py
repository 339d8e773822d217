"""What goes with --probe-against-framework."""

from __future__ import annotations

from pytest_probe.model.run import RECORDED
from pytest_probe.options import ACCURACY
from pytest_probe.settings import RawOptions, Settings


def check(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError for an option that has no device, no recorded call, or no verdict."""
    for name, fits, words in (
        ("against", settings.against is None, "it compares two dumps"),
        ("framework", settings.framework is None, "A is the record's own framework"),
        ("reference-framework", settings.reference_framework is None, "float64 is the record's own framework's"),
        ("against-call", settings.against_call is None, "two implementations are compared, no three"),
        ("device", RECORDED not in settings.devices, "a device makes both calls"),
        ("fuzz", settings.fuzz is None, "recorded calls are compared, no drawn ones"),
        ("mode", settings.mode == (ACCURACY,), "results are compared, no times"),
        ("benchmark", settings.benchmark is None, "both sides are in one run"),
        ("baseline", settings.baseline is None, "a baseline has one side"),
    ):
        if not fits:
            raise options[name].wrong(f"with --probe-against-framework {words}; leave it out")
