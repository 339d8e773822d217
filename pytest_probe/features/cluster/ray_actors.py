"""What Ray's actors of a run have in common, those of hosts and those of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

# Methods of this group run while another method of the actor waits: it can be closed, or asked, meanwhile.
BESIDE = "beside"
# Seconds that actors have to clean up behind them.
_CLOSES = 5.0


def on_node(node: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id=node, soft=False)


def end_actors(actors: Sequence[Any]) -> None:
    """Let each close what it keeps, and end it."""
    if not actors:  # Ray would begin again to wait for none
        return
    with suppress(RayError, RuntimeError):
        closed = [actor.close.remote() for actor in actors]
        ray.wait(closed, num_returns=len(closed), timeout=_CLOSES)
    for actor in actors:
        with suppress(RayError, RuntimeError):
            ray.kill(actor)


def last_line(error: BaseException) -> str:
    """The last line of an error on a node, whose first lines are a traceback."""
    return next(line for line in reversed(str(error).splitlines() or [type(error).__name__]) if line.strip())
