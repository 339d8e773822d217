"""The parsed settings: frozen, checked, and the same in every process of a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from pytest_probe.options import ACCURACY, MEMORY, NAMED, OPTIONS, TIME, Options
from pytest_probe.selection import Selection
from pytest_probe.standards.tools.project_rules import StandardsFile


class Settings(Struct, Options, frozen=True, dict=True):
    """What the user asked for.

    values has the value of each option by its attribute of Options: of --probe-dump absolute paths of files and folders
    as given; of --probe-device nothing where the framework's default is meant. dump_files are the dumps that the paths
    stand for. rules is what --probe-standards-file says. given maps the options that are not at their default to their
    value as text, from_ini names those that an ini file set.
    """

    values: Mapping[str, Any]
    dump_files: tuple[Path, ...] = ()
    rules: StandardsFile = field(default_factory=StandardsFile)
    given: Mapping[str, str] = field(default_factory=dict)
    from_ini: frozenset[str] = frozenset()

    @cached_property
    def selection(self) -> Selection:
        return Selection(
            self.apis,
            self.skip_apis,
            self.directions,
            tuple(None if dtype == "recorded" else dtype for dtype in self.dtypes),
            self.rules.white_list,
            self.rules.black_list,
        )

    @property
    def judges(self) -> bool:
        """Are results judged?"""
        return ACCURACY in self.mode

    @property
    def times(self) -> bool:
        return TIME in self.mode

    @property
    def plots(self) -> bool:
        """Is the data of plots made?"""
        return self.out is not None or self.html is not None

    @property
    def has_run_files(self) -> bool:
        """Is a page or a history written?"""
        return self.html is not None or self.history is not None

    @property
    def counts_memory(self) -> bool:
        return MEMORY in self.mode

    @property
    def measures(self) -> bool:
        """Is anything measured beside, or in the place of, judging?"""
        return self.times or self.counts_memory

    def described(self) -> dict[str, Any]:
        """All settings as plain data, for `run.json`."""
        return {o.attribute: o.type.plain(self.values[o.attribute]) for o in OPTIONS if o.in_run_file}

    def command(self, target: str, dtype: str | None, device: str | None) -> str:
        """The command line that runs one case again. target names it, quoted and ready for a shell."""
        if dtype is None and "dtype" in self.from_ini:
            dtype = "recorded"
        cases = {"device": device, "dtype": dtype}
        words = ["pytest", target, *(_option(name, value) for name, value in cases.items() if value is not None)]
        for option in OPTIONS:
            # A path of an ini file starts at another folder than one of the command line.
            path = isinstance(self.values[option.attribute], Path)
            if option.repeated and option.name in self.given and not (path and option.name in self.from_ini):
                words.append(option.flag if option.kind == "flag" else _option(option.name, self.given[option.name]))
        return " ".join(words)


def _option(name: str, value: str) -> str:
    return f"{NAMED[name].flag}={shlex.quote(value)}"
