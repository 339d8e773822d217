"""The "did you mean" of a word that is none of those that are known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from pytest_probe.errors import SettingsError

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
