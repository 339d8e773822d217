"""The entries of a step on their way to the checking host, and which calls the pace leaves out."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from msgspec import UNSET

from pytest_probe.capture.dump_files import encode_entry, waiting_tensors
from pytest_probe.capture.online.message import FILES, Entry, Goodbye, Message, Sender
from pytest_probe.capture.snapshot import NamedEntry
from pytest_probe.capture.writer import EntrySource
from pytest_probe.errors import Unsupported
from pytest_probe.numerics.dtypes import dtype_name
from pytest_probe.system.tensor_files.safetensors import DTYPES

# Of each API at least one of so many calls goes.
_RAREST = 4096


class Transport(Protocol):
    """Takes messages to the checking host. It never raises."""

    @property
    def full(self) -> bool:
        """Would a message find no room now?"""

    def put(self, message: Message, tensors: Mapping[str, np.ndarray]) -> bool:
        """Send it, or wait for room where the policy is to wait. False where it does not go."""

    def close(self, goodbye: Goodbye) -> int:
        """Say goodbye, when what was put before has gone. How many entries did not go."""


class Pace:
    """Which calls are sent. left_out counts the others.

    policy is "block": the program waits while there is no room; "sample": one of N calls of an API is sent, and N grows
    while there is none; or "drop": what finds no room is not sent.
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
        wanted = self._sampled(api, full) if self._policy == "sample" else not full
        self.left_out += not wanted
        return wanted

    def _sampled(self, api: str, full: bool) -> bool:
        self._since += 1
        # What goes less often takes as many calls until it shows.
        if full and self._since >= self._one_of:
            self._one_of, self._since = min(2 * self._one_of, _RAREST), 0
        self._seen[api] += 1
        return (self._seen[api] - 1) % self._one_of == 0


class OnlineFiles:
    """The files of one step, which are messages. sent and lost count entries."""

    def __init__(
        self, header: dict[str, Any], sender: Sender, step: int, source: EntrySource, transport: Transport
    ) -> None:
        self._header = header
        self._sender = sender
        self._step = step
        self._source = source
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
            self._add(entry)

    def _add(self, entry: NamedEntry) -> None:
        call, _, direction = entry.name.rpartition(".")
        number = self._calls.get(call, -1)
        if number < 0:
            number = self._calls[call] = next(self._number)
        tensors = dict(self._tensors(entry, FILES.get(direction, "")))
        body = encode_entry(entry).decode()
        message = Entry(self._sender, self._step, number, entry.name, body, self._header, self._stack(entry.where))
        if self._transport.put(message, tensors):
            self.sent += 1
            self._bytes += sum(array.nbytes for array in tensors.values())
        else:
            self.lost += 1

    def _tensors(self, entry: NamedEntry, file: str) -> Any:
        for place, seen in waiting_tensors(entry):
            try:
                array = self._source.stored(seen.data)
            except Unsupported:  # its item says that it was not stored
                array = None
            seen.data = UNSET
            if array is not None and dtype_name(array.dtype) in DTYPES:
                seen.data_name, seen.data_key = file, place
                yield place, array

    def _stack(self, where: int) -> list[str]:
        if where >= 0 and where not in self._frames:
            self._frames = self._source.frames()
        return self._frames.get(where, [])

    def close(self) -> None:
        """No file is open."""

    def moved(self, folder: Path) -> None:
        """There is no folder."""

    def end(self, frames: Mapping[int, list[str]]) -> int:
        return self._bytes
