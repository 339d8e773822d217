"""Collectives of paddle.distributed, and how their groups look in a dump."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import paddle.distributed as dist

from pytest_probe.capture.snapshot import Tree

_NAMES = (
    "all_reduce all_gather broadcast reduce reduce_scatter alltoall alltoall_single scatter gather send recv isend "
    "irecv barrier batch_isend_irecv".split()
)
GROUP: Any = dist.communication.group.Group


def collectives() -> Iterator[tuple[str, Any]]:
    """By the names of their records. They write to tensors without Paddle counting it."""
    for name in _NAMES:
        if hasattr(dist, name):
            yield f"Distributed.{name}", getattr(dist, name)


def group(value: Any) -> Tree:
    return {"type": "paddle.ProcessGroup", "group_ranks": list(value.ranks)}
