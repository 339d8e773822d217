"""Numbers of the reference side that a later run may take over, and how a run of the reference becomes such. This room
asks; the feature `cache` keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from pytest_probe.model.case import Case
from pytest_probe.model.run import Leaf, Run, Wanted
from pytest_probe.numerics.arrays import is_reference_array, reference_array
from pytest_probe.numerics.dtypes import AnyArray

if TYPE_CHECKING:
    from pytest_probe.check.engines import Engines


class CachedResult(Struct, frozen=True):
    """Numbers as they are kept: arrays and Python's own by name, and other data, in JSON's types."""

    values: Mapping[str, Any]
    other: Any = None


Made = TypeVar("Made")
Keep = Callable[[Made], CachedResult | None]


class CachedResults(Protocol):
    """What is kept of the reference side of one case."""

    @property
    def package(self) -> str:
        """The framework's, whose own functions are known by their path."""

    def description(self, function: Callable[..., Any]) -> bytes | None:
        """What tells a function from others of its name; None where it is not the framework's own."""

    def key(self, value: Any) -> bytes | None:
        """The digest of plain data and arrays; None where a value in it cannot be digested."""

    def of(
        self, key: bytes, what: Any, compute: Callable[[], Made], keep: Keep[Made], take: Callable[[CachedResult], Made]
    ) -> Made:
        """What was kept under a key and what further tells it apart, else what is computed now. Raises what that
        raises.

        keep turns what was computed into numbers, None for what is not worth it, take does the opposite.
        """

    def close(self) -> None:
        """Keep what was computed, with what an earlier run has kept."""


class ReferenceCache(Protocol):
    """What keeps numbers of the reference side of many cases."""

    def results(self, engines: Engines, case: Case) -> CachedResults | None:
        """What earlier runs kept of a case's reference side; None where nothing can be kept of it."""


OUTPUT, AFTER = "output of ", "after the call "


def kept_run(run: Run, leaves: Mapping[str, Leaf], wanted: Wanted | None) -> CachedResult:
    """Outputs, and those of the arguments that are others afterwards."""
    after = {name: run.after(name) for name in leaves}
    changed = [
        name
        for name, value in after.items()
        if name in run.changed or not is_reference_array(value, leaves[name].array)
    ]
    values: dict[str, Any] = {f"{OUTPUT}{name}": value for name, value in run.outputs.items()}
    values |= {f"{AFTER}{name}": after[name] for name in changed}
    other = {
        "changed": changed,
        "returned": run.returned,
        "differentiable": run.differentiable,
        "wanted": None if wanted is None else [sorted(wanted.names), wanted.copies, wanted.grad],
    }
    return CachedResult(values, other)


def taken_run(kept: CachedResult, leaves: Mapping[str, Leaf]) -> tuple[Run, Wanted | None]:
    """The run without a graph: gradients are kept for themselves."""

    def after(name: str) -> AnyArray:
        found = kept.values.get(f"{AFTER}{name}")
        return reference_array(leaves[name].array) if found is None else found

    other = kept.other
    outputs = {name.removeprefix(OUTPUT): value for name, value in kept.values.items() if name.startswith(OUTPUT)}
    wanted = None if other["wanted"] is None else Wanted(frozenset(other["wanted"][0]), *other["wanted"][1:])
    run = Run(outputs, frozenset(other["changed"]), after, other["returned"], tuple(other["differentiable"]))
    return run, wanted
