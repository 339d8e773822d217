"""What is common to the frameworks where a call is made again and again."""

from __future__ import annotations


def nothing(*args: object, **kwargs: object) -> None:
    """A call that takes what calling alone takes."""
