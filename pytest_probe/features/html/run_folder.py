"""A folder of --probe-out, read afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from pytest_probe.errors import ResultsError, SettingsError
from pytest_probe.model.result import Result
from pytest_probe.reports.results_file import RESULTS, RUN, SCHEMA, read_results
from pytest_probe.reports.selected import RunEnd, check_results
from pytest_probe.system.files import open_regular


class _Schema(msgspec.Struct, frozen=True):
    schema: int


class _DumpFacts(msgspec.Struct, frozen=True):
    label: str
    digest: str


class RunFacts(RunEnd, frozen=True, kw_only=True):
    """The facts of a run in run.json; a killed run has no end."""

    schema: int
    seed: int
    settings: dict[str, Any]
    started: str
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    devices: tuple[dict[str, str], ...] = ()
    dumps: tuple[_DumpFacts, ...] = ()

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> RunFacts:
        """The facts of a run that this version made."""
        return msgspec.convert({"schema": SCHEMA, **run}, cls)

    @property
    def digests(self) -> dict[str, str]:
        """The digests of the dumps, by label."""
        return {dump.label: dump.digest for dump in self.dumps}


class RunFolder(Struct, frozen=True):
    """where names the argument of a command that named the folder."""

    where: str
    path: Path
    run: RunFacts

    @classmethod
    def read(cls, where: str, path: Path) -> RunFolder:
        """Raises SettingsError where the folder holds no run, or one of another schema."""
        try:
            with open_regular(path / RUN) as file:
                content = file.read()
            schema = msgspec.json.decode(content, type=_Schema).schema
            if schema != SCHEMA:
                wanted = f"its results are of schema {schema}, this version reads {SCHEMA}"
                raise SettingsError(where, str(path), wanted)
            return cls(where, path, msgspec.json.decode(content, type=RunFacts))
        except OSError as error:
            wanted = f"give a folder of --probe-out; {RUN} cannot be read ({error.strerror})"
            raise SettingsError(where, str(path), wanted) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SettingsError(where, str(path), f"its {RUN} is none of pytest-probe's: {error}") from None

    def check(self) -> str:
        """What is to be said of a run that ended early, "" of a whole one. Raises SettingsError where the results do
        not belong to the run."""
        return check_results(self.where, self.path / RESULTS, self.run)

    def results(self) -> Iterator[Result]:
        """Raises SettingsError where the results cannot be read."""
        try:
            yield from read_results(self.path / RESULTS)
        except OSError as error:
            wanted = f"{RESULTS} cannot be read ({error.strerror})"
            raise SettingsError(self.where, str(self.path), wanted) from None
        except ResultsError as error:
            raise SettingsError(self.where, str(self.path), str(error)) from None
