"""What goes with --probe-worth."""

from __future__ import annotations

from pytest_probe.settings import RawOptions, Settings


def check(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError for an option with which no output is judged by the standard."""
    if not settings.worth:
        return
    for name, fits, words in (
        ("mode", settings.judges, "results are judged: add acc"),
        ("against", settings.against is None, "each case is judged by a standard"),
        ("outputs", settings.outputs is None, "each case is judged by a standard"),
    ):
        if not fits:
            raise options[name].wrong(f"with --probe-worth {words}; leave one of the two out")
