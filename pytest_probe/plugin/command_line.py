"""What is wrong with a command line or an ini file before a run begins, and the end of `pytest --help`."""

from __future__ import annotations

import os
import shlex
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.errors import ProbeError
from pytest_probe.options import NAMED, OPTIONS, standards
from pytest_probe.system.text import suggestion

CONFIG_FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")


def moves_rootdir(root: Path, path: Path) -> bool:
    """Would this path as a positional argument make pytest choose another rootdir, with another ini file?"""
    if not path.is_relative_to(root):
        return True
    below = (folder for folder in path.parents if folder != root and folder.is_relative_to(root))
    return any((folder / name).is_file() for folder in below for name in (*CONFIG_FILES, "setup.py"))


WITH_VALUE = frozenset(option.flag for option in OPTIONS if option.cli and option.kind != "flag")


def check_spaces(config: pytest.Config) -> None:
    """Raises UsageError where a path behind a space gives the run another rootdir or ini file."""
    start = config.invocation_params.dir
    words = (shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), list(map(str, config.invocation_params.args)))
    paths = [pair for part in words for pair in _pairs(part) if os.path.exists(start / pair[1])]
    if paths and _matter(config, [_folder(start / value) for _, value in paths]):
        flag, value = paths[0]
        raise pytest.UsageError(
            f"{flag} {value}: with a space pytest takes the path for a test path when it looks for rootdir and its ini "
            f"file; write {flag}={value}"
        )


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Our options that are apart from their values."""
    options = words[: words.index("--")] if "--" in words else words
    yield from ((flag, value) for flag, value in pairwise(options) if flag in WITH_VALUE)


def _matter(config: pytest.Config, folders: Sequence[Path]) -> bool:
    """Does pytest find another place with these folders? It passes over a tox.ini, a setup.cfg or a pyproject.toml with
    no section of its own: so the place that it found has to differ as well."""
    given: Any = config.known_args_namespace
    if given.inifilename:
        return False
    start = config.invocation_params.dir
    paths = (start / str(arg).partition("::")[0] for arg in given.file_or_dir)
    tests = [_folder(path) for path in paths if os.path.exists(path)]
    end = config.rootpath if given.rootdir else None
    found = config.rootpath if config.inipath is None else config.inipath.parent
    try:
        return _place(tests or [start], start, end) not in (_place([*tests, *folders], start, end), found)
    except ValueError:  # two drives
        return True


def _place(folders: Sequence[Path], start: Path, end: Path | None) -> Path:
    """Where pytest finds its ini file: in the folder that all share or above, else in each one's; without any its
    rootdir, which is end where --rootdir gives it."""
    shared = Path(os.path.commonpath(folders))
    places = (place for folder in (shared, *folders) for place in (folder, *folder.parents))
    configured = (place for place in places if any((place / name).is_file() for name in (*CONFIG_FILES, "setup.py")))
    return next(configured, end or Path(os.path.commonpath([start, shared])))


def _folder(path: Path) -> Path:
    whole = Path(os.path.abspath(path))
    return whole if whole.is_dir() else whole.parent


FLAGS = tuple(option.flag for option in OPTIONS if option.cli)
# All of ours begin alike.
_ALIKE = 0.75
KEYS = tuple(option.key for option in OPTIONS if option.ini)


def check_options(parser: pytest.Parser, args: list[str]) -> None:
    """Raises UsageError for an option that begins as ours do and that neither we nor a conftest has added."""
    _, unknown = parser.parse_known_and_unknown_args(args)
    for arg in unknown:
        if arg.startswith("--probe-"):
            flag = arg.partition("=")[0]
            raise pytest.UsageError(
                f"{flag}: there is no such option{suggestion(FLAGS, flag, _ALIKE) or '; see pytest --help'}"
            )


def check_keys(config: pytest.Config, keys: Iterable[str]) -> None:
    """Raises UsageError for an ini key that nobody has registered, where one of ours is close."""
    for key in keys:
        meant = "" if key in KEYS else suggestion(KEYS, key, _ALIKE)
        if meant and not _is_registered(config, key):
            where = f" in {config.inipath.name}" if config.inipath else ""
            raise pytest.UsageError(f"{key}{where}: there is no such key{meant}")


def _is_registered(config: pytest.Config, key: str) -> bool:
    try:
        config.getini(key)
    except (ValueError, KeyError):
        return False
    return True


def usage_error(config: pytest.Config, error: ProbeError) -> pytest.UsageError:
    """What pytest shows of an error in the settings: where an ini file has the value, the file is blamed."""
    from pytest_probe.settings import blamed

    return pytest.UsageError(blamed(config, error))


INDENT = 27


def standards_help() -> str:
    """The standards of tools, laid out as pytest's help is. The option's own help lacks them: the list imports what
    judges."""
    width = max(shutil.get_terminal_size().columns, 2 * INDENT)
    lines = [f"\nStandards of tools, for {NAMED['standard'].flag}:"]
    for name, help_ in standards().items():
        lines += textwrap.wrap(f"  {name:<{INDENT - 3}} {help_}", width, subsequent_indent=" " * INDENT)
    return "\n".join(lines)
