"""What a capture sends with: one connection to the checking host for all its steps."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.online.address import NEEDS_GRPC, Folder, HostPort
from pytest_probe.capture.online.frames import certificates
from pytest_probe.capture.online.message import Goodbye, Sender
from pytest_probe.capture.online.sending import OnlineFiles, Pace, Transport
from pytest_probe.capture.online.shared_folder import SharedFolder
from pytest_probe.capture.ranks import ANY_NUMBER
from pytest_probe.capture.writer import EntrySource
from pytest_probe.errors import SettingsError


class Connection:
    """Made when the capture is, opened before its first step."""

    def __init__(self, config: CaptureConfig, source: EntrySource) -> None:
        self._config = config
        self._source = source
        self._transport: Transport | None = None
        self._pace = Pace(config.policy, lambda: self._transport is not None and self._transport.full)
        self._sender = Sender(secrets.token_hex(4), 0, 1)
        self._files: list[OnlineFiles] = []
        self._not_gone = 0

    def open(self, rank: int | None, ranks: int) -> None:
        """Connect, once. ranks: how many train together. Raises SettingsError where the shared folder cannot be
        written."""
        wanted = self._config.ranks
        if wanted and ranks < ANY_NUMBER:
            ranks = sum(any(number in each for each in wanted) for number in range(ranks))
        # Programs learn their rank late.
        self._sender = Sender(self._sender.run, rank or 0, max(ranks, 1))
        if self._transport is None:
            self._transport = self._opened()

    def _opened(self) -> Transport:
        config, online = self._config, self._config.online
        waits = config.policy == "block"
        if isinstance(online, Folder):
            try:
                return SharedFolder(online.path, self._sender.run, limit=config.buffer, waits=waits)
            except OSError as error:
                reason = error.strerror or str(error)
                raise SettingsError("online", str(online), f"give a folder that can be written ({reason})") from None
        return _stream(config, online, self._sender)

    def wants(self, api: str) -> bool:
        """Is this call of an API ("Functional.linear") sent?"""
        return self._pace.wants(api)

    def files(self, header: dict[str, Any], step: int) -> OnlineFiles:
        """Those of a step."""
        assert self._transport is not None
        made = OnlineFiles(header, self._sender, step, self._source, self._transport)
        self._files.append(made)
        return made

    def left_out(self) -> str:
        """ "; 12 calls were left out (online_policy sample)"; "" where none were."""
        count = self._pace.left_out + self._lost() + self._not_gone
        return f"; {count:,} entries were left out (online_policy {self._config.policy})" if count else ""

    def _lost(self) -> int:
        return sum(each.lost for each in self._files)

    def close(self) -> None:
        """Say goodbye."""
        transport, self._transport = self._transport, None
        if transport is not None:
            sent = sum(each.sent for each in self._files)
            self._not_gone = transport.close(Goodbye(self._sender, sent, self._pace.left_out + self._lost()))


def _stream(config: CaptureConfig, online: HostPort | None, sender: Sender) -> Transport:
    """Raises SettingsError where gRPC is not installed, and for certificates that cannot be used."""
    assert online is not None
    try:
        from pytest_probe.capture.online.stream import Stream
    except ImportError:
        raise SettingsError("online", str(online), NEEDS_GRPC) from None
    keys = certificates(Path(config.tls), "client") if config.tls else None
    return Stream(online, sender, limit=config.buffer, waits=config.policy == "block", keys=keys)
