"""Which part --probe-shard asks for."""

from __future__ import annotations

import re

from pytest_probe.option_types import Given, Type

# More shards than any run has cases.
MOST_PARTS = 1_000_000


def shard_of(text: str) -> tuple[int, int] | None:
    """The I and N of "I/N", the I-th of N parts; None where it is none, or N is more than any run has cases."""
    match = re.fullmatch(r"([0-9]{1,7})/([0-9]{1,7})", text)
    number, parts = (int(match[1]), int(match[2])) if match else (0, 0)
    return (number, parts) if 1 <= number <= parts <= MOST_PARTS else None


class Part(Type):
    """The I and N of the I-th of N parts; None for the whole."""

    def read(self, given: Given) -> tuple[int, int] | None:
        found = shard_of(given.text)
        if given.text and found is None:
            raise given.wrong("give I/N, the I-th of N parts, with I from 1 to N, as 1/4")
        return found

    def plain(self, value: tuple[int, int] | None) -> str | None:
        return None if value is None else "/".join(map(str, value))
