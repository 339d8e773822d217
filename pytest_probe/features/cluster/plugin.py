"""Before a run on a cluster: is it there?"""

from __future__ import annotations

import re

from pytest_probe.features.cluster.controller import Cluster
from pytest_probe.model.collective import RankPool
from pytest_probe.option_types import Given, Type, missing_extra
from pytest_probe.plugin.feature import Feature, Machines
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.plugin.xdist import is_worker


class Address(Type):
    def read(self, given: Given) -> tuple[str, str | None] | None:
        """The address, and Ray's name for the devices."""
        text, keys = given.keys("resource")
        if not text:
            return None
        if not re.fullmatch(r"ray|ray://[^\s/]+:[0-9]{1,5}", text):
            raise given.wrong("give ray, or ray://HOST:PORT")
        if missing := missing_extra("ray", "cluster") or missing_extra("xdist", "cluster"):
            raise given.wrong(missing)
        return text, keys.get("resource")

    def plain(self, value: tuple[str, str | None] | None) -> str | None:
        return None if value is None else ",resource=".join(filter(None, value))


class OnCluster(Feature):
    """In the process that collects, and in those of the shards."""

    def __init__(self, probe: ProcessSession) -> None:
        super().__init__(probe)
        self._cluster: Cluster | None = None

    @property
    def machines(self) -> Machines | None:
        config = self.probe.config
        return None if is_worker(config) or config.option.collectonly else self

    def prepare(self) -> None:
        """Connect to the cluster. Raises SettingsError."""
        if self.machines is not None:
            from pytest_probe.features.cluster.ray_pool import RayPool

            probe, settings = self.probe, self.probe.settings
            assert settings.cluster is not None
            self._cluster = Cluster(probe, RayPool(*settings.cluster, one_a_node=settings.times))
            probe.config.pluginmanager.register(self._cluster, "probe-cluster")

    def devices(self) -> list[dict[str, str]]:
        assert self._cluster is not None
        return self._cluster.devices()

    @property
    def rank_pool(self) -> RankPool:
        """Processes of ranks on the cluster's devices."""
        assert self._cluster is not None
        return self._cluster.pool.ranks
