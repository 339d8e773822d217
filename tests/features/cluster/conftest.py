"""A cluster of Ray's own in one machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

STORE: Any = {"object_store_memory": 100 * 2**20}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two nodes with a CPU each."""
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **STORE})
    found.add_node(num_cpus=1, **STORE)
    yield found
    found.shutdown()


@pytest.fixture
def address(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
