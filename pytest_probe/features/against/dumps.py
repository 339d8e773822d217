"""Which dumps of the other side belong to which of this one: by the numbers of steps and ranks, else by their order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from pytest_probe.errors import SettingsError
from pytest_probe.records.labels import natural_order

OPTION = "--probe-against"
_STEP = re.compile(r"(?:^|[^a-z])(?:step|pass)_?(\d+)", re.I)
_RANK = re.compile(r"(?:^|[^a-z])(?:rank|proc)_?(\d+)", re.I)


class Counterpart(Struct, frozen=True):
    """What a dump of A is compared with: a dump of B, which holds what `of_a` dumps of A hold together; or several,
    `of_b`, which together hold what this one holds. index is this dump's place among those of A."""

    b: Path
    of_a: tuple[Path, ...] = ()
    of_b: tuple[Path, ...] = ()
    index: int = 0


def counterparts(here: Sequence[Path], there: Sequence[Path], *, in_parts: bool) -> dict[Path, Counterpart]:
    """That of each dump of A; of the steps that both sides have, where they have one in common. in_parts: ranks of one
    side may hold parts of what the other side holds.

    Raises SettingsError, with both lists, where the numbers of dumps do not fit.
    """
    # The dumps of each step, in the order of their ranks.
    steps: list[dict[int, list[Path]]] = [{}, {}]
    for found, side in zip(steps, (here, there), strict=True):
        for path in sorted(side, key=lambda path: (_last(_STEP, path), _last(_RANK, path), natural_order(path))):
            found.setdefault(_last(_STEP, path), []).append(path)
    common = steps[0].keys() & steps[1].keys()
    if common:
        steps = [{step: dumps for step, dumps in side.items() if step in common} for side in steps]
    else:
        alike = len(steps[0]) == len(steps[1])
        steps = [dict(enumerate(step.values())) for step in steps] if alike else [{0: [*here]}, {0: [*there]}]
    return dict(pair for step, dumps in steps[0].items() for pair in _of_step(dumps, steps[1][step], in_parts=in_parts))


def _of_step(a: Sequence[Path], b: Sequence[Path], *, in_parts: bool) -> Iterator[tuple[Path, Counterpart]]:
    if len(a) == len(b):
        yield from ((path, Counterpart(other)) for path, other in zip(a, b, strict=True))
    elif in_parts and len(a) % len(b) == 0:
        count = len(a) // len(b)
        for place, path in enumerate(a):
            first = place - place % count
            yield path, Counterpart(b[place // count], of_a=tuple(a[first : first + count]), index=place % count)
    elif in_parts and len(b) % len(a) == 0:
        count = len(b) // len(a)
        for place, path in enumerate(a):
            parts = tuple(b[place * count : (place + 1) * count])
            yield path, Counterpart(parts[0], of_b=parts)
    else:
        layout = 'or, if ranks hold parts of tensors, a map with dims: {"*": auto} (--probe-against-map)'
        here, there = (", ".join(map(str, paths)) for paths in (a, b))
        wanted = f"give as many on both sides, {layout}; A: {here}; B: {there}"
        raise SettingsError(OPTION, f"{len(b)} dumps beside {len(a)}", wanted)


def _last(pattern: re.Pattern[str], path: Path) -> int:
    """The last such number in a path; -1 where there is none."""
    found = [number for part in path.parts for number in pattern.findall(part)]
    return int(found[-1]) if found else -1
