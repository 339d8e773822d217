"""What goes over a stream: one call of gRPC a program, whose requests and replies are bytes.

To the checking host: a Hello, then messages in their order, each as a head, which has the message's number and its
size, and parts of at most PART_BYTES behind the same head; a size of 0 stands for a message that is too large to go.
Back: a Welcome, then the number of the first message that has no result yet, when it changes, and again while the
checking host takes messages of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct as Layout
from typing import Annotated, Any

from msgspec import Meta, Struct

from pytest_probe.capture.online.message import NoMessage, Sender, decoded
from pytest_probe.errors import SettingsError

SERVICE, METHOD = "pytest_probe.Online", "Send"
PART_BYTES = 4 << 20
# A message's number and size.
HEAD = Layout("<QQ")
NUMBER = Layout("<Q")
# A Hello is short.
HELLO_BYTES = 4096
# An end that does not answer for so long is gone.
_ALIVE_MS = 20_000
# Of both ends: no part is larger, a silent connection is found dead, and asking for that is no abuse.
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", HEAD.size + PART_BYTES),
    ("grpc.max_send_message_length", HEAD.size + PART_BYTES),
    ("grpc.keepalive_time_ms", _ALIVE_MS),
    ("grpc.keepalive_timeout_ms", _ALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A window that grows would hold several parts of each stream in memory.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _ALIVE_MS // 2),
)
# Of the checking host: who shows no certificate, or opens no stream, does not stay.
STRANGERS = (("grpc.server_handshake_timeout_ms", 10_000), ("grpc.max_connection_idle_ms", _ALIVE_MS))
_Count = Annotated[int, Meta(ge=0, le=2**62)]


class Hello(Struct, frozen=True):
    """Who sends. first is the number of the oldest message that it still has: those before it were taken."""

    version: int
    sender: Sender
    first: _Count


class Welcome(Struct, frozen=True):
    """The number of the message that is wanted next, and how many bytes a message may have."""

    next: _Count
    limit: _Count


def hello(content: bytes) -> Hello:
    """Raises NoMessage for what is none of this version."""
    if len(content) > HELLO_BYTES:
        raise NoMessage(
            f"the stream begins with {len(content):,} bytes, expected a greeting of at most {HELLO_BYTES:,}"
        )
    return decoded(content, Hello, "the greeting")


def parts(number: int, size: int, content: Iterable[Any]) -> Iterator[bytes]:
    """A message's content, of so many bytes in any pieces, as what goes over the stream."""
    head = HEAD.pack(number, size)
    part: list[bytes | memoryview] = [head]
    free = PART_BYTES
    yield head
    for piece in content:
        left = memoryview(piece).cast("B")
        while left:
            fits, left = left[:free], left[free:]
            part.append(fits)
            free -= len(fits)
            if not free:
                yield b"".join(part)
                part, free = [head], PART_BYTES
    if len(part) > 1:
        yield b"".join(part)


def certificates(folder: Path, end: str) -> tuple[bytes, bytes, bytes]:
    """The key and the certificate of an end ("server", "client"), and those who sign the other end's.

    Raises SettingsError where a file cannot be read.
    """
    try:
        key, certificate, authority = ((folder / name).read_bytes() for name in (f"{end}.key", f"{end}.crt", "ca.crt"))
    except OSError as error:
        wanted = f"give a folder with {end}.crt, {end}.key and ca.crt, in PEM ({error.strerror})"
        raise SettingsError("the folder of the certificates", error.filename, wanted) from None
    return key, certificate, authority
