"""Numbers of the reference side that a later run may take over. This room asks; the feature `cache` keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from pytest_probe.model.case import Case

if TYPE_CHECKING:
    from pytest_probe.check.conditions import Setup


class Kept(Struct, frozen=True):
    """Numbers as they are kept: arrays and Python's own by name, and what else is told, in JSON's types."""

    values: Mapping[str, Any]
    told: Any = None


Made = TypeVar("Made")
Keep = Callable[[Made], Kept | None]


class KeptResults(Protocol):
    """What is kept of the reference side of one case."""

    @property
    def package(self) -> str:
        """The framework's, whose own functions are known by their path."""

    def description(self, function: Callable[..., Any]) -> bytes | None:
        """What tells a function from others of its name; None where it is not the framework's own."""

    def key(self, value: Any) -> bytes | None:
        """The digest of plain data and arrays; None where there is none."""

    def of(
        self, key: bytes, what: Any, compute: Callable[[], Made], keep: Keep[Made], take: Callable[[Kept], Made]
    ) -> Made:
        """What was kept under a key and what further tells it apart, else what is computed now. Raises what that
        raises.

        keep turns what was computed into numbers, None for what is not worth it, take does the opposite.
        """

    def close(self) -> None:
        """Keep what was computed, with what an earlier run has kept."""


class ReferenceCache(Protocol):
    """What keeps numbers of the reference side of many cases."""

    def results(self, setup: Setup, case: Case) -> KeptResults | None:
        """What earlier runs kept of a case's reference side; None where nothing can be kept of it."""
