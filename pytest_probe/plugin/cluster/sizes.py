"""How many bytes groups of items take while they run."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_probe import inputs
from pytest_probe.errors import RecordError
from pytest_probe.execution.cost import shapes_of
from pytest_probe.plugin.items import ProbeItem


class Sizes:
    """Of records with equal shapes the first one is decoded."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {}

    def of_groups(self, groups: Iterable[Iterable[ProbeItem]]) -> list[int]:
        """Bytes of each group, roughly: of its largest item."""
        return [max(map(self._of, group)) for group in groups]

    def _of(self, item: ProbeItem) -> int:
        case = item.case
        key = case.api, case.dtype, shapes_of(case.record.forward)
        if key[2] is None:
            return _needed(item)
        if key not in self._known:
            self._known[key] = _needed(item)
        return self._known[key]


def _needed(item: ProbeItem) -> int:
    """What cannot be decoded takes nothing."""
    try:
        return inputs.memory_needed(item.case.dump.decode(item.case.record), item.case.dtype)
    except RecordError:
        return 0
