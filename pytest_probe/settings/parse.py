"""All options together: read, and checked against one another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_probe.model.run import RECORDED
from pytest_probe.options import ACCURACY, OPTIONS, imported
from pytest_probe.settings.dump_paths import files_of
from pytest_probe.settings.settings import Settings
from pytest_probe.settings.written import Written, written
from pytest_probe.standards.tools.project_rules import StandardsFile, read_standards_file

if TYPE_CHECKING:
    import pytest


def parse(config: pytest.Config, *, paths_given: bool) -> Settings:
    """Read and check every option. paths_given: the command line has positional paths, so an ini's dumps are out.

    Raises SettingsError naming the option, its value and what would do.
    """
    options = written(config)
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


def _check(options: Written, settings: Settings) -> None:
    """Does each option that is set go with the others?"""
    for option in OPTIONS:
        given = options[option.name]
        if given.is_set and option.check:
            imported(option.check)(options, settings)
        if given.is_set and option.needs is not None and not options[option.needs[0]].is_set:
            value = settings.values[option.attribute]
            raise given.wrong(option.needs[1], str(value) if isinstance(value, Path) else value)


def check_recorded(options: Written, settings: Settings) -> None:
    """Stored outputs belong to the stored inputs, in the recorded dtype, and cannot be computed again."""
    if RECORDED not in settings.devices:
        return
    for name, alone in (
        ("device", settings.devices == (RECORDED,)),
        ("inputs", settings.inputs != "generated"),
        ("dtype", settings.selection.dtypes == (None,)),
        ("repeat", settings.repeat == 1),
        ("mode", settings.mode == (ACCURACY,)),
        ("emulate", not settings.emulate),
    ):
        if not alone:
            raise options[name].wrong(
                f"--probe-device={RECORDED} judges what the dump stored, and no device runs; leave it out"
            )
