"""What one item runs: a record made runnable in one direction and one dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from pytest_probe.model.dump import Call, Direction, Dump, Record
from pytest_probe.model.result import PortableId
from pytest_probe.model.run import Arguments
from pytest_probe.numerics.dtypes import is_inexact

# In this order, since the backward uses the run of the forward.
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")


class Demands(Struct, frozen=True):
    """What is asked of a caller's outputs besides their numbers: the dtype that the reference gives on the same
    arguments, and its strides. recorded: a record tells the dtypes, too; own: the reference, run in its own dtypes,
    tells them, and how many outputs there are; drawn: of many calls, of which the cheapest promise
    is asked first."""

    dtype: bool = True
    strides: bool = False
    recorded: bool = False
    own: bool = True
    drawn: bool = False


class Pair(Struct, frozen=True):
    """A function under test, the reference of it, and what both are called with; constant names the arguments that no
    gradient is asked of. borders is the reference with the places where a kernel of the function ends and the next
    begins. inferred: nobody named an API, and the class is that of the reference, a function of the framework's."""

    function: Callable[..., Any]
    reference: Callable[..., Any]
    arguments: Arguments
    with_gradient: bool
    demands: Demands | None = None
    constant: frozenset[str] = frozenset()
    borders: Callable[..., Any] | None = None
    inferred: bool = False


class Case(Struct, frozen=True):
    """A record made runnable in one direction and one dtype; dtype None: as recorded.

    pair is what runs where the case is no record of a dump but two functions (Checker.compare), arguments what the call
    gets where they were drawn, with what is asked of its outputs besides a record's own demands.
    """

    dump: Dump
    record: Record
    direction: Direction
    dtype: str | None = None
    pair: Pair | None = None
    arguments: Arguments | None = None
    demands: Demands | None = None

    @property
    def id(self) -> str:
        return self.portable_id("").name

    def portable_id(self, label: str) -> PortableId:
        """label is the dump's."""
        return PortableId(label, f"{self.record.name}.{self.direction}", self.dtype or "")

    @property
    def api(self) -> str:
        return f"{self.record.namespace}.{self.record.api}"


def floating_dtypes(call: Call) -> tuple[str, ...]:
    """The floating dtypes of a call's tensor arguments, sorted."""
    dtypes = {spec.dtype for _, spec in call.tensors() if not spec.ndarray}
    return tuple(sorted(dtype for dtype in dtypes if is_inexact(dtype)))
