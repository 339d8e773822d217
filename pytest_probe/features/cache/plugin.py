"""--probe-cache: numbers of the reference side outlast the run."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_probe.features.cache.cache import Cache
from pytest_probe.plugin.feature import Feature


class References(Feature):
    @property
    def conditions(self) -> Mapping[str, Cache]:
        assert self.probe.settings.cache is not None
        return {"cache": Cache(*self.probe.settings.cache)}
