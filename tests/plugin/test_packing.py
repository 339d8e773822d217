"""What a worker's reports carry arrives as it was sent."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pytest_probe.plugin.packing import PACKED, pack, unpack

RESULT = {"id": "a", "outputs": [{"metrics": {"max_abs": float("inf")}, "shape": [2, 3]}], "gate": None}


def report(**more: Any) -> dict[str, Any]:
    own = [("by the test", (1, 2)), ("probe.id", "a"), ("probe.max_ulp", 0.5)]
    return {"when": "call", "user_properties": own, "probe": RESULT, **more}


def test_there_and_back() -> None:
    data = report(probe_checks=[RESULT, RESULT])
    expected = copy.deepcopy(data)
    pack(data)
    assert data.keys() == {"when", "user_properties", PACKED}
    assert data["user_properties"] == [("by the test", (1, 2))]
    assert isinstance(data[PACKED], bytes)
    unpack(data)
    assert data == expected


def test_reports_of_others_stay_as_they_are() -> None:
    data = {"when": "call", "user_properties": [("by the test", (1, 2))]}
    expected = copy.deepcopy(data)
    pack(data)
    assert data == expected
    unpack(data)
    assert data == expected


def test_what_cannot_be_packed_is_sent_as_it_is() -> None:
    data = report(probe={"value": 2**70})
    expected = copy.deepcopy(data)
    with pytest.raises(OverflowError):
        pack(data)
    assert data == expected
