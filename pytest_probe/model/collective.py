"""What one rank did in a collective: which ranks took part, what it sent, and what it received."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from pytest_probe.model.dump import Call, TensorSpec
from pytest_probe.numerics.dtypes import AnyArray

# What the records of collectives begin with.
NAMESPACES = ("Distributed", "NPU_Distributed")

# How what the ranks of a group send becomes what they receive. Sums and the like: "reduced", of which each rank, one
# rank, or each its own part receives the result. Copies: from one to all, from all to all in their order, from all to
# one, parts from one to all, parts from each to each. A message from one rank to another is "sent" and "received".
Kind: TypeAlias = Literal[
    "reduced to all",
    "reduced to one",
    "reduced in parts",
    "one to all",
    "all to all in order",
    "all to one",
    "parts of one",
    "parts of all",
    "sent",
    "received",
    "nothing",
]
REDUCING: frozenset[Kind] = frozenset(("reduced to all", "reduced to one", "reduced in parts"))
# What has one rank at its start or its end.
ROOTED: frozenset[Kind] = frozenset(("reduced to one", "one to all", "all to one", "parts of one"))
Reduction: TypeAlias = Literal[
    "total", "average", "product", "largest", "least", "and", "or", "exclusive or", "unknown"
]


class Piece(Struct, frozen=True):
    """A tensor that a rank sent or received; entry and field are its place in the dump."""

    entry: str
    field: str
    spec: TensorSpec


class Collective(Struct, frozen=True):
    """One rank's part in one call.

    api is the function's name ("all_reduce"), ranks the group in its order, () where the dump does not say, rank this
    rank, None likewise. root is the rank that all send to or receive from, or the other side of a message. order is the
    place of the call among the rank's. sizes are the elements that go to each rank of the group, where that is not the
    same number for all. waited: had the program waited when the result was recorded? None where that is not known.
    """

    api: str
    kind: Kind
    ranks: tuple[int, ...]
    rank: int | None
    reduction: Reduction = "total"
    root: int | None = None
    sent: tuple[Piece, ...] = ()
    received: tuple[Piece, ...] = ()
    sizes: tuple[int, ...] | None = None
    order: int | None = None
    waited: bool | None = True
    backend: str = ""


class RankCall(Struct, frozen=True):
    """What one rank shall do, as a process of its own: count ranks take part, numbered from 0, all numbers are theirs.

    sent is flat, pieces are the sizes of what it will receive, sizes of what goes to each rank. function, where there
    is one, is called with what is sent: the file of its module, and its name there.
    """

    kind: Kind
    reduction: Reduction
    count: int
    root: int
    sent: AnyArray
    pieces: tuple[int, ...]
    sizes: tuple[int, ...] = ()
    listed: bool = False
    function: tuple[str, str, str] | None = None


class RankStart(Struct, frozen=True):
    """What the process of a rank begins with.

    device is the number of its accelerator on its machine, None where it has
    none; masked: a process that sees one accelerator alone sees its own. meeting is where the ranks find each other:
    file://PATH, or tcp://ADDRESS:PORT, where rank 0 listens by the file descriptor listens. stacks is the file that
    SIGUSR1 writes a stack to.
    """

    rank: int
    ranks: int
    backend: str
    device: int | None
    meeting: str
    stacks: str
    listens: int | None = None
    masked: bool = False


class RankAnswer(Struct, frozen=True):
    """What the process of a rank says: the tensors that it received, or words. "unavailable": it cannot make
    collectives; "lost": its machine has gone, and it may be started elsewhere."""

    kind: Literal["ready", "received", "raised", "unavailable", "died", "lost"]
    value: Any


class RankPool(Protocol):
    """Processes of ranks, by their numbers. Each answers once it is ready, and then each call."""

    def start(self, ranks: int, backend: str, program: str, seconds: float) -> None:
        """Start them, in at most so many seconds. Raises NoKernel where there is no place for them."""

    def send(self, rank: int, call: RankCall) -> None:
        """Have a rank make a call. One that has died answers so."""

    def answers(self, ranks: Collection[int], seconds: float) -> Mapping[int, RankAnswer]:
        """Those of these ranks that come first; none where none comes in so many seconds."""

    def stacks(self, ranks: Sequence[int], seconds: float) -> Sequence[str]:
        """Where these ranks are, innermost first, a line each, in at most so many seconds for all."""

    def close(self) -> None:
        """End all processes."""


class Collectives(Protocol):
    """A framework's part: what its calls of collectives are. Nothing of it is imported.

    PROGRAM is the module that a process of one rank runs; REFERENCES are the words by which a test says what a
    collective computes.
    """

    PROGRAM: str
    REFERENCES: Mapping[str, tuple[Kind, Reduction]]

    def bind(self, name: str, api: str, call: Call, groups: Mapping[str, tuple[int, ...]]) -> tuple[Collective, ...]:
        """What a record of this name and API did: several where it made several at once. groups has the ranks of groups
        by their names in the dump. Raises Unsupported for an API that is none of these, RecordError."""
