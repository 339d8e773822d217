"""Where the checking host is: a shared folder, or a host and a port."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec import Struct

# What both ends say of an address that is none of the two.
WANTED = "give file:///FOLDER, or HOST:PORT"
# What both ends say where plain text would leave this machine.
NEEDS_TLS = "what is sent would be readable on its way; give the folder of the certificates, or an address of loopback"
# What both ends say of a port where gRPC is not installed.
NEEDS_GRPC = "it needs gRPC, which is not installed: pip install 'pytest-probe[online]'; a shared folder needs none"
_PORT = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):(?P<port>[0-9]{1,5})")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Folder(Struct, frozen=True):
    """A folder that both ends see."""

    path: Path

    def __str__(self) -> str:
        return self.path.as_uri()


class HostPort(Struct, frozen=True):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Does what goes there stay on this machine?"""
        return self.host in _LOOPBACK


Address: TypeAlias = Folder | HostPort


def of_msprobe(folder: str, host: object, port: object) -> str:
    """The text of the address that msprobe's keys nfs_path, host and port give."""
    return Path(folder).absolute().as_uri() if folder else f"{host}:{port}"


def address(text: str) -> Address | None:
    """The address that a text gives; None for anything else."""
    if text.startswith("file:"):
        parts = urlsplit(text)
        path = Path(unquote(parts.path))
        return Folder(path) if path.is_absolute() and parts.netloc in ("", "localhost") else None
    found = _PORT.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        return None
    return HostPort(found["host"], int(found["port"]))


class Listen(Struct, frozen=True):
    """Where a checking host listens, as --probe-listen says it, or msprobe's config.json. tls is the folder of the
    certificates, "" for none. ranks are those whose calls are judged, none for all; the lists name APIs as a file of
    msprobe's does. limit is the most bytes that a tensor may have."""

    address: Address
    tls: str = ""
    ranks: tuple[int, ...] = ()
    white_list: tuple[str, ...] = ()
    black_list: tuple[str, ...] = ()
    limit: int = 2 * 10**9

    def __str__(self) -> str:
        return str(self.address)
