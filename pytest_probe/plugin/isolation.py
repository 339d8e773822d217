"""--probe-isolate: cases run in one process of their own, which is replaced when it dies.

That process is a worker of pytest-xdist's, the only one. It alone imports a framework: what it says of itself goes into
a file, since a second import would cost as much as a small run.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_probe.core.whole_file import replacing
from pytest_probe.errors import ProbeError, SettingsError
from pytest_probe.plugin.session import Probe

if TYPE_CHECKING:
    from pytest_probe.plugin.reporting import Reporting

OPTION = "--probe-isolate"
FILE = "described.json"


class Described(msgspec.Struct, frozen=True):
    """What a worker says of its devices, one a framework; trouble: why it cannot."""

    devices: list[dict[str, str]] = []
    trouble: str = ""


def use_one_worker(config: pytest.Config) -> None:
    """Before pytest-xdist reads its own options. Raises UsageError."""
    option = config.option
    if not hasattr(option, "numprocesses"):
        wanted = "it needs pytest-xdist: pip install 'pytest-probe[parallel]'"
        raise pytest.UsageError(str(SettingsError(OPTION, True, wanted)))
    if option.numprocesses or option.tx:
        wanted = "under -n each worker is a process of its own already; leave one of the two out"
        raise pytest.UsageError(str(SettingsError(OPTION, True, wanted)))
    option.numprocesses = 1


class InWorker:
    """Says what its devices are, before anything is collected."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        folder = self._probe.running_folder
        assert folder is not None
        try:
            said = Described(self._probe.described())
        except ProbeError as error:
            said = Described(trouble=str(error))
        with suppress(OSError), replacing(folder / FILE) as temporary:
            temporary.write_bytes(msgspec.json.encode(said))


class InController:
    """Takes over what the worker says."""

    def __init__(self, probe: Probe, reporting: Reporting, folder: Path) -> None:
        self._probe = probe
        self._reporting = reporting
        self._path = folder / FILE
        folder.mkdir(parents=True, exist_ok=True)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["probe_isolated"] = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self) -> None:
        if not self._path.exists():
            return
        said = msgspec.json.decode(self._path.read_bytes(), type=Described)
        self._path.unlink()
        if said.trouble:
            raise pytest.UsageError(said.trouble)
        self._reporting.told(said.devices)
