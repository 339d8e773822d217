"""Messages that come over streams: they lie in a folder of this process's own, and are taken as from a shared one."""

from __future__ import annotations

from pathlib import Path

from pytest_probe.capture.online.address import HostPort
from pytest_probe.features.online.folder_source import FolderSource
from pytest_probe.features.online.receiver import Receiver

# Reasons that are kept: anybody can send what is no message.
_REASONS = 1000


class StreamSource(FolderSource):
    """Listens at a port. Raises SettingsError where that is impossible, OSError where the folder cannot be written."""

    def __init__(self, online: HostPort, folder: Path, *, limit: int, keys: tuple[bytes, bytes, bytes] | None) -> None:
        super().__init__(folder)
        self._receiver = Receiver(online, folder, limit=limit, keys=keys, refused=self._refuse)

    @property
    def port(self) -> int:
        return self._receiver.port

    def _refuse(self, why: str) -> None:
        if len(self.refused) < _REASONS:
            self.refused.append(why)

    def close(self) -> None:
        self._receiver.close()
        super().close()
