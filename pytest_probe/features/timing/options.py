"""Options that a run with measurements refuses, and the options that a time limit needs."""

from __future__ import annotations

from pytest_probe.settings import RawOptions, Settings


def check_mode(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError where calls are to be measured that are not the device's own."""
    for name, asked in (("fuzz", settings.fuzz is not None), ("emulate", settings.emulate)):
        if settings.measures and asked:
            measuring = f"{options['mode'].name}={','.join(settings.mode)}"
            raise options[name].wrong(f"with {measuring} the device's own calls are measured; leave it out")


def check_limit(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError where there are no times to limit, or none to compare with. A limit in an ini file is for
    the runs that measure times."""
    limit = options["time-limit"]
    if not settings.times and not limit.from_ini:
        raise limit.wrong("no times are measured: add --probe-mode=acc,time")
    if settings.times and settings.benchmark is None and settings.baseline is None:
        raise limit.wrong("it needs times to compare with: add --probe-benchmark=DIR or --probe-baseline=FILE")
