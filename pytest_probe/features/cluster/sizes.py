"""How many bytes groups of items take while they run."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_probe import inputs
from pytest_probe.check.cost import ByShapes
from pytest_probe.errors import RecordError
from pytest_probe.model.case import Case
from pytest_probe.plugin.items import ProbeItem

# Bytes from which on a case is decoded itself: others of its shapes may have been recorded in narrower dtypes.
LARGE = 2**30


def sizes_of(groups: Iterable[Iterable[ProbeItem]]) -> list[int]:
    """Bytes of each group, roughly: of its largest item."""
    known = ByShapes(_needed)

    def size(case: Case) -> int:
        found = known.of(case)
        return found if found < LARGE else _needed(case)

    return [max(size(item.case) for item in group) for group in groups]


def _needed(case: Case) -> int:
    """What cannot be decoded takes nothing."""
    try:
        return inputs.memory_needed(case.dump.decode(case.record), case.dtype)
    except RecordError:
        return 0
