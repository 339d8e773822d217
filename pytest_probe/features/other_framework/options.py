"""What --probe-framework, --probe-reference-framework and --probe-mapping name, and what goes with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_probe import frameworks
from pytest_probe.errors import SettingsError
from pytest_probe.frameworks.mapping import Mapping
from pytest_probe.frameworks.mapping.framework import function_at
from pytest_probe.frameworks.mapping.table import entries_of, place_of
from pytest_probe.option_types import Given, Type
from pytest_probe.settings import RawOptions, Settings
from pytest_probe.system.suggestions import suggestion

MAPPING = "--probe-mapping"


class Framework(Type):
    """A framework, as its module is called; None without one."""

    def read(self, given: Given) -> str | None:
        if not given.text:
            return None
        found = [module for name, module in frameworks.MODULES.items() if not frameworks.unavailable(name)]
        if given.text not in frameworks.MODULES.values():
            near = suggestion(found, given.text)
            raise given.wrong(f"give one of those that are installed here: {', '.join(found) or 'none is'}{near}")
        missing = frameworks.unavailable(frameworks.named(given.text))
        if missing:
            raise given.wrong(f"{missing}; installed here: {', '.join(found) or 'none'}")
        return given.text


def check_mapping(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError, with file, line and key, for an entry whose APIs or arguments do not exist."""
    assert settings.mapping is not None
    for api, entry in entries_of(settings.mapping).items():
        _check_entry(settings.mapping, api, entry)


def _check_entry(path: Path, api: str, entry: Mapping) -> None:
    def where(key: str = "") -> str:
        return f"{MAPPING}: {place_of(path, api, key)}: {api}{f': {key}' if key else ''}"

    function = _function(where(), api)
    other = _function(where("call"), entry.path)
    names = {other: own for own, other in entry.takes.aliases.items()}
    for name in entry.takes.parameters:
        own = names.get(name, name)
        if not _takes(function, own):
            raise SettingsError(where("call"), own, f"{api} takes no such argument; {_signature(function)}")
        if not name.isdigit() and name not in entry.only and not _takes(other, name):
            raise SettingsError(where("call"), name, f"{entry.path} takes no such argument; {_signature(other)}")
    for key, given in (("values", entry.values), ("only", entry.only), ("single", entry.single)):
        for name in given:
            if name not in entry.takes.parameters:
                raise SettingsError(where(key), name, f"the call has no such parameter: {entry.call}")


def _function(where: str, path: str) -> Callable[..., Any]:
    package = path.partition(".")[0]
    if package not in frameworks.MODULES.values():
        raise SettingsError(
            where, path, f"it is none of {', '.join(frameworks.MODULES.values())}'s; write its full name"
        )
    try:
        return function_at(path)
    except (ImportError, AttributeError) as error:
        raise SettingsError(where, path, f"there is no such API: {error}") from None


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """None of a compiled function that does not tell."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _takes(function: Callable[..., Any], name: str) -> bool:
    found = _parameters(function)
    return found is None or any(each.name == name or each.kind is each.VAR_KEYWORD for each in found)


def _signature(function: Callable[..., Any]) -> str:
    found = _parameters(function) or ()
    return f"its arguments: {', '.join(each.name for each in found)}"
