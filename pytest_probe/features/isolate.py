"""--probe-isolate: cases run in one process of their own, which is replaced when it dies.

That process is a worker of pytest-xdist's, the only one.
"""

from __future__ import annotations

import pytest

from pytest_probe.errors import SettingsError
from pytest_probe.plugin.feature import Feature

_OPTION = "--probe-isolate"


class Isolated(Feature):
    traits = frozenset({"in order"})


def use_one_worker(config: pytest.Config) -> None:
    """Ask for one worker, before pytest-xdist reads its own options. Raises UsageError."""
    option = config.option
    if not hasattr(option, "numprocesses"):
        wanted = "it needs pytest-xdist: pip install 'pytest-probe[parallel]'"
        raise pytest.UsageError(str(SettingsError(_OPTION, True, wanted)))
    option.numprocesses = 1
