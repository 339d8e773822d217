"""Which items a run selected, and whether a results file has each of them once: `items.json` of --probe-out."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import Struct

from pytest_probe.errors import ResultsError
from pytest_probe.model.result import PortableId
from pytest_probe.reports.results_file import decoded, read_lines
from pytest_probe.system.files import open_regular, replacing

ITEMS = "items.json"
_MAX_NAMED = 5


class SelectedItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An item of a run: its portable id, or the node id of a test; its place in the run, of a shard in the run without
    shards; its node id."""

    id: str
    place: int
    node: str

    @property
    def is_case(self) -> bool:
        """Has it one result by its own id? A test has as many as it makes checks."""
        return not is_of_test(self.id)


class Selected(msgspec.Struct, frozen=True):
    """What run.json says of the list: how many items it has, and its SHA-256."""

    count: int
    digest: str


class _Named(msgspec.Struct, frozen=True):
    id: str


class Items(Struct, frozen=True, dict=True):
    """The items of a folder by their ids; None where its run ended before they were known."""

    found: tuple[SelectedItem, ...]

    @cached_property
    def by_id(self) -> Mapping[str, SelectedItem]:
        return {item.id: item for item in self.found}

    def of(self, result: str) -> SelectedItem | None:
        """The item of a result by its id; None where the run did not select it."""
        return self.by_id.get(result.rpartition("::")[0] if is_of_test(result) else result)


class Faults(Struct, frozen=True):
    """Ids by what is wrong with their results. missing: a case has none."""

    missing: tuple[str, ...]
    doubled: tuple[str, ...]
    foreign: tuple[str, ...]


def is_of_test(name: str) -> bool:
    """Is it of a test of the user's own, rather than of a case of a dump?"""
    return PortableId.parse(name).label.endswith(".py")


def write_items(folder: Path, items: Sequence[SelectedItem]) -> None:
    """Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / ITEMS) as temporary:
        temporary.write_bytes(msgspec.json.encode(items))


def read_items(folder: Path, selected: Selected | None = None) -> Items:
    """Raises OSError, and ResultsError where the file is damaged or is not the list that run.json knows."""
    with open_regular(folder / ITEMS) as file:
        content = file.read()
    if selected is not None and _selected(content, selected.count) != selected:
        raise ResultsError(str(folder / ITEMS), "it is not the list of the run that run.json describes")
    return Items(tuple(decoded(content, msgspec.json.Decoder(list[SelectedItem]), str(folder / ITEMS))))


def selected_in(folder: Path) -> Selected:
    """The digest and the number of the list in a folder. Raises OSError, and ResultsError."""
    with open_regular(folder / ITEMS) as file:
        content = file.read()
    return _selected(content, len(read_items(folder).found))


def _selected(content: bytes, count: int) -> Selected:
    return Selected(count, f"sha256:{hashlib.sha256(content).hexdigest()}")


def ids_in(path: Path, size: float = math.inf) -> Iterator[str]:
    """The ids of the results in the first bytes of a file; a line that was cut off at the end is no result. Raises
    OSError, and ResultsError."""
    return (named.id for named in read_lines(path, _Named, size))


def faults(items: Items, results: Iterable[str], without_result: Collection[str] = ()) -> Faults:
    """What is wrong with these ids of results."""
    counts = Counter(results)
    missing = (item.id for item in items.found if item.is_case and item.id not in counts)
    return Faults(
        tuple(id for id in missing if id not in without_result),
        tuple(id for id, count in counts.items() if count > 1),
        tuple(id for id in counts if items.of(id) is None),
    )


def fault_lines(found: Faults) -> Iterator[str]:
    """A line for each kind of fault."""
    for ids, words in (
        (found.missing, "without a result"),
        (found.doubled, "with more than one result"),
        (found.foreign, "that its run did not select"),
    ):
        if ids:
            yield f"it has {len(ids):,} case{'s' * (len(ids) > 1)} {words}: {id_list(ids)}"


def id_list(ids: Sequence[str]) -> str:
    """The first few, and how many there are besides."""
    more = f" and {len(ids) - _MAX_NAMED:,} more" if len(ids) > _MAX_NAMED else ""
    return ", ".join(ids[:_MAX_NAMED]) + more
