"""Where a checking host listens, as --probe-listen says it, or msprobe's config.json."""

from __future__ import annotations

from msgspec import Struct

from pytest_probe.capture.online.address import Address


class Listen(Struct, frozen=True):
    """tls is the folder of the certificates, "" for none. ranks are those whose calls are judged, none for all; the
    lists name APIs as a file of msprobe's does."""

    address: Address
    tls: str = ""
    ranks: tuple[int, ...] = ()
    white_list: tuple[str, ...] = ()
    black_list: tuple[str, ...] = ()

    def __str__(self) -> str:
        return str(self.address)
