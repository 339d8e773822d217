"""The map of a pair of frameworks: its entries, from the files of its folder and from the user, and which an API has.

A pair is a folder next to this file, called by both frameworks' modules: `__init__.py` says how the names of both are
spelled, each YAML file has entries, and the module of its name what makes a call where no single API corresponds. An
entry says that itself where it is one expression of the module's names and of the call's arguments:

    paddle.abs: torch.abs(input/x)
    paddle.tile: {call: tile(x repeat_times), result: "torch.tile(x, ints(repeat_times))"}
    paddle.nn.functional.gelu:
      call: torch.nn.functional.gelu(input/x | approximate=False)
      values: {approximate: {False: none, True: tanh}}
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from collections.abc import Mapping as MappingOf
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from pytest_probe.errors import SettingsError
from pytest_probe.frameworks.mapping.entry import Mapping, literal
from pytest_probe.frameworks.python.binding import works_in_place
from pytest_probe.system.yaml_file import YamlFile, read_yaml

PAIRS = ("paddle_torch",)
_VALUES = Annotated[dict[str, dict[str, str]], Meta(description="give by parameter what values are by the own ones")]
_ONLY = Annotated[dict[str, str], Meta(description="give by parameter the only value that may be left out")]
_NAMES = Annotated[tuple[str, ...], Meta(description="give a list of parameters, as [epsilon]")]


class _Written(Struct, frozen=True, forbid_unknown_fields=True):
    """An entry as a file has it."""

    call: Annotated[str, Meta(description="give a call, as torch.sum(input/x dim/axis=None)")]
    result: Annotated[str, Meta(description="give a Python expression, as (x * y).sum(-1)")] = ""
    back: str = ""
    values: _VALUES = {}
    only: _ONLY = {}
    single: _NAMES = ()
    constant: _NAMES = ()
    outputs: Annotated[str, Meta(description="give the place of an output, or a list of them, as [0, 1]")] = ""
    one_way: Annotated[str, Meta(description="give true, or leave it out")] = ""

    def entry(self, functions: str) -> Mapping:
        """Raises ValueError for a text that is no call, or that names no API."""
        made = Mapping(
            self.call,
            back=self.back,
            values={
                name: {literal(own): literal(other) for own, other in found.items()}
                for name, found in self.values.items()
            },
            only={name: literal(value) for name, value in self.only.items()},
            single=self.single,
            constant=self.constant,
            outputs=literal(self.outputs) if self.outputs else None,
            one_way=self.one_way == "true",
        )
        if "." in made.path and not self.result:
            return made
        if not functions:
            only = "only pytest-probe's own maps have a result" if self.result else ""
            raise ValueError(only or "it names no API with its module, as torch.sum")
        if self.result:
            return replace(made, function=functools.partial(_result, functions, self.result))
        return replace(made, function=functools.partial(_called, functions, made.path))


def _result(module: str, expression: str, /, **given: Any) -> Any:
    """What an expression gives that knows the names of a module, and the arguments of a call."""
    return eval(expression, {**vars(importlib.import_module(module)), **given})


def _called(module: str, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function of a module. It imports a framework, which names of APIs do without."""
    return getattr(importlib.import_module(module), name)(*args, **kwargs)


class Table(Struct, frozen=True, dict=True):
    """The map of one pair: entries by the APIs of the framework `record`, whose calls the framework `call` makes too.
    Both are modules ("paddle"). spellings leads from the beginning of a name to others that mean the same."""

    record: str
    call: str
    entries: MappingOf[str, Mapping]
    spellings: MappingOf[str, tuple[str, ...]]

    def found(self, path: str) -> tuple[str, Mapping] | None:
        """The entry of an API ("paddle.Tensor.sum"), with the name that it stands under; None without one."""
        name = next((name for name in self.names(path) if name in self.entries), None)
        return None if name is None else (name, self.entries[name])

    def found_back(self, path: str) -> tuple[str, Mapping] | None:
        """The entry whose call an API of the other framework is, with the name of the own API."""
        return next((self.back[name] for name in self.names(path) if name in self.back), None)

    def names(self, path: str) -> Iterator[str]:
        """An API's name, and others that mean the same; one that works in place comes without its mark behind them."""
        for name in (path, path.removesuffix("_")) if works_in_place(path) else (path,):
            yield name
            yield from self.spellings.get(name, ())
            module, _, last = name.rpartition(".")
            for spelling in self.spellings.get(module, ()):
                yield f"{spelling}.{last}"

    def with_entries(self, entries: MappingOf[str, Mapping]) -> Table:
        """It with a user's entries before its own."""
        return Table(self.record, self.call, {**entries, **self.entries, **entries}, self.spellings)

    @functools.cached_property
    def back(self) -> MappingOf[str, tuple[str, Mapping]]:
        """By the other framework's APIs the entries that make their calls, with the names of the own APIs."""
        found: dict[str, tuple[str, Mapping]] = {}
        for name, entry in self.entries.items():
            if entry.reverses:
                found.setdefault(entry.path, (name, entry))
        return found


@functools.cache
def packaged(pair: str) -> Table:
    """The map that comes with pytest-probe. It imports no framework."""
    names = importlib.import_module(f"{__package__}.{pair}")
    entries: dict[str, Mapping] = {}
    for path in sorted(Path(str(names.__file__)).parent.glob("*.yaml")):
        entries |= entries_of(path, f"{__package__}.{pair}.{path.stem}")
    return Table(names.RECORD, names.CALL, entries, names.SPELLINGS)


def table_for(record: str, call: str) -> tuple[Table, bool] | None:
    """The map by which a framework makes another one's calls, and whether it is read backwards; None without
    one. Both are modules."""
    for pair in PAIRS:
        first, second = pair.split("_")
        if {first, second} == {record, call}:
            return packaged(pair), first != record
    return None


def entries_of(path: Path, functions: str = "") -> dict[str, Mapping]:
    """The entries of a file. functions names the module of what makes calls where no single API corresponds. Raises
    SettingsError with file, line and key."""
    file = read_yaml(path, "entries of a map")
    if file is None:
        return {}
    content = file.decoded(file.content, dict[str, Any])
    return {api: _entry(file, api, content[api], functions) for api in content}


def _entry(file: YamlFile, api: str, content: Any, functions: str) -> Mapping:
    written = _Written(content) if isinstance(content, str) else file.decoded(content, _Written, (api,))
    try:
        return written.entry(functions)
    except ValueError as error:
        where = f"{file.place((api,) if isinstance(content, str) else (api, 'call'))}: {api}: call"
        raise SettingsError(where, written.call, str(error)) from None
