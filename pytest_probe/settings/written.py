"""The values as the user wrote them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_probe.errors import ProbeError, SettingsError
from pytest_probe.options import NAMED, OPTIONS

if TYPE_CHECKING:
    import pytest

# The key of a worker's input with the folder that the controller was started in.
STARTED_IN = "probe_started_in"


class Written:
    """The values as the user wrote them: command line before ini before default."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._cli = {o.name: config.getoption(o.key, None) if o.cli else None for o in OPTIONS}
        for name, value in self._cli.items():
            if any(isinstance(text, str) and not text.strip() for text in _texts(value)):
                raise SettingsError(NAMED[name].flag, "", "give a value, or leave the option out")
        self._ini = {o.name: self._read_ini(o.key, o.kind) if o.ini else None for o in OPTIONS}

    @property
    def _started_in(self) -> Path:
        """The folder that paths of the command line start from: the controller's, since a worker of pytest-xdist may
        run in another one (popen//chdir=...)."""
        given: dict[str, Any] = getattr(self._config, "workerinput", {})
        return Path(given.get(STARTED_IN, self._config.invocation_params.dir))

    @property
    def in_worker(self) -> bool:
        """Is this a worker of pytest-xdist?"""
        return hasattr(self._config, "workerinput")

    def value(self, name: str) -> Any:
        for source in (self._cli, self._ini):
            if _is_set(source[name]):
                return source[name]
        return NAMED[name].default

    def text(self, name: str) -> str:
        value = self.value(name)
        return str(value) if _is_set(value) else ""

    def is_ini(self, name: str) -> bool:
        return not _is_set(self._cli[name]) and _is_set(self._ini[name])

    def is_given(self, name: str) -> bool:
        return _is_set(self._cli[name]) or self.is_ini(name)

    def name(self, name: str) -> str:
        """How the user set it: "--probe-seed", or "probe_seed in pyproject.toml"."""
        option = NAMED[name]
        if not self.is_ini(name):
            return option.flag
        return f"{option.key} in {self._config.inipath.name}" if self._config.inipath else option.key

    def given(self) -> dict[str, str]:
        return {o.name: str(self.value(o.name)) for o in OPTIONS if self.value(o.name) not in (None, False, o.default)}

    def paths(self, name: str) -> tuple[Path, ...]:
        """Absolute: from the invocation folder, or the ini file's where that set them."""
        value = self.value(name)
        values = [value] if isinstance(value, str) else value or []
        base = self._started_in
        if self.is_ini(name) and self._config.inipath:
            base = self._config.inipath.parent
        return tuple(Path(os.path.normpath(base / Path(text).expanduser())) for text in values)

    def _read_ini(self, key: str, kind: str) -> Any:
        import pytest

        try:
            return self._config.getini(key)
        except (TypeError, ValueError, pytest.UsageError) as error:
            wanted = {"list": "a list of strings", "flag": "true or false", "int": "a whole number"}.get(
                kind, "a string"
            )
            raise SettingsError(key, _last_quoted(str(error)), f"give {wanted}") from None


def _is_set(value: Any) -> bool:
    """Did somebody give it? 0 is a value, and equal to False."""
    return value is not None and value is not False and value != [] and value != ""


def _texts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


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
