"""What the controller asks of a cluster. One file for each kind of it: `ray_pool`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Struct

from pytest_probe.features.cluster.messages import Outcome, Place, Ready, Start, Told


class Lost(Struct, frozen=True):
    """A host has gone, with its node or alone."""

    why: str


# The host's number, the number of what was sent (None: it got ready), and what became of it.
Event: TypeAlias = "tuple[int, int | None, Ready | Outcome | Lost]"


class Pool(Protocol):
    """Hosts, one a device, by their numbers."""

    @property
    def memory(self) -> Mapping[str, float]:
        """Bytes that each node may take, by its id."""

    def unreadable(self, files: Sequence[tuple[Path, int]], folders: Sequence[Path]) -> Mapping[Path, str]:
        """Of these files, with their sizes, and folders those that some node does not have, with a name of the node."""

    def begin(self, start: Start) -> Sequence[Place]:
        """Start all hosts. Raises SettingsError."""

    def tell(self, host: int, told: Told) -> None:
        """Let a host know this before all that is sent to it from now on."""

    def replace(self, host: int) -> bool:
        """Start a host anew that is lost; False where its node is gone."""

    def send(self, host: int, number: int, cases: bytes, files: Iterable[tuple[str, Path]]) -> None:
        """Give a host pickled cases to run behind what it has, and the files that they read."""

    def wait(self, seconds: float) -> Sequence[Event]:
        """What happened since the last time; waits until something does, at most so many seconds."""

    def end(self) -> None:
        """Leave no host behind."""
