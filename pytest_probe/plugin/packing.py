"""Reports of our items on their way from a worker to the controller.

execnet reads and writes each string of a report in Python, which is most of what an item costs the controller. As one
string of bytes a report costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec
import pytest

# The key of a report that is one string of bytes, beside the one by which pytest knows its reports.
PACKED = "probe_packed"
MARK = "probe_packs"
TYPE = "$report_type"


def mark(report: pytest.TestReport) -> None:
    """Let this report travel as bytes."""
    setattr(report, MARK, True)


def is_marked(report: object) -> bool:
    """Was it marked? The reports of our items are."""
    return hasattr(report, MARK)


class InWorker:
    """Packs what was marked; what msgpack does not take stays as it is."""

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self, report: object) -> Generator[None, Any, Any]:
        data = yield
        if data is None or not is_marked(report):
            return data
        try:
            return {TYPE: data[TYPE], PACKED: msgspec.msgpack.encode(data)}
        except (TypeError, ValueError, OverflowError):
            return data


class InController:
    """Unpacks it again."""

    @pytest.hookimpl(wrapper=True)
    def pytest_report_from_serializable(self, data: dict[str, Any]) -> Generator[None, object, object]:
        packed = data.pop(PACKED, None)
        if packed is not None:
            # The worker's number and the like were added beside it, and count.
            for key, value in _with_tuples(msgspec.msgpack.decode(packed)).items():
                data.setdefault(key, value)
        return (yield)


def _with_tuples(data: dict[str, Any]) -> dict[str, Any]:
    """A report as pytest makes it, with tuples in the places where msgpack has lists."""
    data["location"] = tuple(data["location"])
    for key in ("user_properties", "sections"):
        data[key] = [tuple(pair) for pair in data[key]]
    if isinstance(data["longrepr"], list):
        data["longrepr"] = tuple(data["longrepr"])
    return data
