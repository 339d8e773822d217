"""Which cases of a dump run: by API, call or entry name, by direction, in which dtypes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase

from msgspec import Struct

from pytest_probe.model.dump import Call, Direction, Dump, Record
from pytest_probe.system.text import closest as closest_word

# Names of APIs share many letters.
_ALIKE = 0.8


class Selection(Struct, frozen=True):
    """What runs: names that match a glob of `apis` (all if empty) and none of `skip_apis`.

    white_list and black_list name APIs as a file of msprobe's does, "conv2d"; an empty white_list admits all.
    dtypes holds the dtypes to run in; None stands for the recorded one.
    """

    apis: tuple[str, ...] = ()
    skip_apis: tuple[str, ...] = ()
    directions: tuple[Direction, ...] = ("forward", "backward")
    dtypes: tuple[str | None, ...] = (None,)
    white_list: tuple[str, ...] = ()
    black_list: tuple[str, ...] = ()

    def admits(self, record: Record, direction: Direction) -> bool:
        """Is this direction of the record among what runs?"""
        if direction not in self.directions or not self._listed(record.api):
            return False
        if not (self.apis or self.skip_apis):
            return True
        names = _names(record, direction)
        return (not self.apis or _any_matches(self.apis, names)) and not _any_matches(self.skip_apis, names)

    def names(self, api: str) -> bool:
        """Is this API ("Functional.softmax") named, by itself or by a glob, and not left out?"""
        names = (api.rpartition(".")[2], api.partition(".")[2], api)
        return _any_matches(self.apis, names) and not _any_matches(self.skip_apis, names) and self._listed(names[1])

    def _listed(self, api: str) -> bool:
        names = {api, api.rpartition(".")[2]}
        return names.isdisjoint(self.black_list) and (not self.white_list or not names.isdisjoint(self.white_list))


def matches(glob: str, records: Iterable[Record]) -> bool:
    """Does a glob match any of the records, in any direction?"""
    return any(
        _any_matches((glob,), _names(record, direction)) for record in records for direction in record.directions
    )


def apis_of(dumps: Iterable[Dump]) -> set[str]:
    """The APIs that the dumps have records of, as "Functional.linear"."""
    return {f"{record.namespace}.{record.api}" for dump in dumps for record in dump.records}


def _by_name(apis: Iterable[str]) -> Mapping[str, str]:
    """The APIs by their names in lower case, with the first part and without."""
    return {known.casefold(): api for api in apis for known in (api.partition(".")[2], api)}


def closest(name: str, apis: Iterable[str]) -> str:
    """The API that was meant, with its first part or without, as the end of a sentence; "" where none is close."""
    names = _by_name(apis)
    found = closest_word(names, name, _ALIKE)
    return f"; did you mean {names[found]}?" if found else ""


def nearest(glob: str, apis: Iterable[str]) -> list[str]:
    """At most three APIs whose name, with its first part or without, is near to a glob; the nearest first."""
    names = _by_name(apis)
    plain = re.sub(r"[*?\[\]]", "", glob).casefold()
    return list(dict.fromkeys(names[found] for found in get_close_matches(plain, names, n=3, cutoff=0.5)))


def _names(record: Record, direction: Direction) -> tuple[str, ...]:
    return record.api, f"{record.namespace}.{record.api}", record.name, f"{record.name}.{direction}"


def select(
    dump: Dump, selection: Selection, floating: Callable[[Call], tuple[str, ...]]
) -> Iterator[tuple[Record, Direction, str | None]]:
    """The cases of a dump: forward before backward, record by record; dtype None is the recorded one.

    floating gives the floating dtypes of a decoded record. A record is decoded only where another dtype is asked for.
    """
    for record in dump.records:
        directions = [direction for direction in record.directions if selection.admits(record, direction)]
        if not directions:
            continue
        for dtype in _dtypes(dump, record, selection.dtypes, floating):
            for direction in directions:
                yield record, direction, dtype


def _any_matches(globs: tuple[str, ...], names: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs for name in names)


def _dtypes(
    dump: Dump, record: Record, wanted: tuple[str | None, ...], floating: Callable[[Call], tuple[str, ...]]
) -> tuple[str | None, ...]:
    """The wanted dtypes, without duplicates: one that equals the recorded dtype is the recorded one."""
    if wanted == (None,):
        return wanted
    call = dump.readable(record)
    recorded = () if call is None else floating(call)
    if not recorded:
        return (None,)
    return tuple(dict.fromkeys(None if (dtype,) == recorded else dtype for dtype in wanted))
