"""The checking host's end of the streams: what comes goes into a folder, a file a message, and is read there.

One thread serves all programs. A message that is not whole yet is a hidden file; what was taken is known by the number
of its sender's messages, so none counts twice.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import msgspec

from pytest_probe.capture.online import frames
from pytest_probe.capture.online.address import HostPort
from pytest_probe.capture.online.message import Goodbye, NoMessage, read
from pytest_probe.capture.online.shared_folder import ALIVE, BEAT_SECONDS, TRAINER, name_of, waiting_bytes
from pytest_probe.capture.writer import DiskFills, check_room
from pytest_probe.errors import SettingsError
from pytest_probe.system.tensor_files import itemsize, stored_tensors

# Of a message's size in tensors of the largest size, and of what waits to be judged.
_TENSORS = 4
_HELLO_SECONDS = 10.0
# A message has so long, and a second more for each so many bytes.
_MESSAGE_SECONDS = 30.0
_SLOWEST_BYTES = 1 << 20
_LOOK_SECONDS = 0.02
# A file takes more than its content.
_SMALLEST_BYTES = 1 << 16
# Programs that are known, streams at once, and messages that come at once, each with a few parts in memory.
_MOST = 4096
_STREAMS = 1024
_AT_ONCE = 32


class Receiver:
    """Listens from its making on. limit: bytes of a tensor. refused takes why a stream was closed.

    Raises SettingsError for an address that cannot be listened on, and for certificates that cannot be used.
    """

    def __init__(
        self,
        online: HostPort,
        folder: Path,
        *,
        limit: int,
        keys: tuple[bytes, bytes, bytes] | None,
        refused: Callable[[str], None],
    ) -> None:
        self._online = online
        self._folder = folder
        self._limit = limit
        self._keys = keys
        self._refused = refused
        # By a program's number: its stream, and which message of its is wanted next, once it sent one.
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._next: dict[str, int] = {}
        self._files = 0
        # Bytes of messages that are not whole yet, the first begun first, and at most so many of those that wait to be
        # judged.
        self._coming: dict[str, int] = {}
        self._waiting = 0
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._end = asyncio.Event()
        self._trouble: Exception | None = None
        self.port = 0
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)), name="pytest-probe listen", daemon=True
        )
        self._thread.start()
        ready.wait()
        if self._trouble is not None:
            also = "" if keys is None else ", and certificates in PEM"
            wanted = f"give a host and a port of this machine that nothing else listens on{also} ({self._trouble})"
            raise SettingsError("--probe-listen", str(online), wanted)

    def close(self) -> None:
        """Close the streams."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        server = grpc.aio.server(options=frames.CHANNEL_OPTIONS, maximum_concurrent_rpcs=_STREAMS)
        handler = grpc.stream_stream_rpc_method_handler(self._stream)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(frames.SERVICE, {frames.METHOD: handler}),)
        )
        try:
            self.port = self._bound(server)
            await server.start()
        except Exception as error:
            self._trouble = error
            return
        finally:
            ready.set()
        beat = asyncio.ensure_future(self._beat())
        await self._end.wait()
        beat.cancel()
        await server.stop(grace=None)

    def _bound(self, server: Any) -> int:
        """The port. Raises OSError, RuntimeError."""
        _check_free(self._online)
        if self._keys is None:
            return int(server.add_insecure_port(str(self._online)))
        key, certificate, authority = self._keys
        credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
        return int(server.add_secure_port(str(self._online), credentials))

    async def _beat(self) -> None:
        """Say in the folder which programs live: those whose stream is open."""
        while True:
            for run in self._streams.keys() & self._next.keys():
                with suppress(OSError):
                    self._alive(run).touch()
            await asyncio.sleep(BEAT_SECONDS)

    def _alive(self, run: str) -> Path:
        return self._folder / f"{TRAINER}-{run}{ALIVE}"

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> None:
        try:
            await self._take_all(context)
        except NoMessage as error:
            await self._close(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except asyncio.TimeoutError:
            why = "what was begun did not come to its end in time"
            await self._close(context, grpc.StatusCode.DEADLINE_EXCEEDED, why)
        except (DiskFills, OSError) as error:
            why = f"the checking host has no room ({error})"
            await self._close(context, grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        except Exception as error:  # it must not stop the other streams
            await self._close(context, grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")

    async def _close(self, context: Any, code: grpc.StatusCode, why: str) -> None:
        self._refused(f"{context.peer()}: {why}")
        await context.abort(code, why)

    async def _take_all(self, context: Any) -> None:
        """Everything of one stream."""
        content = await asyncio.wait_for(context.read(), _HELLO_SECONDS)
        hello = frames.hello(b"" if content is grpc.aio.EOF else content)
        run = hello.sender.run
        async with self._only_stream_of(run):
            wanted = max(hello.first, self._next.get(run, 0))
            await context.write(msgspec.json.encode(frames.Welcome(wanted, _TENSORS * self._limit)))
            while (head := await context.read()) is not grpc.aio.EOF:
                await self._take(head, wanted, run, context)
                wanted += 1
                self._next[run] = wanted
                await context.write(frames.NUMBER.pack(wanted))

    @asynccontextmanager
    async def _only_stream_of(self, run: str) -> AsyncIterator[None]:
        """Of a program that comes again the earlier stream is dead."""
        earlier = self._streams.get(run)
        mine = self._streams[run] = asyncio.current_task()  # type: ignore[assignment]
        try:
            if earlier is not None:
                earlier.cancel()
                await asyncio.wait((earlier,))
            if run not in self._next and len(self._next) >= _MOST:
                raise NoMessage(f"{_MOST:,} programs have come already, and no more are taken")
            yield
        finally:
            if self._streams.get(run) is mine:
                del self._streams[run]

    async def _take(self, head: bytes, number: int, run: str, context: Any) -> None:
        """The message that has this head."""
        size = self._size(head, number)
        if not size:
            return
        # A name of its own for each: what was read of a file is known by its name, its size and its time.
        path = self._folder / f".{run}-{number}"
        async with self._slots:
            self._coming[run] = 0
            try:
                await self._write(path, head, size, run, context)
                self._keep(path, run)
            finally:
                del self._coming[run]
                path.unlink(missing_ok=True)

    async def _write(self, path: Path, head: bytes, size: int, run: str, context: Any) -> None:
        """A message of this head, into a file. Raises NoMessage where it is cut off, or too long."""
        seconds = _MESSAGE_SECONDS
        coming: asyncio.Future[Any] | None = asyncio.ensure_future(context.read())
        with path.open("xb") as file:
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
        if size > _TENSORS * self._limit:
            wanted = f"at most {_TENSORS * self._limit:,}: see --probe-listen-limit"
            raise NoMessage(f"message {number} has {size:,} bytes, expected {wanted}")
        return int(size)

    async def _room(self, run: str, size: int) -> None:
        """Waits until so many bytes more may come. Raises DiskFills."""
        while not self._has_room(run, size):
            await asyncio.sleep(_LOOK_SECONDS)
        check_room(self._folder)
        self._coming[run] += size

    def _has_room(self, run: str, size: int) -> bool:
        """Where nothing waits to be judged the message that began first has room: others wait for it, or for one that
        is begun and never ends."""
        most, coming = _TENSORS * self._limit, sum(self._coming.values())
        if coming + self._waiting + size > most:
            self._waiting = waiting_bytes(self._folder, _SMALLEST_BYTES)
        return coming + self._waiting + size <= most or (not self._waiting and next(iter(self._coming)) == run)

    def _keep(self, path: Path, run: str) -> None:
        """A whole message. Raises NoMessage for what is none."""
        message = read(path)
        if message.sender.run != run:
            raise NoMessage("a message has another sender than its stream")
        content = stored_tensors(path)
        if content.damage:
            raise NoMessage(content.damage[0])
        for name, tensor in content.tensors.items():
            if (size := tensor.span * itemsize(tensor.dtype)) > self._limit:
                limit = f"at most {self._limit:,}: see --probe-listen-limit"
                raise NoMessage(f"tensor {name} has {size:,} bytes, expected {limit}")
        self._waiting += max(path.stat().st_size, _SMALLEST_BYTES)
        path.rename(self._folder / name_of(self._files, message))
        self._files += 1
        if isinstance(message, Goodbye):
            self._alive(run).unlink(missing_ok=True)
        else:
            self._alive(run).touch()


def _check_free(online: HostPort) -> None:
    """Raises OSError where somebody listens at one of the host's addresses: gRPC takes those that are left."""
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
