"""What a relation is, and what asking it of a call leaves."""

from __future__ import annotations

from typing import NoReturn, Protocol

from msgspec import Struct

from pytest_probe.errors import Unsupported
from pytest_probe.features.relations.call import LEFT_OUT, Apart, Call
from pytest_probe.model.verdict import Outcome


class Found(Struct, frozen=True):
    """broken says how the relation is broken, "" where it holds; apart is the output that shows it, if one does; runs
    counts the calls that were made; unasked says what of it could not be asked."""

    broken: str = ""
    apart: Apart | None = None
    runs: int = 0
    unasked: str = ""


class Relation(Protocol):
    """One relation: broken is the outcome of a case that breaks it."""

    name: str
    broken: Outcome

    def unfit(self, call: Call) -> str:
        """Why it is not asked of such a call; "" where it is."""

    def find(self, call: Call) -> Found:
        """Ask it. Raises Unsupported where that cannot be done, and what the device raises."""


def left_out(why: str) -> NoReturn:
    """Raises Unsupported."""
    raise Unsupported(why, LEFT_OUT)
