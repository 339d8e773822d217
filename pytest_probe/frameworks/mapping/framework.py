"""A framework that makes the calls of another one's records: by the map of both."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from collections.abc import Mapping as MappingOf
from typing import Any

from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.base import API, Framework
from pytest_probe.frameworks.mapping.entry import NO_COUNTERPART, Mapping, Translation, backward, forward
from pytest_probe.frameworks.mapping.table import Table, table_for
from pytest_probe.frameworks.python.binding import works_in_place
from pytest_probe.frameworks.python.framework import PythonFramework
from pytest_probe.model.run import BoundCall


def by_other(record: str, call: str, entries: MappingOf[str, Mapping]) -> Framework:
    """The framework `call` for the records of the framework `record`, which a map of both leads to; entries are the
    user's. Both are names that dumps have. Raises Unsupported where one cannot run here, or no map leads there."""
    own, other = frameworks.load(record), frameworks.load(call)
    found = table_for(frameworks.MODULES[record], frameworks.MODULES[call])
    if found is None and not entries:
        raise Unsupported(f"no map leads from {record} to {call}", NO_COUNTERPART)
    table, reads_back = found or (Table(frameworks.MODULES[record], frameworks.MODULES[call], {}, {}), False)
    kind = type(f"{type(other).__name__}OfOther", (_OfOther, type(other)), {})
    made: Any = kind()
    made.name, made.own, made.table, made.reads_back = record, own, table.with_entries(entries), reads_back
    framework: Framework = made
    return framework


class _OfOther:
    """What of a framework concerns the names and files of records, which are another one's."""

    translates = True
    own: Framework
    table: Table
    reads_back: bool
    writes_to: Callable[[Any, Any], Any]
    package: str

    def candidates(self, namespace: str, api: str, namespaces: MappingOf[str, str]) -> tuple[API, ...]:
        found = self.own.candidates(namespace, api, namespaces)
        made = functools.partial(translation, self.table, reads_back=self.reads_back, writes_to=self.writes_to)
        return tuple(replace(each, lookup=functools.partial(made, path=each.path)) for each in found)

    def apis(self) -> Iterable[str]:
        return self.own.apis()

    completions = PythonFramework.completions
    solved = PythonFramework.solved

    def check_arguments(self, call: BoundCall) -> None:
        self.own.check_arguments(call)

    def bytes_inside(self, name: str, *call: Any) -> int:
        # Found by the API's name: to run what makes the call, torch would import its compiler.
        found: int = super().bytes_inside(name, *call) if self.reads_back else self.own.bytes_inside(name, *call)  # type: ignore[misc]
        return found


def translation(
    table: Table, path: str, reads_back: bool, writes_to: Callable[[Any, Any], Any] | None = None
) -> Translation:
    """What makes the calls of an API by a map. writes_to puts a tensor into another one. Raises Unsupported where the
    map has no entry."""
    found = table.found_back(path) if reads_back else table.found(path)
    package = table.record if reads_back else table.call
    if found is None:
        raise Unsupported(f"{path}: {NO_COUNTERPART} in {package}", NO_COUNTERPART)
    name, entry = found
    special = functools.partial(_dtype, package)
    # An entry of its own says itself what such an API does.
    write = writes_to if works_in_place(path) and not works_in_place(entry.path if reads_back else name) else None
    if reads_back:
        return backward(path, entry, functools.partial(function_at, name), special, write)
    own = entry.function
    return forward(path, entry, lambda: function_at(entry.path) if own is None else own, special, write)


def function_at(path: str) -> Callable[..., Any]:
    """The function of that path now. Raises AttributeError or ImportError without one."""
    module, *parts = path.split(".")
    found: Any = importlib.import_module(module)
    for part in parts:
        found = getattr(found, part)
    made: Callable[..., Any] = found
    return made


def _dtype(package: str, text: str) -> Any:
    """The dtype that a text names, in the framework of this module; any other text as it is."""
    return getattr(importlib.import_module(package), text.rpartition(".")[2], text)
