"""Reports travel from a worker to the controller as one string of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.plugin.packing import PACKED, InController, InWorker, mark


def packed(report: pytest.TestReport) -> Any:
    """What a worker sends."""
    hook = InWorker().pytest_report_to_serializable(report)
    next(hook)
    try:
        hook.send({**report._to_json(), "$report_type": "TestReport"})
    except StopIteration as end:
        return end.value
    raise AssertionError


def received(config: pytest.Config, data: dict[str, Any]) -> object:
    """What a controller makes of it."""
    config.pluginmanager.register(controller := InController())
    try:
        return config.hook.pytest_report_from_serializable(config=config, data=data)
    finally:
        config.pluginmanager.unregister(controller)


def made(longrepr: Any = None, **more: Any) -> pytest.TestReport:
    report = pytest.TestReport(
        "dump.json::a", ("dump.json", 3, "a "), {"a": 1}, "skipped", longrepr, "call", duration=0.5
    )
    report.user_properties = [("probe.max_ulp", 1.5), ("probe.id", "dump.json::a")]
    report.sections = [("Captured stdout call", "text")]
    vars(report).update(more)
    mark(report)
    return report


@pytest.mark.parametrize("longrepr", [None, ("dump.json", 1, "Skipped: why"), "text"])
def test_a_report_arrives_as_it_was_sent(pytestconfig: pytest.Config, longrepr: Any) -> None:
    report = made(longrepr, probe={"id": "dump.json::a", "outputs": [], "duration": float("inf")})
    data = packed(report)
    assert set(data) == {"$report_type", PACKED}
    arrived = received(pytestconfig, {**data, "worker_id": "gw0"})
    assert isinstance(arrived, pytest.TestReport)
    # By its type pytest knows its reports, and leaves it there.
    assert vars(arrived) == {**vars(report), "worker_id": "gw0", "$report_type": "TestReport"}


def test_what_msgpack_does_not_take_goes_as_it_is() -> None:
    """It is for pytest-xdist to say what is wrong with it."""
    report = made(strange=np.float32(1.5))
    assert PACKED not in packed(report)
    assert packed(report)["strange"] == 1.5


def test_reports_of_others_stay_as_they_are(pytestconfig: pytest.Config) -> None:
    report = made()
    del vars(report)["probe_packs"]
    data = packed(report)
    assert PACKED not in data
    arrived = received(pytestconfig, data)
    assert isinstance(arrived, pytest.TestReport)
    assert arrived.longrepr is None
