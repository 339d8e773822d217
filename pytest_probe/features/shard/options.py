"""Which part --probe-shard asks for."""

from __future__ import annotations

from pytest_probe.features.shard.dealing import shard_of
from pytest_probe.option_types import Given, Type


class Part(Type):
    """The I and N of the I-th of N parts; None for the whole."""

    def read(self, given: Given) -> tuple[int, int] | None:
        found = shard_of(given.text)
        if given.text and found is None:
            raise given.wrong("give I/N, the I-th of N parts, with I from 1 to N, as 1/4")
        return found

    def plain(self, value: tuple[int, int] | None) -> str | None:
        return None if value is None else "/".join(map(str, value))
