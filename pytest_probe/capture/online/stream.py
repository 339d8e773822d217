"""The sender's end of a stream to the checking host.

A message stays here until the checking host says that it has it. After a cut the stream is opened anew, and begins with
the message that the checking host asks for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.capture.online import frames
from pytest_probe.capture.online.address import HostPort
from pytest_probe.capture.online.message import VERSION, Entry, Goodbye, Message, Sender, encoded

_log = logging.getLogger("pytest_probe")
# A checking host that is not there for so long is not waited for any more.
GONE_SECONDS = 60.0
_RETRY_SECONDS = 0.2
# A stream that was open for so long did work.
_LASTED_SECONDS = 30.0
# What the checking host says about the stream itself: another try ends in the same way.
_FINAL = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
)


class _Waiting(Struct, frozen=True):
    """A message that the checking host does not have, or did not say that it has."""

    number: int
    size: int
    content: list[Any]
    is_entry: bool


class Stream:
    """limit: bytes of messages that wait here. waits: put waits for room. keys: of frames.certificates, None for plain
    text."""

    def __init__(
        self, online: HostPort, sender: Sender, *, limit: int, waits: bool, keys: tuple[bytes, bytes, bytes] | None
    ) -> None:
        self._online = online
        self._sender = sender
        self._limit = limit
        self._waits = waits
        self._credentials = None
        if keys is not None:
            key, certificate, authority = keys
            self._credentials = grpc.ssl_channel_credentials(authority, key, certificate)
        self._waiting: deque[_Waiting] = deque()
        self._bytes = self._count = 0
        # The largest message that the checking host takes, and how many were larger.
        self._largest = 1 << 63
        self._too_large = self._not_gone = 0
        self._lost = self._closing = False
        # When the checking host took a message last.
        self._since = time.monotonic()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="pytest-probe online", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        return not self._lost and self._bytes > 0.9 * self._limit

    def put(self, message: Message, tensors: Mapping[str, np.ndarray]) -> bool:
        content = encoded(message, tensors)
        size = sum(memoryview(part).nbytes for part in content)
        with self._changed:
            if isinstance(message, Entry) and not self._has_room(size):
                return False
            if self._lost:
                return False
            self._waiting.append(_Waiting(self._count, size, content, isinstance(message, Entry)))
            self._count += 1
            self._bytes += size
            self._changed.notify_all()
        return True

    def _has_room(self, size: int) -> bool:
        while not self._lost and self._bytes and self._bytes + size > self._limit:
            if not self._waits:
                return False
            self._changed.wait()
        return not self._lost and size <= self._largest

    def close(self, goodbye: Goodbye) -> int:
        lost = self._too_large
        self.put(replace(goodbye, sent=goodbye.sent - lost, left_out=goodbye.left_out + lost), {})
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        return self._too_large + self._not_gone

    def _run(self) -> None:
        """Open streams until everything has gone, or nobody is there."""
        try:
            self._deliver()
        except Exception as error:
            self._give_up(f"the stream to {self._online} failed ({type(error).__name__}: {error})")

    def _deliver(self) -> None:
        while not self._lost and not self._done:
            session = _Session(self)
            began = time.monotonic()
            try:
                session.run()
            except grpc.RpcError as error:
                self._cut(error, time.monotonic() - began)
            with self._changed:
                if not self._lost and not self._done:
                    self._changed.wait(_RETRY_SECONDS)

    def _cut(self, error: Any, seconds: float) -> None:
        """A stream ended so many seconds after it began."""
        if error.code() in _FINAL:
            self._give_up(f"{self._online} ended the stream: {error.details()}")
        elif seconds > _LASTED_SECONDS:
            self._since = time.monotonic()
        elif time.monotonic() - self._since > GONE_SECONDS:
            self._give_up(f"{self._online} has not answered for {GONE_SECONDS:.0f} s ({error.details()})")

    @property
    def _done(self) -> bool:
        return self._closing and not self._waiting

    def _give_up(self, why: str) -> None:
        with self._changed:
            self._lost = True
            self._not_gone = sum(each.is_entry for each in self._waiting)
            self._waiting.clear()
            self._bytes = 0
            self._changed.notify_all()
        _log.error("pytest-probe: %s; the program continues, and no more calls are checked", why)

    def open_channel(self) -> grpc.Channel:
        if self._credentials is None:
            return grpc.insecure_channel(str(self._online), frames.CHANNEL_OPTIONS)
        return grpc.secure_channel(str(self._online), self._credentials, frames.CHANNEL_OPTIONS)

    def greeting(self) -> bytes:
        with self._changed:
            first = self._waiting[0].number if self._waiting else self._count
        return msgspec.json.encode(frames.Hello(VERSION, self._sender, first))

    def taken(self, before: int) -> None:
        """The checking host has all messages before this one."""
        with self._changed:
            while self._waiting and self._waiting[0].number < before:
                self._bytes -= self._waiting.popleft().size
                self._since = time.monotonic()
            self._changed.notify_all()

    def welcomed(self, welcome: frames.Welcome) -> None:
        self._largest = welcome.limit
        self.taken(welcome.next)

    def next_message(self, number: int, session: _Session) -> _Waiting | None:
        """The message of this number, waited for; None where none comes any more."""
        with self._changed:
            while not session.over and not self._lost:
                if self._waiting and number <= self._waiting[-1].number:
                    return self._waiting[number - self._waiting[0].number]
                if self._closing:
                    return None
                self._changed.wait()
        return None

    def parts(self, message: _Waiting) -> Iterator[bytes]:
        if message.size <= self._largest:
            return frames.parts(message.number, message.size, message.content)
        # It was put before the checking host said what it takes.
        self._too_large += 1
        return iter((frames.HEAD.pack(message.number, 0),))

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


class _Session:
    """One stream, from its beginning to its end or a cut."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.over = False
        self._next: int | None = None
        self._welcome = threading.Event()

    def run(self) -> None:
        """Raises grpc.RpcError."""
        with self._stream.open_channel() as channel:
            call = channel.stream_stream(f"/{frames.SERVICE}/{frames.METHOD}")
            try:
                self._read(call(self._requests()))
            finally:
                self.over = True
                self._welcome.set()
                self._stream.wake()

    def _read(self, replies: Iterator[bytes]) -> None:
        for reply in replies:
            if self._next is None:
                welcome = msgspec.json.decode(reply, type=frames.Welcome)
                self._stream.welcomed(welcome)
                self._next = welcome.next
                self._welcome.set()
            else:
                self._stream.taken(frames.NUMBER.unpack(reply)[0])

    def _requests(self) -> Iterator[bytes]:
        yield self._stream.greeting()
        self._welcome.wait()
        number = self._next
        while number is not None:
            message = self._stream.next_message(number, self)
            if message is None:
                return
            yield from self._stream.parts(message)
            number += 1
