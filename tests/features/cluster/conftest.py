"""A cluster of Ray's own in one machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

# What the small node may take, in bytes.
SMALL = 64 * 2**20


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two nodes with a CPU each; a third one is small, and has what it calls NPUs alone."""
    from ray.cluster_utils import Cluster

    store: Any = {"object_store_memory": 100 * 2**20}
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **store})
    found.add_node(num_cpus=1, **store)
    found.add_node(num_cpus=0, resources={"NPU": 2}, memory=SMALL, **store)
    yield found
    found.shutdown()


@pytest.fixture
def address(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
