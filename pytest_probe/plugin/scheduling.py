"""How pytest-xdist's controller hands out items that come costliest first. Imported under -n alone.

pytest-xdist's own `load` begins with an eighth of all items for each worker, in their order: the first one would get
all that is costly. Of `LoadScheduling` this uses the methods and attributes that its docstrings name, and one private
method, `_send_tests`, through which all items go to workers. Tried with pytest-xdist 3.6.1, 3.7.0 and 3.8.0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xdist.scheduler import LoadScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

# Work that a worker has ahead, in seconds, and in items: one runs, and the next has to be known.
AHEAD = 0.2
FEWEST, MOST = 4, 64
# What the ids of items that share a run differ in.
_DIRECTION = re.compile(r"\.(forward|backward)(?=\[[^\[\]]*\]$|$)")


class CostlyFirst(LoadScheduling):  # type: ignore[misc]
    """Gives each worker few items at a time, and items that share a run to the same one."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self.maxschedchunk = 2  # of the first items

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:
        if node.shutting_down:
            return
        if not self.pending:
            node.shutdown()
            return
        wanted = max(FEWEST, min(MOST, int(AHEAD / duration))) if duration > 0 else FEWEST
        ahead = len(self.node2pending[node])
        if ahead <= wanted // 2:
            self._send_tests(node, wanted - ahead)

    def _send_tests(self, node: WorkerController, num: int) -> None:
        while 0 < num < len(self.pending) and self._share(self.pending[num - 1], self.pending[num]):
            num += 1
        super()._send_tests(node, num)

    def _share(self, one: int, other: int) -> bool:
        assert self.collection is not None
        names = (self.collection[place] for place in (one, other))
        first, second = (_DIRECTION.sub("", name) for name in names)
        return first == second
