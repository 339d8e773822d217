"""The overflows that `finite` finds, the standard or the question of `self`: how many of which kind, and the first that
nothing explains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from msgspec import Struct, field

from pytest_probe.model.dump import Frame
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import OVERFLOW
from pytest_probe.standards.finite import INHERITED
from pytest_probe.system.text import printable

# The worst kind of a record's outputs decides; these are no fault of a device.
_ORDER = ("normal", "saturated", "missed", "abnormal")
_HARMLESS = ("normal", "inherited", "saturated")
# Finds the place of a record in its dump, and the user's frame that made the call.
Place = Callable[[PortableId], tuple[tuple[int, ...], Frame | None]]


class Overflows(Struct):
    """The records that overflow, by their ids, each with its kind."""

    kinds: dict[PortableId, str] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        found = [str(output.metrics[OVERFLOW]) for output in result.outputs if OVERFLOW in output.metrics]
        kind = "inherited" if result.kind == INHERITED else max(found, key=_rank, default="")
        if kind:
            self.kinds[result.portable_id] = kind
        else:
            self.kinds.pop(result.portable_id, None)  # an attempt that was repeated

    def lines(self, place: Place, *, each: bool) -> Iterator[str]:
        """Text for the summary, in the order of the dumps: with a sentence of msprobe's for each record, or without."""
        if not self.kinds:
            return
        counts = Counter(self.kinds.values())
        kinds = (*_ORDER, "inherited")
        yield "overflows: " + ", ".join(f"{counts[kind]:,} {kind}" for kind in kinds if counts[kind])
        ordered = sorted(self.kinds, key=lambda id: (id.label, place(id)[0]))
        for id in ordered if each else ():
            kind = self.kinds[id]
            if kind != "inherited":
                # As msprobe names a call: without the direction, where that is forward.
                called = id.name.removesuffix(".forward")
                yield f"The {called} overflow is {'a normal' if kind == 'normal' else 'an abnormal'} overflow."
        first = next((id for id in ordered if self.kinds[id] not in _HARMLESS), None)
        if first is not None:
            yield f"first {self.kinds[first]}: {first}"
            frame = place(first)[1]
            if frame is not None:
                yield printable(f"  called at {frame.description}")


def _rank(kind: str) -> int:
    return _ORDER.index(kind) if kind in _ORDER else -1
