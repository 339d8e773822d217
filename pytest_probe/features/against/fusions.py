"""Calls that one side makes in one piece and the other in several, as q, k and v, by the rules of a map; and names of
records and modules without what wrappers and other frameworks make of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeAlias

from pytest_probe.features.against.dump_map import DumpMap, Fusion
from pytest_probe.model.dump import Dump, Record
from pytest_probe.records import module_path

# The module around, the API, and which call of it in that module.
_Place: TypeAlias = tuple[str, str, int]


def fused(a: Dump, b: Dump, given: DumpMap) -> Iterator[tuple[Fusion, tuple[Record, ...], Record]]:
    """For each rule and each place where both sides have its calls: the rule, the parts in its order, and the whole."""
    for rule in given.fusions:
        parts_of, whole_of = (a, b) if rule.of_a else (b, a)
        to_parts, to_whole = (given.renamed, str) if rule.of_a else (str, given.renamed)
        wholes = _places(whole_of, rule.whole, to_whole)
        parts = [_places(parts_of, name, to_parts) for name in rule.parts]
        for place, whole in wholes.items():
            if all(place in found for found in parts):
                yield rule, tuple(found[place] for found in parts), whole


def _places(dump: Dump, name: str, renamed: Callable[[str], str]) -> dict[_Place, Record]:
    """The calls in modules of a name, each by its place."""
    found: dict[_Place, Record] = {}
    numbers = Counter[tuple[str, str]]()
    for record in (*dump.records, *dump.compare_only):
        around, _, own = module_of(record, dump).rpartition(".")
        if own == name:
            # A module's class, or an API.
            key = renamed(around), f"{record.namespace}.{record.api.rpartition('.')[2]}"
            found[(*key, numbers[key])] = record
            numbers[key] += 1
    return found


def names_of(dump: Dump) -> set[str]:
    """What the globs of a map are matched with: entries, records and modules."""
    records = (*dump.records, *dump.compare_only)
    ways = ("", ".forward", ".backward")
    return {module_of(record, dump) for record in records} | {f"{each.name}{way}" for each in records for way in ways}


def module_of(record: Record, dump: Dump) -> str:
    """The path of the module that a record is, or whose call it is, without wrappers; "" where the dump has none."""
    if record.namespace in ("Module", "Cell"):
        return plain_module(record.api.rpartition(".")[0])
    modules = dump.modules(f"{record.name}.forward")
    return plain_module(module_path(modules[0])) if modules else ""


# What wrappers put before the names of a module's parts: torch.compile, FSDP, DistributedDataParallel.
_WRAPPERS = re.compile(r"(?:(?<=\.)|^)(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|module)\.")
# What compilers and FSDP make of a class's name.
_CLASSES = re.compile(r"(?<=\.)(?:FSDP|OptimizedModule|DistributedDataParallel|DDP)(?=[A-Z][a-z])")


def record_name(record: Record, dump: Dump) -> str:
    """A record's name; of a module's without wrappers."""
    return plain_module(record.name) if record.namespace in ("Module", "Cell") else record.name


def plain_module(name: str) -> str:
    """A module's name, as "Module.layers.0.fc.Linear.0", without what wrappers add to it."""
    start, dot, rest = name.partition(".")
    if not dot or start not in ("Module", "Cell"):
        return _CLASSES.sub("", _WRAPPERS.sub("", name))
    return f"{start}.{_CLASSES.sub('', _WRAPPERS.sub('', rest))}"
