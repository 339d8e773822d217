"""What a run was asked to do: read from the command line and the ini file, checked, and the same in every process."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from pytest_probe.errors import ProbeError, SettingsError
from pytest_probe.model.run import RECORDED
from pytest_probe.option_types import Given
from pytest_probe.options import ACCURACY, CAPABILITIES, MEMORY, NAMED, OPTIONS, TIME, Option, Options, imported
from pytest_probe.records import dumps_of_option
from pytest_probe.selection import Selection
from pytest_probe.standards.tools.table import StandardsFile, read_standards_file
from pytest_probe.system.text import printable

if TYPE_CHECKING:
    import pytest


class Settings(Struct, Options, frozen=True, dict=True):
    """What the user asked for.

    values has the value of each option by its attribute of Options: of --probe-dump absolute paths of files and folders
    as given; of --probe-device nothing where the framework's default is meant. dump_files are the dumps that the paths
    stand for. rules is what --probe-standards-file says. given maps the options that are not at their default to their
    value as text, from_ini names the ones that an ini file set.
    """

    values: Mapping[str, Any]
    dump_files: tuple[Path, ...] = ()
    rules: StandardsFile = field(default_factory=StandardsFile)
    given: Mapping[str, str] = field(default_factory=dict)
    from_ini: frozenset[str] = frozenset()

    @cached_property
    def selection(self) -> Selection:
        listen = self.values.get("listen")  # a run may be without that feature
        return Selection(
            self.apis,
            self.skip_apis,
            self.directions,
            tuple(None if dtype == "recorded" else dtype for dtype in self.dtypes),
            self.rules.white_list or (listen.white_list if listen else ()),
            self.rules.black_list or (listen.black_list if listen else ()),
        )

    @cached_property
    def devices(self) -> tuple[str, ...]:  # type: ignore[override]
        """The named ones, or none where an option asks for what dumps stored."""
        named: tuple[str, ...] = self.values["devices"]
        return (RECORDED,) if any("device" in o.takes(self) for o in OPTIONS if self.values[o.attribute]) else named

    @property
    def judges_stored(self) -> bool:
        """Is what dumps stored judged, and does no device run?"""
        return RECORDED in self.devices

    @property
    def judges(self) -> bool:
        """Are results judged?"""
        return ACCURACY in self.mode

    @property
    def times(self) -> bool:
        return TIME in self.mode

    @property
    def counts_memory(self) -> bool:
        return MEMORY in self.mode

    @property
    def measures(self) -> bool:
        """Is anything measured, with or without a verdict?"""
        return self.times or self.counts_memory

    def asks(self, wanted: str) -> bool:
        """Does the user ask for an option, as "out", or for a value of one, as "standard=self"?"""
        name, _, value = wanted.partition("=")
        return bool(name in self.given and self.values[NAMED[name].attribute]) and value in ("", self.given[name])

    def described(self) -> dict[str, Any]:
        """All settings as plain data, for `run.json`."""
        return {o.attribute: o.type.plain(self.values[o.attribute]) for o in OPTIONS if o.in_run_file}

    def command(self, target: str, dtype: str | None, device: str | None, alone: Mapping[str, str] = {}) -> str:
        """The command line that runs one case again. target names it, quoted and ready for a shell. alone has what
        options have there in place of what the run gave them."""
        if dtype is None and "dtype" in self.from_ini:
            dtype = "recorded"
        cases, given = {"device": device, "dtype": dtype}, {**self.given, **alone}
        words = ["pytest", target, *(_option(name, value) for name, value in cases.items() if value is not None)]
        for option in OPTIONS:
            # A path of an ini file starts at another folder than one of the command line.
            path = isinstance(self.values[option.attribute], Path)
            if option.repeated and option.name in self.given and not (path and option.name in self.from_ini):
                words.append(option.flag if option.kind == "flag" else _option(option.name, given[option.name]))
        return " ".join(words)


def _option(name: str, value: str) -> str:
    return f"{NAMED[name].flag}={shlex.quote(value)}"


def parse(config: pytest.Config, *, paths_given: bool) -> Settings:
    """Read and check every option. paths_given: the command line has positional paths, so an ini's dumps are out.

    Raises SettingsError naming the option, its value and what would do.
    """
    options = raw_options(config)
    file, dump = options["standards-file"].path, options["dump"]
    rules = read_standards_file(file) if file else StandardsFile()
    values = {
        option.attribute: () if paths_given and given is dump and dump.from_ini else option.type.read(given)
        for option, given in zip(OPTIONS, options.values(), strict=True)
    }
    settings = Settings(
        values,
        files_of(dump.name, values["dumps"]),
        rules,
        {o.name: str(options[o.name].value) for o in OPTIONS if options[o.name].value not in (None, False, o.default)},
        frozenset(name for name, given in options.items() if given.from_ini),
    )
    _check(options, settings)
    return settings


def _check(options: RawOptions, settings: Settings) -> None:
    """Does each option that is set go with the others? Raises SettingsError."""
    for option in OPTIONS:
        given = options[option.name]
        if given.is_set and option.check:
            imported(option.check)(options, settings)
        for reason in _conflicts(option, options, settings) if settings.asks(option.name) else ():
            raise given.wrong(reason, given.value)


def _conflicts(option: Option[Any], options: RawOptions, settings: Settings) -> Iterator[str]:
    """What this option needs and this run does not have, each with what to do."""
    others = [other for other in OPTIONS if other is not option and settings.asks(other.name)]
    for word in option.needs(settings):
        if word not in CAPABILITIES:
            if not settings.asks(word):
                name, _, value = word.partition("=")
                wanted = value or NAMED[name].metavar
                yield f"it needs another option: add {NAMED[name].flag}{f'={wanted}' if wanted else ''}"
            continue
        has, reason = CAPABILITIES[word]
        for other in others:
            if word in other.takes(settings) and option.name not in other.needs(settings):
                yield f"it needs {has}, and with {_written(options[other.name])} {reason}; leave it out"
    for name, reason in option.apart.items():
        if settings.asks(name):
            yield f"with {_written(options[name.partition('=')[0]])} {reason}; leave it out"


def _written(given: Given) -> str:
    """An option as the user wrote it, or the key of an ini file."""
    return given.name if given.from_ini or given.value is True else f"{given.name}={given.text}"


# By the names of options.
RawOptions: TypeAlias = Mapping[str, Given]
# The key of a worker's input with the folder that the controller was started in.
STARTED_IN = "probe_started_in"


def raw_options(config: pytest.Config) -> RawOptions:
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
    in_file = read_ini(config, option) if option.ini else None
    if _is_set(value):
        return Given(option.flag, value, folder, is_set=True, in_worker=in_worker)
    if not _is_set(in_file):
        return Given(option.flag, option.default, folder, is_set=False, in_worker=in_worker)
    name, path = option.key, config.inipath
    if path is not None:
        name, folder = f"{name} in {path.name}", path.parent
    return Given(name, in_file, folder, is_set=True, from_ini=True, in_worker=in_worker)


def read_ini(config: pytest.Config, option: Option[Any]) -> Any:
    """What an ini file has for an option. Raises SettingsError."""
    import pytest

    try:
        return config.getini(option.key)
    except (TypeError, ValueError, pytest.UsageError) as error:
        wanted = {"list": "a list of strings", "flag": "true or false", "int": "a whole number"}
        # Their messages end with the value in quotes.
        quoted = re.search(r"'([^']*)'$", str(error))
        value = quoted[1] if quoted else str(error)
        raise SettingsError(option.key, value, f"give {wanted.get(option.kind, 'a string')}") from None


def _is_set(value: Any) -> bool:
    """Did somebody give it? 0 is a value, and equal to False."""
    return value is not None and value is not False and value != [] and value != ""


def blamed(config: pytest.Config, error: ProbeError) -> str:
    """The text of an error; where it names an option that an ini file set, it names the key and the file."""
    text = printable(str(error))
    option = next((each for each in OPTIONS if isinstance(error, SettingsError) and each.flag == error.option), None)
    if option is None or not option.ini or _is_set(config.getoption(option.key, None)):
        return text
    try:
        set_there = _is_set(config.getini(option.key))
    except (TypeError, ValueError):
        set_there = True
    where = f" in {config.inipath.name}" if config.inipath else ""
    return text.replace(option.flag, f"{option.key}{where}", 1) if set_there and text.startswith(option.flag) else text


def files_of(option: str, paths: Iterable[Path]) -> tuple[Path, ...]:
    """The dumps in these files and folders, each once. Raises SettingsError."""
    found = dict.fromkeys(file for path in paths for file in dumps_of_option(option, path))
    for file in map(str, found):
        try:
            file.encode()
        except UnicodeEncodeError:
            raise SettingsError(option, file, "its name is not UTF-8; rename it or link to it") from None
        if "[" in file or "::" in file:
            wanted = "pytest cannot address a path with '[' or '::' in it; rename it or link to it"
            raise SettingsError(option, file, wanted)
    return tuple(found)
