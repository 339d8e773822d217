"""What a capture sends with: the entries of a step on their way to the checking host, which calls the pace leaves out,
and one connection for all steps."""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.dump_files import encode_entry, waiting_tensors
from pytest_probe.capture.online.address import NEEDS_GRPC, Folder
from pytest_probe.capture.online.frames import certificates
from pytest_probe.capture.online.message import FILES, Entry, Goodbye, Sender
from pytest_probe.capture.online.shared_folder import SharedFolder
from pytest_probe.capture.ranks import ANY_NUMBER
from pytest_probe.capture.snapshot import NamedEntry
from pytest_probe.capture.writer import StepFiles
from pytest_probe.errors import SettingsError, Unsupported
from pytest_probe.numerics.dtypes import dtype_name
from pytest_probe.system.tensor_files.safetensors import DTYPES

# Of each API at least one of so many calls goes.
_RAREST = 4096


if TYPE_CHECKING:
    from pytest_probe.capture.hooks import CallHooks
    from pytest_probe.capture.online.stream import Stream

# Takes messages to the checking host, and never raises. full: would one find no room now? put sends it, or waits for
# room where the policy is to wait; False where it does not go. close says goodbye, when what was put before has gone;
# how many entries did not go.
Transport: TypeAlias = "SharedFolder | Stream"


class Pace:
    """Which calls are sent. left_out counts the others.

    policy is "block": the program waits while there is no room; "sample": one of N calls of an API is sent, and N grows
    while there is no room; or "drop": what finds no room is not sent.
    """

    def __init__(self, policy: str, is_full: Callable[[], bool]) -> None:
        self._policy = policy
        self._is_full = is_full
        self._seen: Counter[str] = Counter()
        self._one_of = 1
        self._since = 0
        self.left_out = 0

    def wants(self, api: str) -> bool:
        """Is this call of an API sent? Asked once for each."""
        if self._policy == "block":
            return True
        full = self._is_full()
        wanted = not full
        if self._policy == "sample":
            self._since += 1
            # What goes less often takes as many calls until it shows.
            if full and self._since >= self._one_of:
                self._one_of, self._since = min(2 * self._one_of, _RAREST), 0
            wanted = self._seen[api] % self._one_of == 0
            self._seen[api] += 1
        self.left_out += not wanted
        return wanted


class OnlineFiles(StepFiles):
    """The files of one step, which are messages. sent and lost count entries."""

    def __init__(
        self, header: dict[str, Any], sender: Sender, step: int, hooks: CallHooks, transport: Transport
    ) -> None:
        self._header = header
        self._sender = sender
        self._step = step
        self._hooks = hooks
        self._transport = transport
        self._number = itertools.count()
        self._calls: dict[str, int] = {}
        self._frames: Mapping[int, list[str]] = {}
        self._bytes = self.sent = self.lost = 0

    def check_room(self, folder: Path) -> None:
        """Of the transport, which waits for it."""

    def open(self, folder: Path) -> None:
        """Nothing is written here."""

    def add(self, entries: Sequence[NamedEntry], save: Callable[[Any, str], None]) -> None:
        for entry in entries:
            call, _, direction = entry.name.rpartition(".")
            number = self._calls.get(call, -1)
            if number < 0:
                number = self._calls[call] = next(self._number)
            tensors = dict(self._tensors(entry, FILES.get(direction, "")))
            body = encode_entry(entry).decode()
            if entry.where >= 0 and entry.where not in self._frames:
                self._frames = self._hooks.stacks.lines()
            frames = self._frames.get(entry.where, [])
            message = Entry(self._sender, self._step, number, entry.name, body, self._header, frames)
            if self._transport.put(message, tensors):
                self.sent += 1
                self._bytes += sum(array.nbytes for array in tensors.values())
            else:
                self.lost += 1

    def _tensors(self, entry: NamedEntry, file: str) -> Any:
        for place, seen in waiting_tensors(entry):
            try:
                array = self._hooks.snapshots.stored(seen.data)
            except Unsupported:  # its item says that it was not stored
                array = None
            seen.data = UNSET
            if array is not None and dtype_name(array.dtype) in DTYPES:
                seen.data_name, seen.data_key = file, place
                yield place, array

    def end(self, frames: Mapping[int, list[str]]) -> int:
        return self._bytes


class Connection:
    """Made when the capture is, opened before its first step."""

    def __init__(self, config: CaptureConfig, hooks: CallHooks) -> None:
        self._config = config
        self._hooks = hooks
        self._transport: Transport | None = None
        self.pace = Pace(config.policy, lambda: self._transport is not None and self._transport.full)
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
        """Raises SettingsError, also where gRPC is not installed, and for certificates that cannot be used."""
        config, online = self._config, self._config.online
        assert online is not None
        waits = config.policy == "block"
        try:
            if isinstance(online, Folder):
                return SharedFolder(online.path, self._sender.run, limit=config.buffer, waits=waits)
            from pytest_probe.capture.online.stream import Stream
        except ImportError:
            raise SettingsError("online", str(online), NEEDS_GRPC) from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise SettingsError("online", str(online), f"give a folder that can be written ({reason})") from None
        keys = certificates(Path(config.tls), "client") if config.tls else None
        return Stream(online, self._sender, limit=config.buffer, waits=waits, keys=keys)

    def files(self, header: dict[str, Any], step: int) -> OnlineFiles:
        """Those of a step."""
        assert self._transport is not None
        made = OnlineFiles(header, self._sender, step, self._hooks, self._transport)
        self._files.append(made)
        return made

    def left_out(self) -> str:
        """ "; 12 calls were left out (online_policy sample)"; "" where none were."""
        count = self.pace.left_out + self._lost() + self._not_gone
        return f"; {count:,} entries were left out (online_policy {self._config.policy})" if count else ""

    def _lost(self) -> int:
        return sum(each.lost for each in self._files)

    def close(self) -> None:
        """Say goodbye."""
        transport, self._transport = self._transport, None
        if transport is not None:
            sent = sum(each.sent for each in self._files)
            self._not_gone = transport.close(Goodbye(self._sender, sent, self.pace.left_out + self._lost()))
