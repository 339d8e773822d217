"""The packaged tables, as YAML, and what classes.yaml says of an API by its canonical name."""

from __future__ import annotations

import functools
from fnmatch import fnmatchcase
from importlib import resources
from typing import TypeVar

import msgspec

T = TypeVar("T")


def packaged_table(name: str, kind: type[T]) -> T:
    """The table of a name ("classes", "tools/ptdbg"), read anew. msgspec reads by libyaml where PyYAML has it."""
    return msgspec.yaml.decode(resources.files(__name__).joinpath(f"{name}.yaml").read_bytes(), type=kind)


@functools.cache
def classes_of(name: str) -> frozenset[str]:
    """The classes of an API. An entry with a detail ("conv2d@float16", "dropout3d@4") gives "class@detail"."""
    return frozenset(
        f"{kind}@{detail}" if detail else kind
        for kind, entries in _classes().items()
        for entry in entries
        for listed, _, detail in (entry.partition("@"),)
        if listed == name or ("*" in listed and fnmatchcase(name, listed))
    )


@functools.cache
def does_work(name: str) -> bool:
    """Does an API do more than to fill, to draw or to copy?"""
    return classes_of(name).isdisjoint(("moves", "fills", "uninitialised", "random"))


@functools.cache
def details(classes: frozenset[str], kind: str) -> tuple[str, ...]:
    """The details of the entries of one class, sorted: ("target",) of "labels@target"."""
    return tuple(sorted(entry.removeprefix(f"{kind}@") for entry in classes if entry.startswith(f"{kind}@")))


def adds_products(classes: frozenset[str]) -> bool:
    """Does the API multiply two operands, and add up?"""
    return "scaled_products" in classes or bool(details(classes, "contraction"))


def names() -> frozenset[str]:
    """All names that the table has, globs aside."""
    listed = {entry.partition("@")[0] for entries in _classes().values() for entry in entries}
    return frozenset(name for name in listed if "*" not in name)


@functools.cache
def _classes() -> dict[str, tuple[str, ...]]:
    table = packaged_table("classes", dict[str, list[str]])
    return {kind: tuple(" ".join(lines).split()) for kind, lines in table.items()}
