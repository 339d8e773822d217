"""How many calls --probe-fuzz asks for, and where it keeps what they find."""

from __future__ import annotations

from pathlib import Path

from pytest_probe.option_types import Given, Keyed, Maybe, Needing, Place, Type

# Its calls are the same ones each time.
QUICK = "quick"
_PROFILES = {QUICK: 25, "thorough": 1_000, "nightly": 10_000}


class Calls(Type):
    """A number of calls, or the name of a profile; None without a search."""

    def read(self, given: Given) -> str | None:
        text = given.text
        if not text:
            return None
        if text not in _PROFILES and not (text.isascii() and text.isdigit() and 1 <= int(text) < 2**31):
            raise given.wrong(f"give a number of calls, 1 or more, or {', '.join(_PROFILES)}")
        return text


class Search(Keyed):
    """A number of calls, and the folder of the dump that what they find is appended to. Two runs that differ in the
    folder alone are alike."""

    def __init__(self) -> None:
        super().__init__(Needing(Calls(), "hypothesis", "fuzz"), save=(Maybe(Place()), ""))

    def plain(self, value: tuple[str, Path | None] | None) -> int | None:
        return None if value is None else count(value[0])

    def identity(self, value: tuple[str, Path | None] | None) -> str | None:
        return None if value is None else value[0]


def count(asked: str) -> int:
    """The calls of an API that are drawn."""
    return _PROFILES[asked] if asked in _PROFILES else int(asked)
