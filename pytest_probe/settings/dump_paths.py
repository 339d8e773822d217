"""The dumps that were given, and whether pytest can address them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pytest_probe.errors import SettingsError
from pytest_probe.records import dumps_of_option

CONFIG_FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")


def moves_rootdir(root: Path, path: Path) -> bool:
    """Would this path as a positional argument make pytest choose another rootdir, with another ini file?"""
    if not path.is_relative_to(root):
        return True
    below = (folder for folder in path.parents if folder != root and folder.is_relative_to(root))
    return any((folder / name).is_file() for folder in below for name in (*CONFIG_FILES, "setup.py"))


def files_of(option: str, paths: Iterable[Path]) -> tuple[Path, ...]:
    """The dumps in these files and folders, each once. Raises SettingsError."""
    return tuple(dict.fromkeys(file for path in paths for file in _dump_files(option, path)))


def _dump_files(option: str, path: Path) -> list[Path]:
    found = dumps_of_option(option, path)
    for file in found:
        _check_utf8(option, file)
        if "[" in str(file) or "::" in str(file):
            wanted = "pytest cannot address a path with '[' or '::' in it; rename it or link to it"
            raise SettingsError(option, str(file), wanted)
    return found


def _check_utf8(option: str, path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise SettingsError(option, str(path), "its name is not UTF-8; rename it or link to it") from None
