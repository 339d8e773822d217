"""The cluster of --probe-cluster, and what does not go with one."""

from __future__ import annotations

import importlib.util
import re

from pytest_probe.option_types import Given, Type
from pytest_probe.settings import RawOptions, Settings


class Address(Type):
    def read(self, given: Given) -> str | None:
        """Raises SettingsError also where Ray is not installed."""
        if not given.text:
            return None
        if not re.fullmatch(r"ray|ray://[^\s/]+:[0-9]{1,5}", given.text):
            raise given.wrong("give ray, or ray://HOST:PORT")
        if importlib.util.find_spec("ray") is None:
            raise given.wrong("it needs Ray, which is not installed: pip install 'pytest-probe[cluster]'")
        return given.text


def check_used(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError for what the command line says of a cluster, where there is none."""
    for name in ("cluster-resource", "cluster-ship"):
        given = options[name]
        if settings.cluster is None and given.is_set and not given.from_ini:
            raise given.wrong("it needs a cluster: add --probe-cluster=ray")
