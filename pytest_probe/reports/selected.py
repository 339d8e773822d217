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

from pytest_probe.errors import ResultsError, SettingsError
from pytest_probe.model.result import PortableId
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


class _Selected(msgspec.Struct, frozen=True):
    """What run.json says of the list: how many items it has, and its SHA-256."""

    count: int
    digest: str


class RunEnd(msgspec.Struct, frozen=True):
    """What run.json says that decides which results there must be. without_result: cases that ended without one, since
    a fixture or a hook of the project kept them from running."""

    finished: str | None = None
    not_run: int | None = None
    selected: _Selected | None = None
    without_result: tuple[str, ...] = ()


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


class _Faults(Struct, frozen=True):
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


def read_items(folder: Path, selected: _Selected | None = None) -> Items:
    """Raises OSError, and ResultsError where the file is damaged or is not the list that run.json knows."""
    with open_regular(folder / ITEMS) as file:
        content = file.read()
    if selected is not None and _selected(content, selected.count) != selected:
        raise ResultsError(str(folder / ITEMS), "it is not the list of the run that run.json describes")
    try:
        return Items(tuple(msgspec.json.decode(content, type=list[SelectedItem])))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ResultsError(str(folder / ITEMS), str(error)) from None


def selected_in(folder: Path) -> _Selected:
    """The digest and the number of the list in a folder. Raises OSError, and ResultsError."""
    with open_regular(folder / ITEMS) as file:
        content = file.read()
    return _selected(content, len(read_items(folder).found))


def _selected(content: bytes, count: int) -> _Selected:
    return _Selected(count, f"sha256:{hashlib.sha256(content).hexdigest()}")


def ids_in(path: Path, size: float = math.inf) -> Iterator[str]:
    """The ids of the results in the first bytes of a file; a line that was cut off at the end is no result. Raises
    OSError, and ResultsError."""
    decoder = msgspec.json.Decoder(_Named)
    with open_regular(path) as file:
        for number, line in enumerate(file, 1):
            size -= len(line)
            if size < 0 or not line.endswith(b"\n"):
                return
            try:
                yield decoder.decode(line).id
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ResultsError(f"{path}:{number}", str(error)) from None


def faults(items: Items, results: Iterable[str], without_result: Collection[str] = ()) -> _Faults:
    """What is wrong with these ids of results."""
    counts = Counter(results)
    missing = (item.id for item in items.found if item.is_case and item.id not in counts)
    return _Faults(
        tuple(id for id in missing if id not in without_result),
        tuple(id for id, count in counts.items() if count > 1),
        tuple(id for id in counts if items.of(id) is None),
    )


def check_results(option: str, results: Path, run: RunEnd, *, early: bool = True) -> str:
    """Does the file have the results that run.json names? early: some may be missing from a run that ended early.

    What is to be said of a run that ended early, "" of a whole one. Raises SettingsError, which names cases.
    """
    folder = results.parent
    try:
        items = read_items(folder, run.selected) if run.selected is not None else Items(())
        found = faults(items, ids_in(results), run.without_result)
    except OSError as error:
        wanted = f"{error.filename} cannot be read ({error.strerror})"
        raise SettingsError(option, str(folder), wanted) from None
    except ResultsError as error:
        raise SettingsError(option, str(folder), str(error)) from None
    # Nobody knows how many cases a killed run did not run.
    allowed = (len(found.missing) if run.finished is None else run.not_run or 0) if early else 0
    missing = found.missing if len(found.missing) > allowed else ()
    for line in fault_lines(_Faults(missing, found.doubled, found.foreign)):
        wanted = "go on with --probe-resume, which runs such cases again, or give the folder of a whole run"
        raise SettingsError(option, str(folder), f"{line}; {wanted}")
    return _early_end(run, len(items.found), len(found.missing))


def _early_end(run: RunEnd, items: int, missing: int) -> str:
    if run.finished is not None and not run.not_run:
        return ""
    if run.selected is None:
        return "its run ended early, before its cases were known"
    return f"its run ended early: {missing if run.finished is None else run.not_run:,} of {items:,} cases are missing"


def fault_lines(found: _Faults) -> Iterator[str]:
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


def end_of(path: Path) -> RunEnd:
    """The end of a run, from its run.json. Raises OSError, and ResultsError."""
    try:
        with open_regular(path) as file:
            return msgspec.json.decode(file.read(), type=RunEnd)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ResultsError(str(path), str(error)) from None
