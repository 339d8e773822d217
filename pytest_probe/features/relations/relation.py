"""What a relation is, of which call it is asked, and what that leaves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from msgspec import Struct

from pytest_probe.check import Checked, call_again
from pytest_probe.check.call_again import LEFT_OUT, Apart
from pytest_probe.check.conditions import Setup
from pytest_probe.errors import Unsupported
from pytest_probe.features.relations.table import Row
from pytest_probe.model.verdict import Outcome

if TYPE_CHECKING:
    from pytest_probe.registry import Registry

# The context in which an argument may end the process, which has a name.
AtRisk: TypeAlias = Callable[[str], AbstractContextManager[None]]


class Call(call_again.Call):
    """at_risk: what a call is made in that may end the process; None where nobody would see that."""

    def __init__(self, checked: Checked, setup: Setup, row: Row, registry: Registry, at_risk: AtRisk | None) -> None:
        super().__init__(checked, setup)
        self.row, self.registry, self.at_risk = row, registry, at_risk
        # What the relations of memory have observed.
        self.memory: Any = None


class Found(Struct, frozen=True):
    """broken says how the relation is broken, "" where it holds; apart is the output that shows it, if one does; runs
    counts the calls that were made; unasked says what of it could not be asked."""

    broken: str = ""
    apart: Apart | None = None
    runs: int = 0
    unasked: str = ""


class Relation:
    """One relation: broken is the outcome of a case that breaks it."""

    name: str
    broken: Outcome = "error"

    def unfit(self, call: Call) -> str:
        """Why it is not asked of such a call; "" where it is."""
        return ""

    def find(self, call: Call) -> Found:
        """Ask it. Raises Unsupported where that cannot be done, and what the device raises."""
        raise NotImplementedError


def left_out(why: str) -> NoReturn:
    """Raises Unsupported."""
    raise Unsupported(why, LEFT_OUT)
