"""`--probe-dump PATH`, with a space: pytest takes PATH for a test path when it looks for rootdir and its ini file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.options import OPTIONS
from pytest_probe.settings.dump_paths import CONFIG_FILES

FLAGS = frozenset(option.flag for option in OPTIONS if option.cli and option.kind != "flag")


def check(config: pytest.Config) -> None:
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
    yield from ((flag, value) for flag, value in pairwise(options) if flag in FLAGS)


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
