"""Before a run on a cluster: is it there, do its nodes fit, and can they read what the cases need?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_probe.errors import SettingsError
from pytest_probe.features.cluster.controller import Cluster
from pytest_probe.model.collective import RankPool
from pytest_probe.options import NAMED
from pytest_probe.plugin.feature import Feature, Machines
from pytest_probe.plugin.session import Probe
from pytest_probe.plugin.xdist import is_worker
from pytest_probe.system import archive

if TYPE_CHECKING:
    from pytest_probe.features.cluster.ray_pool import RayPool

_OPTION = NAMED["cluster"].flag
# Of a dump's files, to nodes that cannot read them at the same path.
SENT_BYTES = 2 * 10**9


class OnCluster(Feature):
    """In the process that collects, and in those of the hosts."""

    def __init__(self, probe: Probe) -> None:
        super().__init__(probe)
        self._cluster: Cluster | None = None

    @property
    def machines(self) -> Machines | None:
        config = self.probe.config
        return None if is_worker(config) or config.option.collectonly else self

    def prepare(self) -> None:
        """Connect to the cluster, and start its hosts while this process goes on. Raises SettingsError."""
        if self.machines is not None:
            from pytest_probe.features.cluster.ray_pool import RayPool

            settings = self.probe.settings
            assert settings.cluster is not None
            pool = RayPool(*settings.cluster, one_a_node=settings.times)
            try:
                self._cluster = Cluster(self.probe, pool, _unreadable_dumps(self.probe, pool))
            except BaseException:
                pool.end()
                raise
            self.probe.config.pluginmanager.register(self._cluster, "probe-cluster")

    def devices(self) -> list[dict[str, str]]:
        assert self._cluster is not None
        return self._cluster.devices()

    @property
    def rank_pool(self) -> RankPool:
        assert self._cluster is not None
        return self._cluster.ranks


def refuse_workers(config: pytest.Config) -> None:
    """Raises UsageError under -n."""
    option = config.option
    if option.probe_isolate:  # the settings refuse both
        return
    if getattr(option, "numprocesses", None) or getattr(option, "tx", None):
        wanted = "-n starts processes on this machine, and a cluster has its own; leave one of the two out"
        raise pytest.UsageError(str(SettingsError(_OPTION, option.probe_cluster or True, wanted)))


def _unreadable_dumps(probe: Probe, pool: RayPool) -> frozenset[Path]:
    """The dumps whose files some node cannot read, so that they go with the cases. Raises SettingsError where that is
    too much."""
    # The files on the disk, dumps or their archives, and the folders of tensors that the run reads.
    files: dict[Path, Path] = {}
    needed: dict[Path, list[Path]] = {}
    for _, dump in probe.dumps.readable():
        place = archive.split(dump.path)
        files[dump.path], needed[dump.path] = dump.path if place is None else place[0], []
        if probe.settings.inputs not in ("generated", "exact") and place is None:
            needed[dump.path] = [each for each in (*dump.data_dirs, *dump.gradient_dirs) if each.is_dir()]
    sizes = [(file, file.stat().st_size) for file in dict.fromkeys(files.values())]
    missing = pool.unreadable(sizes, [folder for folders in needed.values() for folder in folders])
    found = set()
    for path, folders in needed.items():
        unread = next((place for place in (files[path], *folders) if place in missing), None)
        if unread is None:
            continue
        inside = (file for folder in folders for file in folder.iterdir() if file.is_file())
        size = sum(file.stat().st_size for file in (files[path], *inside))
        if size > SENT_BYTES:
            wanted = (
                f"node {missing[unread]} cannot read it, and its {size / 1e9:.3g} GB are more than the "
                f"{SENT_BYTES / 1e9:g} GB that are sent; put it where all nodes have the same path"
            )
            raise SettingsError(NAMED["dump"].flag, str(path), wanted)
        found.add(path)
    return frozenset(found)
