"""The entries of the maps that come with pytest-probe, each proved."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as MappingOf

from msgspec import Struct

from benchmarks.mapping import mindspore_cases as mindspore
from benchmarks.mapping.drawing import DrawnCall, Group
from benchmarks.mapping.paddle_cases import CASES, LOOSER, SIGNED, UNINITIALISED
from benchmarks.mapping.proof import LIMIT, How, Pair, Proof, prove
from pytest_probe import frameworks
from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.mapping.entry import Mapping
from pytest_probe.frameworks.mapping.framework import function_at, translation
from pytest_probe.frameworks.mapping.table import Table, packaged


class Subject(Struct, frozen=True):
    """A map, and what proves it: both frameworks, what arguments may be, how an API's calls are compared, and what
    makes a call of each that is drawn for an API."""

    map: str
    both: Callable[[], Pair]
    cases: MappingOf[str, Sequence[Group]]
    how: Callable[[str], How]
    turned: Callable[[str, DrawnCall], DrawnCall | None] = lambda api, call: call


def both() -> Pair:
    return Pair(frameworks.load("paddle"), frameworks.load("pytorch"))


def both_of_mindspore() -> Pair:
    own = frameworks.load("mindspore")
    return Pair(own, frameworks.load("pytorch"), own.device("CPU"))


def taken(entry: Mapping) -> list[str]:
    """The arguments that an entry takes, by the API's own names; those with one right value need no two."""
    signature = entry.takes
    own = {other: own for own, other in signature.aliases.items()}
    names = [*signature.parameters, *([signature.rest] if signature.rest else [])]
    return [own.get(name, name) for name in names if name not in entry.only]


def how_of(api: str) -> How:
    limit, _ = LOOSER.get(api, (LIMIT, ""))
    return How(limit, SIGNED.get(api, ()), api not in UNINITIALISED)


PADDLE = Subject("paddle_torch", both, CASES, how_of)
MINDSPORE = Subject("mindspore_torch", both_of_mindspore, mindspore.CASES, mindspore.how_of, mindspore.turned)


def proofs(wanted: Callable[[str], bool], subject: Subject = PADDLE) -> Iterator[Proof]:
    """Those of the entries whose APIs are wanted."""
    table, pair = packaged(subject.map), subject.both()
    for api in table.entries:
        if wanted(api):
            yield proof_of(api, table, pair, subject)


def proof_of(api: str, table: Table, pair: Pair, subject: Subject = PADDLE) -> Proof:
    groups = subject.cases.get(api)
    if groups is None:
        return Proof(api, 0, 0.0, 0, (), ("no cases",))
    other = translation(table, api, False, pair.other.writes_to)
    turned = functools.partial(subject.turned, api)
    return prove(api, function_at(api), other, taken(table.entries[api]), groups, pair, subject.how(api), turned)


def proofs_back(wanted: Callable[[str], bool]) -> Iterator[Proof]:
    """Those of the other framework's calls, by the entries that are read backwards."""
    table, pair = packaged("paddle_torch"), both()
    for path, (api, entry) in table.back.items():
        if wanted(path):
            yield proof_back(path, api, entry, table, pair)


def proof_back(path: str, api: str, entry: Mapping, table: Table, pair: Pair) -> Proof:
    """The calls that an entry makes are made by its own API again. What has the other one's default is left out of
    every second one: so its defaults are proved, too."""
    forward = translation(table, api, False)
    signature, order = entry.given_back, entry.given_back.parameters[: entry.given_back.placed]

    def turned(call: DrawnCall) -> DrawnCall | None:
        try:
            placed, named = forward.translated(call.args, call.kwargs)
        except Unsupported:
            return None
        given = {**dict(zip(map(str, range(len(placed))), placed, strict=True)), **named}
        short = len(str(call)) % 2
        kept = {
            name: value
            for name, value in given.items()
            if not (short and name in signature.defaults and _is(value, signature.defaults[name]))
        }
        args = [kept.pop(name) for name in itertools.takewhile(lambda name: name in given and name in kept, order)]
        return DrawnCall(tuple(args), kept, {name: call.shown.get(own(name), "") for name in given})

    names = {other: mine for mine, other in entry.takes.aliases.items()}

    def own(name: str) -> str:
        return names.get(name, name)

    back = translation(table, path, True, pair.own.writes_to)
    takes = [name for name in entry.takes.parameters if name not in entry.only]
    turned_pair = Pair(pair.other, pair.own)
    return prove(path, function_at(path), back, takes, CASES[api], turned_pair, how_of(api), turned, function_at(api))


def _is(value: object, default: object) -> bool:
    return type(value) is type(default) and value == default
