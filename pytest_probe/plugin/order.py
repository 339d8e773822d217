"""The order in which items run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import pytest

from pytest_probe.plugin.items import NoticeItem


def together(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Each item where it stands, but those that share a run right behind the first of them."""
    groups: dict[object, list[pytest.Item]] = {}
    for item in items:
        key = item.run_key if isinstance(item, NoticeItem) else id(item)
        groups.setdefault(key, []).append(item)
    return chain.from_iterable(groups.values())
