"""Texts of others as people and programs can show them."""

from __future__ import annotations

import re

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
