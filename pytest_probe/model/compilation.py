"""What a compiler made of a call: plain data for a result."""

from __future__ import annotations

from msgspec import Struct


class Compilation(Struct, frozen=True, omit_defaults=True):
    """graphs, kernels and external say what was compiled: graphs that were traced, kernels that were generated, and
    calls of library kernels in their place; None where nobody counts them. seconds is the time that it took in this
    case: 0 where a case before it had the same call."""

    backend: str = ""
    graphs: int | None = None
    kernels: int | None = None
    external: int | None = None
    seconds: float = 0.0

    def since(self, before: Compilation) -> Compilation:
        """What was compiled after another count."""
        return Compilation(
            self.backend,
            _difference(self.graphs, before.graphs),
            _difference(self.kernels, before.kernels),
            _difference(self.external, before.external),
            self.seconds - before.seconds,
        )

    def with_more(self, more: Compilation) -> Compilation:
        """Both together; the time is that of the second."""
        return Compilation(
            more.backend,
            _sum(self.graphs, more.graphs),
            _sum(self.kernels, more.kernels),
            _sum(self.external, more.external),
            more.seconds,
        )

    def __str__(self) -> str:
        counted = (("graph", self.graphs), ("kernel", self.kernels), ("external call", self.external))
        words = [f"{count:,} {name}{'s' * (count != 1)}" for name, count in counted if count]
        return f"compiled by {self.backend}{': ' * bool(words)}{', '.join(words)}"


def _difference(count: int | None, before: int | None) -> int | None:
    return None if count is None or before is None else count - before


def _sum(count: int | None, more: int | None) -> int | None:
    return more if count is None or more is None else count + more
