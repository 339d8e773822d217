"""The identity of this run: what decides its verdicts, in the words of the options, alike on every machine."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from types import CellType, FunctionType
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import astuple

from pytest_probe.option_types import digest
from pytest_probe.options import OPTIONS
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.registry import Registry

PACKAGES = ("pytest-probe", "numpy", "ml_dtypes")
# Of what is known of a device: how many threads share the work is another thing under -n, and the limits of a verdict
# hold for every order of a sum.
NOT_OF_A_DEVICE = ("threads", "framework")
# What repr shows completely.
PLAIN = (str, bytes, int, float, complex, bool, type(None))
_NUMBER = re.compile(r":\d+$")


def identity(probe: ProcessSession, devices: Iterable[Mapping[str, str]], dumps: Mapping[str, str]) -> dict[str, Any]:
    """dumps: digests by label."""
    config = probe.config
    return {
        **of_options(probe),
        "devices": of_devices(devices),
        "versions": {name: version(name) for name in PACKAGES},
        "dumps": dict(dumps),
        "-k": config.getoption("keyword", "") or None,
        "-m": config.getoption("markexpr", "") or None,
        "--deselect": sorted(config.getoption("deselect", None) or ()),
        "--lf": bool(config.getoption("lf", False)),
        "--sw": bool(config.getoption("stepwise", False)),
        "--ignore": sorted([*(config.getoption("ignore", None) or ()), *(config.getoption("ignore_glob", None) or ())]),
        "paths": sorted(probe.dumps.named_items()),
        **_of_project(probe.registry, config),
    }


def of_options(probe: ProcessSession) -> dict[str, Any]:
    """What each option is set to that may change a verdict; None of those whose files the run writes itself."""
    written = {name for feature in probe.features for name in feature.written}
    return {
        option.name: None if option.name in written else option.type.identity(probe.settings.values[option.attribute])
        for option in OPTIONS
        if not option.never_matters_because and not option.by
    }


def of_devices(devices: Iterable[Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """What the devices are, by framework; one of several that are alike is like another."""
    found: dict[str, dict[str, set[str]]] = {}
    for device in devices:
        facts = found.setdefault(device.get("framework", ""), {})
        for name, value in device.items():
            if name not in NOT_OF_A_DEVICE:
                facts.setdefault(name, set()).add(_NUMBER.sub("", value) if name == "device" else value)
    return {
        framework: {name: ", ".join(sorted(values)) for name, values in sorted(facts.items())}
        for framework, facts in sorted(found.items())
    }


def _of_project(registry: Registry, config: pytest.Config) -> dict[str, Any]:
    """What users registered, and their hooks that change inputs and verdicts, by name and code."""
    hooks = {
        name: getattr(config.hook, name).get_hookimpls() for name in ("pytest_probe_inputs", "pytest_probe_verdict")
    }
    known = Registry.default()
    found = {name: of_entries(added(registry, known, name)) for name in registry.__struct_fields__ if name != "readers"}
    readers = [reader for reader in registry.readers if reader not in known.readers]
    return {
        # Options are called namespaces and relations.
        "namespaces of the project": found.pop("namespaces"),
        "relations of the project": found.pop("relations"),
        "devices of the user": found.pop("devices"),
        **found,
        "readers": sorted(map(_code, readers)),
        **{name: sorted(_code(impl.function) for impl in impls) for name, impls in hooks.items()},
    }


def added(registry: Registry, known: Registry, family: str) -> dict[str, Any]:
    """What users have put into a family of the registry, by name. A standard of a --probe-standards-file has the class
    of the packaged one whose limits it changes; the option says that."""
    own, packaged = getattr(registry, family), getattr(known, family)
    return {name: each for name, each in own.items() if type(each) is not type(packaged.get(name))}


def of_entries(entries: Mapping[str, Any]) -> dict[str, str]:
    """What tells each entry from another one of its name: its code, and its fields."""
    return {name: _entry(each) for name, each in sorted(entries.items())}


def _entry(entry: object) -> str:
    if isinstance(entry, str):
        return entry
    if isinstance(entry, Mapping):
        return digest(_bound(entry, ()).encode())
    fields = f" {digest(_bound(astuple(entry), ()).encode())}" if isinstance(entry, Struct) else ""
    return _code(entry) + fields


def _code(function: Callable[..., Any] | object, above: tuple[object, ...] = ()) -> str:
    """The name of a function or class, and a digest of its code where it has any in Python, and of what is bound.
    above: the functions that hold this one."""
    if isinstance(function, functools.partial):
        return _code(function.func, above) + _bound((function.args, sorted(function.keywords.items())), above)
    named = function if hasattr(function, "__qualname__") else type(function)
    name = f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"
    try:
        source = inspect.getsource(named)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return name
    held: Sequence[object] = ()
    if isinstance(named, FunctionType) and named not in above:
        # What it was given when it was made: defaults, and the variables around it that it uses.
        cells = [cell.cell_contents for cell in named.__closure__ or () if cell != CellType()]
        held = named.__defaults__, named.__kwdefaults__, cells
    return f"{name} {digest((source + _bound(held, (*above, named))).encode())}"


def _bound(value: object, above: tuple[object, ...]) -> str:
    """Alike in every process: of an object that is no plain value, its kind alone."""
    if isinstance(value, PLAIN):
        return f"{value!r},"
    if isinstance(value, Mapping):
        return _bound(list(value.items()), above)
    if isinstance(value, Struct):
        return f"{type(value).__qualname__}({_bound(astuple(value), above)}),"
    if isinstance(value, list | tuple):
        return "".join(_bound(each, above) for each in value)
    return f"{_code(value, above) if callable(value) else type(value).__qualname__},"
