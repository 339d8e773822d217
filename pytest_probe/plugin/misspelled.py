"""Options and ini keys that nobody has registered, and that are nearly ours: pytest does not say which was meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

import pytest

from pytest_probe.errors import ProbeError
from pytest_probe.options import OPTIONS
from pytest_probe.settings.written import blamed

FLAGS = tuple(option.flag for option in OPTIONS if option.cli)
KEYS = tuple(option.key for option in OPTIONS if option.ini)


def check_options(parser: pytest.Parser, args: list[str]) -> None:
    """Raises UsageError for an option that begins as ours do and that neither we nor a conftest has added."""
    _, unknown = parser.parse_known_and_unknown_args(args)
    for arg in unknown:
        if arg.startswith("--probe-"):
            flag = arg.partition("=")[0]
            raise pytest.UsageError(f"{flag}: there is no such option{_meant(flag, FLAGS) or '; see pytest --help'}")


def check_keys(config: pytest.Config, keys: Iterable[str]) -> None:
    """Raises UsageError for an ini key that nobody has registered, where one of ours is close."""
    for key in keys:
        meant = "" if key in KEYS else _meant(key, KEYS)
        if meant and not _is_registered(config, key):
            where = f" in {config.inipath.name}" if config.inipath else ""
            raise pytest.UsageError(f"{key}{where}: there is no such key{meant}")


def _meant(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""


def _is_registered(config: pytest.Config, key: str) -> bool:
    try:
        config.getini(key)
    except (ValueError, KeyError):
        return False
    return True


def usage_error(config: pytest.Config, error: ProbeError) -> pytest.UsageError:
    """What pytest shows of an error in the settings: where an ini file has the value, the file is blamed."""
    return pytest.UsageError(blamed(config, error))
