"""Where --probe-listen listens."""

from __future__ import annotations

import importlib.util
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from pytest_probe.capture.config import content_of
from pytest_probe.capture.online.address import NEEDS_GRPC, NEEDS_TLS, WANTED, HostPort, Listen, address, of_msprobe
from pytest_probe.option_types import Folder, Given, Size, Type
from pytest_probe.system.decoding import decode

_SECTION = "run_ut"


class _RunUt(Struct, frozen=True):
    """msprobe's section of its checker, as far as it listens."""

    is_online: bool = False
    nfs_path: str = ""
    host: str = ""
    port: Annotated[int, Meta(le=65535)] = -1
    rank_list: tuple[int, ...] = ()
    tls_path: str = ""
    white_list: tuple[str, ...] = ()
    black_list: tuple[str, ...] = ()


class Listening(Type):
    def read(self, given: Given) -> Listen | None:
        """Raises SettingsError for what is no address, for a port where gRPC is not installed, and for one that others
        reach where there are no certificates."""
        text, keys = given.keys("tls", "limit")
        if not text:
            return None
        asked = address(text)
        found = _of_file(given.of(text)) if text.endswith(".json") else None if asked is None else Listen(asked)
        if found is None:
            raise given.wrong(f"{WANTED}, or msprobe's config.json")
        port = found.address
        if not isinstance(port, HostPort):
            if keys:
                raise given.wrong(f"{' and '.join(keys)} is for HOST:PORT; leave it out")
            return found
        if importlib.util.find_spec("grpc") is None:
            raise given.wrong(NEEDS_GRPC)
        if "tls" in keys:
            found = replace(found, tls=str(Folder().read(given.of(keys["tls"]))))
        if "limit" in keys:
            found = replace(found, limit=Size().read(given.of(keys["limit"])))
        if not port.is_loopback and not found.tls:
            raise given.wrong(f"{NEEDS_TLS}: {text},tls=DIR")
        return found

    def plain(self, value: Listen | None) -> str | None:
        return None if value is None else str(value)


def _of_file(given: Given) -> Listen:
    """What msprobe's config.json says."""
    path = given.path
    assert path is not None
    section = content_of(path).get(_SECTION)
    if not isinstance(section, dict):
        raise given.wrong(f"it has no section {_SECTION}, as msprobe's config.json has", str(path))
    section = decode(section, _RunUt, lambda steps: f"{given.name}: {path}: {_SECTION}")
    found = address(of_msprobe(section.nfs_path, section.host, section.port))
    if not section.is_online or found is None:
        wanted = f"its section {_SECTION} must have is_online true, and nfs_path, or host and port"
        raise given.wrong(wanted, str(path))
    lists = section.white_list, section.black_list
    return Listen(found, section.tls_path, section.rank_list, *lists)
