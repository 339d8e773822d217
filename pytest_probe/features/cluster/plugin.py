"""Before a run on a cluster: is it there?"""

from __future__ import annotations

import pytest

from pytest_probe.errors import SettingsError
from pytest_probe.features.cluster.controller import Cluster
from pytest_probe.model.collective import RankPool
from pytest_probe.options import NAMED
from pytest_probe.plugin.feature import Feature, Machines
from pytest_probe.plugin.session import Probe
from pytest_probe.plugin.xdist import is_worker

_OPTION = NAMED["cluster"].flag


class OnCluster(Feature):
    """In the process that collects, and in those of the shards."""

    def __init__(self, probe: Probe) -> None:
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


def refuse_workers(config: pytest.Config) -> None:
    """Raises UsageError under -n."""
    option = config.option
    if option.probe_isolate:  # the settings refuse both
        return
    if getattr(option, "numprocesses", None) or getattr(option, "tx", None):
        wanted = "-n starts processes on this machine, and a cluster has its own; leave one of the two out"
        raise pytest.UsageError(str(SettingsError(_OPTION, option.probe_cluster or True, wanted)))
