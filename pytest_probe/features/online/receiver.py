"""The checking host's end of the streams: what comes goes into a folder, a file a message, and is read there.

One thread serves all programs. A message that is not whole yet is a hidden file; what was taken is known by the number
of its sender's messages, so none counts twice. A program hears of a message when its result is on the disk.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import msgspec

from pytest_probe.capture.online import frames
from pytest_probe.capture.online.address import HostPort
from pytest_probe.capture.online.message import Goodbye, Message, NoMessage, opened
from pytest_probe.capture.online.shared_folder import ALIVE, BEAT_SECONDS, TRAINER, name_of
from pytest_probe.capture.writer import DiskFills, check_room
from pytest_probe.errors import SettingsError
from pytest_probe.features.online.folder_source import FolderSource
from pytest_probe.system.machine import open_files
from pytest_probe.system.tensor_files import itemsize

# Of a message's size in tensors of the largest size, and of what waits to be judged.
_TENSORS = 4
_SEE = "see --probe-listen=HOST:PORT,limit=SIZE"
_HELLO_SECONDS = 10.0
# A message has so long, and a second more for each so many bytes.
_MESSAGE_SECONDS = 30.0
_SLOWEST_BYTES = 1 << 20
_LOOK_SECONDS = 0.02
# What programs have, when all is judged, to hear it.
_LAST_WORDS_SECONDS = 5.0
# A file takes more than its content.
_SMALLEST_BYTES = 1 << 16
# Programs that are known, streams at once, and messages that come at once, each with a few parts in memory.
_MOST = 4096
_STREAMS = 1024
_AT_ONCE = 32
# Files that are open at once, connections included.
_FILES = 1 << 14


class Program:
    """One that sends. next: the number of the message that is wanted next; unjudged: bytes of the received ones without
    a result yet, by their numbers."""

    def __init__(self) -> None:
        self.next = 0
        self.unjudged: dict[int, int] = {}
        self.taking: asyncio.Task[None] | None = None
        self.wake = asyncio.Event()

    @property
    def judged(self) -> int:
        """All messages before this one have results."""
        return next(iter(self.unjudged), self.next)


class Receiver(FolderSource):
    """Listens from its making on, and goes on with what an earlier run left in the folder. limit: bytes of a tensor.

    Raises SettingsError for an address that cannot be listened on, and for certificates that cannot be used; OSError
    where the folder cannot be written.
    """

    def __init__(self, online: HostPort, folder: Path, *, limit: int, keys: tuple[bytes, bytes, bytes] | None) -> None:
        super().__init__(folder)
        self._online = online
        self._limit = limit
        self._most = _TENSORS * limit
        self._keys = keys
        self.programs = self._earlier()
        # Bytes of messages that are not whole yet, the first begun first, and of messages that wait to be judged; how
        # many messages came or were judged.
        self._coming: dict[str, int] = {}
        self._waiting = sum(sum(each.unjudged.values()) for each in self.programs.values())
        self._moved = 0
        self._parser = ThreadPoolExecutor(1, "pytest-probe parse")
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._end = asyncio.Event()
        self._grace: float | None = None
        ready: Future[int] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)), name="pytest-probe listen", daemon=True
        )
        self._thread.start()
        try:
            self.port = ready.result()
        except Exception as error:
            self._beat.close()
            also = "" if keys is None else ", and certificates in PEM"
            wanted = f"give a host and a port of this machine that nothing else listens on{also} ({error})"
            raise SettingsError("--probe-listen", str(online), wanted) from None

    def _earlier(self) -> dict[str, Program]:
        found: dict[str, Program] = {}
        files = self._files()
        done = {run: self.done(run) for run in {file.run for file in files}}
        for file in files:
            program = found.setdefault(file.run, Program())
            program.next = max(program.next, file.number + 1, *(number + 1 for number in done[file.run]))
            if file.direction != "goodbye" and file.number not in done[file.run]:
                program.unjudged[file.number] = (self._folder / file.name).stat().st_size
        return found

    def _others(self) -> Iterator[str]:
        """Who has the port has the folder: earlier ones are dead."""
        return iter(())

    def note(self, run: str, number: int) -> None:
        super().note(run, number)

        def tell() -> None:
            self._moved += 1
            if run in self.programs:
                self._waiting -= self.programs[run].unjudged.pop(number, 0)
                self.programs[run].wake.set()

        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(tell)

    def close(self) -> None:
        """Where all is judged, the programs hear that before their streams are closed."""
        self._grace = _LAST_WORDS_SECONDS if self.finished() else None
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        super().close()
        with suppress(OSError):  # what waits is for the next one
            self._folder.rmdir()

    async def _serve(self, ready: Future[int]) -> None:
        self._loop = asyncio.get_running_loop()
        # Strangers leave this process files of its own.
        most = ("grpc.max_allowed_incoming_connections", open_files(_FILES) // 2)
        options = (*frames.CHANNEL_OPTIONS, *frames.STRANGERS, most)
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=_STREAMS)
        handler = grpc.stream_stream_rpc_method_handler(self._stream)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(frames.SERVICE, {frames.METHOD: handler}),)
        )
        try:
            _check_free(self._online)
            if self._keys is None:
                port = server.add_insecure_port(str(self._online))
            else:
                key, certificate, authority = self._keys
                credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
                port = server.add_secure_port(str(self._online), credentials)
            await server.start()
        except Exception as error:
            ready.set_exception(error)
            return
        ready.set_result(port)
        beat = asyncio.ensure_future(self._touch())
        await self._end.wait()
        beat.cancel()
        await server.stop(grace=self._grace)
        self._parser.shutdown()

    async def _touch(self) -> None:
        """Say in the folder which programs live: those whose stream is open; and to them that this end does."""
        while True:
            for run, program in self.programs.items():
                if program.taking is not None:
                    program.wake.set()
                    with suppress(OSError):
                        self._alive(run).touch()
            await asyncio.sleep(BEAT_SECONDS)

    def _alive(self, run: str) -> Path:
        return self._folder / f"{TRAINER}-{run}{ALIVE}"

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> None:
        taking = asyncio.ensure_future(self._take_all(context))
        try:
            await asyncio.wait((taking,))
        except asyncio.CancelledError:  # the program or this host has gone; gRPC would print what is raised
            taking.cancel()
            return
        if taking.cancelled():
            await context.abort(grpc.StatusCode.ABORTED, "the program has opened another stream")
        elif error := taking.exception():
            code, why = grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
            if isinstance(error, NoMessage):
                code, why = grpc.StatusCode.INVALID_ARGUMENT, str(error)
            elif isinstance(error, asyncio.TimeoutError):
                code = grpc.StatusCode.DEADLINE_EXCEEDED
                why = "what was begun did not come to its end in time"
            elif isinstance(error, (DiskFills, OSError)):
                code, why = grpc.StatusCode.RESOURCE_EXHAUSTED, f"the checking host has no room ({error})"
            self.refuse(f"{context.peer()}: {why}")
            await context.abort(code, why)

    async def _take_all(self, context: Any) -> None:
        """Everything of one stream."""
        content = await asyncio.wait_for(context.read(), _HELLO_SECONDS)
        hello = frames.hello(b"" if content is grpc.aio.EOF else content)
        run = hello.sender.run
        async with self._only_stream_of(run) as program:
            if hello.first > program.next:  # another one judged them
                self.note(run, -hello.first)
                program.next = hello.first
            await context.write(msgspec.json.encode(frames.Welcome(program.next, self._most)))
            telling = asyncio.ensure_future(self._tell(program, context))
            try:
                while (head := await context.read()) is not grpc.aio.EOF:
                    await self._take(head, program, run, context)
                    program.wake.set()
            finally:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)

    @asynccontextmanager
    async def _only_stream_of(self, run: str) -> AsyncIterator[Program]:
        """Of a program that comes again the earlier stream is dead."""
        if run not in self.programs and len(self.programs) >= _MOST:
            raise NoMessage(f"{_MOST:,} programs have come already, and no more are taken")
        program = self.programs.setdefault(run, Program())
        earlier, program.taking = program.taking, asyncio.current_task()
        try:
            while earlier is not None and not earlier.done():
                earlier.cancel()  # asyncio.wait_for may miss it
                await asyncio.wait((earlier,), timeout=_LOOK_SECONDS)
            yield program
        finally:
            if program.taking is asyncio.current_task():
                program.taking = None
                if not program.next:  # it sent nothing
                    del self.programs[run]

    async def _tell(self, program: Program, context: Any) -> None:
        """Which messages have results; and that again while any messages move, so that nobody gives up in the queue."""
        said = moved = -1
        while True:
            program.wake.clear()
            if program.judged != said or self._moved != moved:
                said, moved = program.judged, self._moved
                await context.write(frames.NUMBER.pack(said))
            await program.wake.wait()

    async def _take(self, head: bytes, program: Program, run: str, context: Any) -> None:
        """The message that has this head."""
        number = program.next
        size = self._size(head, number)
        if not size:
            self.note(run, number)
            program.next += 1
            return
        # A name of its own for each: what was read of a file is known by its name, its size and its time.
        path = self._folder / f".{run}-{number}"
        async with self._slots:
            self._coming[run] = 0
            try:
                await self._write(path, head, size, run, context)
                message = await self._loop.run_in_executor(self._parser, self._parsed, path, run)
                self._alive(run).touch()  # who sees the message must see that its sender lives
                path.rename(self._folder / name_of(number, message))
                if not isinstance(message, Goodbye):
                    program.unjudged[number] = max(size, _SMALLEST_BYTES)
                    self._waiting += program.unjudged[number]
                program.next += 1
                self._moved += 1
            finally:
                del self._coming[run]
                path.unlink(missing_ok=True)

    async def _write(self, path: Path, head: bytes, size: int, run: str, context: Any) -> None:
        """A message of this head, into a file. Raises NoMessage where it is cut off, or too long."""
        seconds = _MESSAGE_SECONDS
        coming: asyncio.Future[Any] | None = asyncio.ensure_future(context.read())
        with path.open("wb") as file:
            while coming is not None:
                began = time.monotonic()
                part = await asyncio.wait_for(coming, seconds)
                if part is grpc.aio.EOF:
                    raise NoMessage(f"the stream ended {size:,} bytes before the end of a message")
                if not part.startswith(head):
                    raise NoMessage("a part belongs to another message than the one that was begun")
                content = memoryview(part)[len(head) :]
                seconds += len(content) / _SLOWEST_BYTES - (time.monotonic() - began)
                size -= len(content)
                await self._room(run, len(content))
                # The next part comes while this one is written.
                coming = asyncio.ensure_future(context.read()) if size > 0 else None
                file.write(content)
        if size:
            raise NoMessage(f"a message has {-size:,} bytes more than its head says")

    def _size(self, head: bytes, number: int) -> int:
        """What its head says of a message."""
        if len(head) != frames.HEAD.size:
            raise NoMessage(f"a message begins with {len(head)} bytes, expected a head of {frames.HEAD.size}")
        found, size = frames.HEAD.unpack(head)
        if found != number:
            raise NoMessage(f"message {found} came, expected {number}")
        if size > self._most:
            raise NoMessage(f"message {number} has {size:,} bytes, expected at most {self._most:,}: {_SEE}")
        return int(size)

    async def _room(self, run: str, size: int) -> None:
        """Waits until so many bytes more may come. Where nothing waits to be judged the message that began first has
        room: others wait for it, or for one that is begun and never ends. Raises DiskFills."""
        while sum(self._coming.values()) + self._waiting + size > self._most:
            if not self._waiting and next(iter(self._coming)) == run:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        check_room(self._folder)
        self._coming[run] += size

    def _parsed(self, path: Path, run: str) -> Message:
        """A whole message. Raises NoMessage for any other bytes."""
        message, content = opened(path)
        if message.sender.run != run:
            raise NoMessage("a message has another sender than its stream")
        if content.damage:
            raise NoMessage(content.damage[0])
        for name, tensor in content.tensors.items():
            if (size := tensor.span * itemsize(tensor.dtype)) > self._limit:
                raise NoMessage(f"tensor {name} has {size:,} bytes, expected at most {self._limit:,}: {_SEE}")
        return message


def _check_free(online: HostPort) -> None:
    """Raises OSError where somebody listens at one of the host's addresses: gRPC takes the others."""
    for family, kind, _, _, address in socket.getaddrinfo(
        online.host.strip("[]"), online.port, type=socket.SOCK_STREAM
    ):
        with socket.socket(family, kind) as found:
            # Connections of a run that has ended do not count.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                found.bind(address)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise
