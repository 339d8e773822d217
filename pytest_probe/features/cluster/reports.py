"""This run's reports of what ran on the cluster, or could not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_probe.features.cluster.messages import Ran
from pytest_probe.model.verdict import Verdict
from pytest_probe.plugin.commands import item_command
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.session import Probe
from pytest_probe.plugin.xdist import passed, result_of, say


class Reports:
    """Hands reports to all that listen, as if the items had run here."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._config = probe.config

    def ran(self, item: ProbeItem, ran: Ran) -> None:
        """The reports of an item's run, as if it had run here."""
        hook = self._config.hook
        reports = [hook.pytest_report_from_serializable(config=self._config, data=data) for data in ran.reports]
        for last in reports[-1:]:
            last.probe_share = item.share
        self._report(item, reports)

    def decided(self, item: ProbeItem, verdict: Verdict, device: str | None) -> None:
        """What the controller says of a case that no process can."""
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", None, "call")
        command = item_command(self._probe, item.dump_path, item.name, item.case.dtype, device)
        result = result_of(self._probe, item.portable_id, verdict, device, item.folded)
        say(report, item.dump_path, result, command, device)
        self._report(item, [passed(report, "setup"), report, passed(report, "teardown")])

    def _report(self, item: ProbeItem, reports: Sequence[pytest.TestReport]) -> None:
        hook = self._config.hook
        if reports:  # none of an item that a plugin ran without reporting it
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
        if reports:
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
