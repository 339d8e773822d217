"""A result on its way from a worker: one value of bytes.

pytest-xdist serializes reports in Python, value by value, and two thirds of the values of an item's reports are ours.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from pytest_probe.reports.junit import PREFIX, others

PACKED = "probe_packed"
_ATTRIBUTES = ("probe", "probe_checks")


class Packs:
    """In a worker. Elsewhere reports are serialized for other plugins, which write them as JSON."""

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
        data = yield
        if data is not None:
            with suppress(OverflowError, TypeError, ValueError):  # an integer beyond 64 bits
                pack(data)
        return data


class Unpacks:
    """In the controller."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_from_serializable(self, data: dict[str, Any]) -> None:
        unpack(data)


def pack(data: dict[str, Any]) -> None:
    """Raises what msgspec raises for a value that it cannot take; data is as it was then."""
    properties = data.get("user_properties", [])
    ours = [pair for pair in properties if pair[0].startswith(PREFIX)]
    attributes = {name: data[name] for name in _ATTRIBUTES if name in data}
    if not (ours or attributes):
        return
    data[PACKED] = msgspec.msgpack.encode((attributes, ours))
    data["user_properties"] = others(properties)
    for name in attributes:
        del data[name]


def unpack(data: dict[str, Any]) -> None:
    """What pack was given."""
    if PACKED not in data:
        return
    attributes, ours = msgspec.msgpack.decode(data.pop(PACKED))
    data.update(attributes)
    data["user_properties"] = [*data["user_properties"], *map(tuple, ours)]
