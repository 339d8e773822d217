"""What the processes on the cluster begin with: this process's command line, settings and paths."""

from __future__ import annotations

import os
import sys
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_probe.features.cluster.messages import Start
from pytest_probe.plugin.session import Probe


def start_of(probe: Probe) -> Start:
    """Of this process's configuration."""
    config = probe.config
    conftests = [
        os.path.dirname(plugin.__file__)
        for plugin in config.pluginmanager.get_plugins()
        if os.path.basename(getattr(plugin, "__file__", None) or "") == "conftest.py"
    ]
    pytests = {key: value for key, value in os.environ.items() if key.startswith(("PYTEST_", "PYTHONPATH"))}
    return Start(
        tuple(map(str, config.invocation_params.args)),
        str(config.invocation_params.dir),
        str(config.rootpath),
        tuple(sys.path),
        tuple(dict.fromkeys(conftests)),
        {**pytests, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")},
        # What was given as a path on the command line goes with the cases, and an earlier run counts here alone.
        replace(probe.settings, values={**probe.settings.values, "dumps": (), "resume": False}, dump_files=()),
        _told_workers(config),
    )


def _told_workers(config: pytest.Config) -> dict[str, Any]:
    """What pytest-xdist would tell its workers, with what other plugins would add."""
    node = SimpleNamespace(workerinput={}, config=config, gateway=None)
    given: dict[str, Any] = node.workerinput
    given["testrunuid"] = uuid.uuid4().hex
    given["mainargv"] = list(sys.argv)
    if hasattr(config.hook, "pytest_configure_node"):
        config.hook.pytest_configure_node(node=node)
    return given
