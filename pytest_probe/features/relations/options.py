"""What --probe-relations names, and what goes with it."""

from __future__ import annotations

from pytest_probe.model.run import RECORDED
from pytest_probe.option_types import Given, Names
from pytest_probe.settings import RawOptions, Settings

# In the order in which they are asked: what hangs on other memory, or on chance, is known before bits are compared.
NAMES = ("fresh", "guard", "again", "out", "inplace", "alias", "batch", "order", "layout", "stream")
_ALL = "all"


class Asked(Names):
    """Names of relations; all of them."""

    def __init__(self) -> None:
        super().__init__(*NAMES, _ALL)

    def read(self, given: Given) -> tuple[str, ...]:
        named = super().read(given)
        return NAMES if _ALL in named else tuple(name for name in NAMES if name in named)


def check(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError for an option with which no call is made again, or no result compared."""
    if not settings.relations:
        return
    for name, fits, words in (
        ("device", RECORDED not in settings.values["devices"], "a device makes each call again"),
        ("against", settings.against is None, "a device makes each call again"),
        ("outputs", settings.outputs is None, "a device makes each call again"),
        ("against-call", settings.against_call is None, "one implementation is asked"),
        ("mode", settings.judges, "results are compared: add acc"),
    ):
        if not fits:
            raise options[name].wrong(f"with --probe-relations {words}; leave one of the two out")
