"""The entries of the map that comes with pytest-probe, each proved."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.mapping.paddle_cases import CASES, LOOSER, SIGNED, UNINITIALISED
from benchmarks.mapping.proof import LIMIT, How, Pair, Proof, prove
from pytest_probe import frameworks
from pytest_probe.frameworks.mapping.entry import Mapping
from pytest_probe.frameworks.mapping.framework import function_at, translation
from pytest_probe.frameworks.mapping.table import Table, packaged


def both() -> Pair:
    return Pair(frameworks.load("paddle"), frameworks.load("pytorch"))


def taken(entry: Mapping) -> list[str]:
    """The arguments that an entry takes, by the API's own names; those with one right value need no two."""
    signature = entry.takes
    own = {other: own for own, other in signature.aliases.items()}
    names = [*signature.parameters, *([signature.rest] if signature.rest else [])]
    return [own.get(name, name) for name in names if name not in entry.only]


def proofs(wanted: Callable[[str], bool]) -> Iterator[Proof]:
    """Those of the entries whose APIs are wanted."""
    table, pair = packaged("paddle_torch"), both()
    for api in table.entries:
        if wanted(api):
            yield proof_of(api, table, pair)


def proof_of(api: str, table: Table, pair: Pair) -> Proof:
    groups = CASES.get(api)
    if groups is None:
        return Proof(api, 0, 0.0, 0, (), ("no cases",))
    other = translation(table, api, False, pair.other.writes_to)
    return prove(api, function_at(api), other, taken(table.entries[api]), groups, pair, how_of(api))


def how_of(api: str) -> How:
    limit, _ = LOOSER.get(api, (LIMIT, ""))
    return How(limit, SIGNED.get(api, ()), api not in UNINITIALISED)
