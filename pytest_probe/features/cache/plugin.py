"""--probe-cache: numbers of the reference side outlast the run."""

from __future__ import annotations

from pytest_probe.features.cache.cache import Cache
from pytest_probe.plugin.feature import Feature


class References(Feature):
    @property
    def cache(self) -> Cache:
        assert self.probe.settings.cache is not None
        return Cache(*self.probe.settings.cache)
