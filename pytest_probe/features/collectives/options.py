"""What does not go with --probe-ranks."""

from __future__ import annotations

from pytest_probe.settings import RawOptions, Settings


def check(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError for another machine's processes."""
    if settings.ranks is not None and settings.cluster is not None:
        wanted = "its processes run on this machine, and those of --probe-cluster on others; leave one of the two out"
        raise options["ranks"].wrong(wanted)
