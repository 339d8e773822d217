"""The sender's end of a stream to the checking host.

A message stays here until the checking host says that its result is on the disk. After a cut the stream is opened anew,
and begins with the message that the checking host asks for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
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
# A checking host that takes nothing for so long is not waited for any more.
GONE_SECONDS = 60.0
_RETRY_SECONDS = 0.2
# A stream that gets no welcome for so long is opened anew: a host that ends as it begins may leave it open for ever.
_WELCOME_SECONDS = 10.0
# Between two looks at how long that is, and what a stream has for its end.
_LOOK_SECONDS = 1.0
# What the checking host says about the stream itself: another try ends in the same way.
_FINAL = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
)


class _Waiting(Struct, frozen=True):
    """A message that has no result, as far as is known here."""

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
        self._open: Callable[..., grpc.Channel] = grpc.insecure_channel
        if keys is not None:
            key, certificate, authority = keys
            credentials = grpc.ssl_channel_credentials(authority, key, certificate)
            self._open = partial(grpc.secure_channel, credentials=credentials)
        self._waiting: deque[_Waiting] = deque()
        self._bytes = self._count = 0
        # The largest message that the checking host takes, and the numbers of larger messages.
        self._largest = 1 << 63
        self._too_large: set[int] = set()
        self._not_gone = 0
        self._lost = self._closing = False
        # When the checking host took a message last, or had nothing to take; and how the last stream ended.
        self._since = time.monotonic()
        self._ended = "the connection is open"
        self._session = _Session()
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pytest-probe online", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, name="pytest-probe watch", daemon=True).start()

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
            if not self._waiting:
                self._since = time.monotonic()
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
        lost = len(self._too_large)
        self.put(replace(goodbye, sent=goodbye.sent - lost, left_out=goodbye.left_out + lost), {})
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._lost or self._done)
        self._over.set()
        self._thread.join(_LOOK_SECONDS)
        return len(self._too_large) + self._not_gone

    def _run(self) -> None:
        """Open streams until everything has gone, or nobody is there."""
        while not self._lost and not self._done:
            try:
                self._talk(self._session)
                self._ended = "it ends each stream"
            except grpc.RpcError as error:
                self._ended = str(error.details())
                if error.code() in _FINAL:
                    self._give_up(f"{self._online} ended the stream: {self._ended}")
            except Exception as error:
                self._give_up(f"the stream to {self._online} failed ({type(error).__name__}: {error})")
            with self._changed:
                self._session = _Session()
                if not self._lost and not self._done:
                    self._changed.wait(_RETRY_SECONDS)

    def _watch(self) -> None:
        """Gives up a checking host that takes nothing."""
        while not self._over.wait(min(_LOOK_SECONDS, GONE_SECONDS)):
            if self._waiting and time.monotonic() - self._since > GONE_SECONDS:
                self._give_up(f"{self._online} has taken nothing for {GONE_SECONDS:.0f} s ({self._ended})")

    @property
    def _done(self) -> bool:
        return self._closing and not self._waiting

    def _give_up(self, why: str) -> None:
        with self._changed:
            if self._lost:
                return
            self._lost = True
            self._not_gone = sum(each.is_entry for each in self._waiting)
            self._waiting.clear()
            self._bytes = 0
            self._session.end()
            self._over.set()
            _log.error("pytest-probe: %s; the program continues, and no more calls are checked", why)
            self._changed.notify_all()

    def _talk(self, session: _Session) -> None:
        """One stream, from its beginning to its end or a cut. Raises grpc.RpcError."""
        with self._open(str(self._online), options=frames.CHANNEL_OPTIONS) as channel:
            session.call = channel.stream_stream(f"/{frames.SERVICE}/{frames.METHOD}")(self._requests(session))
            ended = threading.Event()
            if session.over or not session.call.add_callback(ended.set):
                ended.set()
            reader = threading.Thread(target=self._hear_all, args=(session,), name="pytest-probe hear", daemon=True)
            reader.start()
            if not ended.wait(_WELCOME_SECONDS) and session.next is None:
                session.call.cancel()
                ended.wait(_LOOK_SECONDS)
            else:
                ended.wait()
            # What came before the end is heard. gRPC may never wake the reader of a call that fails as it begins.
            reader.join(_LOOK_SECONDS)
            with self._changed:
                session.end()
                self._changed.notify_all()
        if session.failure is not None:
            raise session.failure
        if session.call.code() is not grpc.StatusCode.OK:
            raise session.call

    def _hear_all(self, session: _Session) -> None:
        try:
            for reply in session.call:
                self._hear(session, reply)
        except grpc.RpcError:  # the call has its code
            pass
        except Exception as error:
            session.failure = error
            session.call.cancel()

    def _hear(self, session: _Session, reply: bytes) -> None:
        with self._changed:
            if session.next is None:
                welcome = msgspec.json.decode(reply, type=frames.Welcome)
                self._largest, session.next = welcome.limit, welcome.next
            else:
                # All messages before this one have results. Who says it again takes those of others meanwhile.
                (before,) = frames.NUMBER.unpack(reply)
                self._since = time.monotonic()
                while self._waiting and self._waiting[0].number < before:
                    self._bytes -= self._waiting.popleft().size
            self._changed.notify_all()

    def _requests(self, session: _Session) -> Iterator[bytes]:
        with self._changed:
            first = self._waiting[0].number if self._waiting else self._count
        yield msgspec.json.encode(frames.Hello(VERSION, self._sender, first))
        while message := self._next(session):
            if message.size <= self._largest:
                yield from frames.parts(message.number, message.size, message.content)
            else:  # it was put before the checking host said what it takes
                self._too_large.add(message.number)
                yield frames.HEAD.pack(message.number, 0)

    def _next(self, session: _Session) -> _Waiting | None:
        """The message that is wanted, waited for; None where none comes any more."""
        with self._changed:
            while not session.over and not self._done:
                if session.next is not None and self._waiting and session.next <= self._waiting[-1].number:
                    found = self._waiting[max(session.next - self._waiting[0].number, 0)]
                    session.next = found.number + 1
                    return found
                self._changed.wait()
        return None


class _Session:
    """What is known of one stream. next is the number of the message that goes next, once the checking host said it."""

    over = False
    failure: Exception | None = None
    call: Any = None
    next: int | None = None

    def end(self) -> None:
        self.over = True
        if self.call is not None:
            self.call.cancel()
