"""The options as the user wrote them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_probe.errors import ProbeError, SettingsError
from pytest_probe.option_types import Given
from pytest_probe.options import OPTIONS, Option

if TYPE_CHECKING:
    import pytest

# By the names of options.
Written: TypeAlias = Mapping[str, Given]
# The key of a worker's input with the folder that the controller was started in.
STARTED_IN = "probe_started_in"


def written(config: pytest.Config) -> Written:
    """Every option: command line before ini before default. Raises SettingsError."""
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    # A worker of pytest-xdist may run in another folder than its controller (popen//chdir=...).
    folder = Path((worker or {}).get(STARTED_IN, config.invocation_params.dir))
    return {option.name: _given(config, option, folder, in_worker=worker is not None) for option in OPTIONS}


def _given(config: pytest.Config, option: Option[Any], folder: Path, *, in_worker: bool) -> Given:
    """folder: where the paths of the command line start."""
    value = config.getoption(option.key, None) if option.cli else None
    if any(isinstance(text, str) and not text.strip() for text in (value if isinstance(value, list) else [value])):
        raise SettingsError(option.flag, "", "give a value, or leave the option out")
    in_file = _read_ini(config, option) if option.ini else None
    if _is_set(value):
        return Given(option.flag, value, folder, is_set=True, in_worker=in_worker)
    if not _is_set(in_file):
        return Given(option.flag, option.default, folder, is_set=False, in_worker=in_worker)
    name, path = option.key, config.inipath
    if path is not None:
        name, folder = f"{name} in {path.name}", path.parent
    return Given(name, in_file, folder, is_set=True, from_ini=True, in_worker=in_worker)


def _read_ini(config: pytest.Config, option: Option[Any]) -> Any:
    import pytest

    try:
        return config.getini(option.key)
    except (TypeError, ValueError, pytest.UsageError) as error:
        wanted = {"list": "a list of strings", "flag": "true or false", "int": "a whole number"}
        raise SettingsError(
            option.key, _last_quoted(str(error)), f"give {wanted.get(option.kind, 'a string')}"
        ) from None


def _is_set(value: Any) -> bool:
    """Did somebody give it? 0 is a value, and equal to False."""
    return value is not None and value is not False and value != [] and value != ""


def _last_quoted(message: str) -> str:
    """The value that pytest or Python complains of, which ends their message in quotes; else the message."""
    found = re.search(r"'([^']*)'$", message)
    return found[1] if found else message


def blamed(config: pytest.Config, error: ProbeError) -> str:
    """The text of an error; where it names an option that an ini file set, it names the key and the file."""
    text = str(error)
    option = next((each for each in OPTIONS if isinstance(error, SettingsError) and each.flag == error.option), None)
    if option is None or not option.ini or _is_set(config.getoption(option.key, None)):
        return text
    try:
        set_there = _is_set(config.getini(option.key))
    except (TypeError, ValueError):
        set_there = True
    where = f" in {config.inipath.name}" if config.inipath else ""
    return text.replace(option.flag, f"{option.key}{where}", 1) if set_there and text.startswith(option.flag) else text
