"""Workers say what their devices are: the process that hands out items imports no framework, which takes seconds.

What a worker says goes into a file, before it collects. So a device that is unknown ends the run before a test runs.

The controller numbers workers, and a worker finds its device of a kind by its number. Only some features need the
devices before workers start.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_probe.errors import ProbeError
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.settings import blamed
from pytest_probe.system.files import replacing

ASKED = "probe_says"


class Described(msgspec.Struct, frozen=True):
    """What a worker says of its device, once a framework; name is the one that the run has for it, None for the
    default; trouble: why it cannot."""

    name: str | None = None
    devices: list[dict[str, str]] = []
    trouble: str = ""


def _file(folder: Path, worker: str) -> Path:
    return folder / f"{worker}-described.json"


class DeviceReportWriter:
    """Says what its device is, before anything is collected."""

    def __init__(self, probe: ProcessSession) -> None:
        self._probe = probe

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        folder = self._probe.running_folder
        assert folder is not None
        try:
            said = Described(self._probe.device, self._probe.described())
        except ProbeError as error:
            said = Described(trouble=blamed(session.config, error))
        config: Any = session.config
        with suppress(OSError), replacing(_file(folder, config.workerinput["workerid"])) as temporary:
            temporary.write_bytes(msgspec.json.encode(said))


class DeviceReportReader:
    """Hands over what the workers say: all of it once the last of them is ready, or the first result is there."""

    def __init__(self, probe: ProcessSession, know: Callable[[list[dict[str, str]]], None], folder: Path) -> None:
        self._probe = probe
        self._know = know
        self._folder = folder
        self._waiting = len(probe.config.getoption("tx"))
        self._said: dict[str, list[dict[str, str]]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[ASKED] = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        self._waiting -= 1
        worker: str = node.workerinput["workerid"]
        path = _file(self._folder, worker)
        if path.exists():
            said = msgspec.json.decode(path.read_bytes(), type=Described)
            path.unlink()
            if said.trouble:
                raise pytest.UsageError(said.trouble)
            # What is said of this worker's death names its device.
            node.workerinput["probe_device"] = said.name
            self._probe.know_names(said.name, said.devices)
            self._said[worker] = said.devices
        if self._waiting == 0:
            self._hand_over()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self) -> None:
        if self._waiting > 0:
            self._waiting = 0
            self._hand_over()

    def _hand_over(self) -> None:
        """Each device once, in the order of the workers: "gw2" before "gw10"."""
        found: list[dict[str, str]] = []
        for worker in sorted(self._said, key=lambda name: (len(name), name)):
            found += [device for device in self._said[worker] if device not in found]
        try:
            self._know(found)
        except ProbeError as error:
            raise pytest.UsageError(blamed(self._probe.config, error)) from None
