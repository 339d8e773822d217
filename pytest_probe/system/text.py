"""Texts of others as people and programs can show them, and the "did you mean" of a word that nothing has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from pytest_probe.errors import SettingsError

# Control characters but for tab and line feed, marks that turn the direction of writing, line separators, surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BREAKS = re.compile("[\t\n]")


def printable(text: str) -> str:
    """The text with what moves a cursor, colours, turns or cannot be encoded written as Python writes it (\\x1b)."""
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_escaped, text)


def printable_line(text: str) -> str:
    """The same in one line: tabs and line feeds too."""
    return text if text.isascii() and text.isprintable() else _BREAKS.sub(_escaped, printable(text))


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


# How alike two words are that may be one misspelt, from 0 to 1.
_ALIKE = 0.65


def suggestion(known: Iterable[str], found: str, alike: float = _ALIKE) -> str:
    """The closest known word, as the end of a sentence; "" where none is close, or the word is known."""
    known = tuple(known)
    close = "" if found in known else closest(known, found, alike)
    return f"; did you mean {close}?" if close else ""


def closest(known: Iterable[str], found: str, alike: float = _ALIKE) -> str:
    """The known word that is close, in upper or lower case; "" where none is."""
    names = {name.casefold(): name for name in known}
    return next((names[close] for close in get_close_matches(found.casefold(), names, n=1, cutoff=alike)), "")


def one_of(known: Iterable[str], found: str) -> str:
    """The advice to give one of the known words, with the closest one, if one is close."""
    known = tuple(known)
    close = closest(known, found)
    return f"give one of {', '.join(known)}{f' (did you mean {close}?)' if close else ''}"


def known_keys(known: Iterable[str], found: str) -> str:
    """The closest known key, if one is close, and all of them."""
    known = tuple(known)
    close, keys = closest(known, found), ", ".join(known)
    return f"did you mean {close!r}? Known keys: {keys}" if close else f"known keys: {keys}"


def check_name(option: str, value: str, choices: Iterable[str]) -> str:
    """The value, where it is one of the choices. Raises SettingsError with the closest of them otherwise."""
    choices = tuple(choices)
    if value in choices:
        return value
    raise SettingsError(option, value, one_of(choices, value))
