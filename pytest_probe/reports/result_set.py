"""Other results: the folder that another run left, and the cases that this run is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from pytest_probe.errors import SettingsError
from pytest_probe.model.baseline import KeptCase
from pytest_probe.model.result import PortableId, Result
from pytest_probe.reports.results_file import RESULTS, RUN, SCHEMA, Identity, decoded, read_results, refused
from pytest_probe.reports.selected import Faults, Items, Selected, fault_lines, faults, ids_in, read_items
from pytest_probe.system.files import open_regular

# What is said of a run.json that is damaged.
_NOT_OURS = f"its {RUN} is none of pytest-probe's: {{error.found}}"


class _Dump(Struct, frozen=True):
    label: str
    digest: str


class RunFile(Struct, frozen=True):
    """What run.json says of a run, as far as others ask. without_result: cases that ended without a result, since a
    fixture or a hook of the project kept them from running."""

    schema: int
    seed: int
    settings: dict[str, Any]
    started: str
    identity: dict[str, Any] = {}
    versions: dict[str, str] = {}
    devices: list[dict[str, str]] = []
    dumps: tuple[_Dump, ...] = ()
    tables: tuple[str, ...] = ()
    selected: Selected | None = None
    # Of its end: a run that was killed has none.
    finished: str | None = None
    not_run: int | None = None
    exit_status: int | None = None
    without_result: tuple[str, ...] = ()

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> RunFile:
        """Of a run that this version made."""
        return msgspec.convert({"schema": SCHEMA, **run}, cls)


class RunFolder(Struct, frozen=True, dict=True):
    """A folder of --probe-out. option names it: an option, or an argument of a command. whole is its run.json."""

    option: str
    path: Path
    run: RunFile
    whole: Mapping[str, Any]

    @classmethod
    def read(cls, option: str, path: Path, unreadable: str, damaged: str = _NOT_OURS) -> RunFolder:
        """Raises SettingsError: in the first of these words where run.json cannot be read, in the second where it is
        none of ours, and for another schema."""
        with refused(option, path, unreadable, damaged):
            with open_regular(path / RUN) as file:
                content = file.read()
            whole = decoded(content, msgspec.json.Decoder(), str(path / RUN))
            schema = whole.get("schema", SCHEMA) if isinstance(whole, dict) else SCHEMA
            if schema != SCHEMA:
                wanted = f"its results are of schema {schema}, this version reads {SCHEMA}; run again into a new folder"
                raise SettingsError(option, str(path), wanted)
            return cls(option, path, decoded(content, msgspec.json.Decoder(RunFile), str(path / RUN)), whole)

    @cached_property
    def items(self) -> Items:
        """The items that the run selected; none where it ended before they were known. Raises OSError, ResultsError."""
        return Items(()) if self.run.selected is None else read_items(self.path, self.run.selected)

    def results(self, unreadable: str, damaged: str = "{error}") -> Iterator[Result]:
        """Raises SettingsError, in these words, where they cannot be read, or where a line is no result of ours."""
        with refused(self.option, self.path, unreadable, damaged):
            yield from read_results(self.path / RESULTS)

    def early_end(self, *, partial: bool = True) -> str:
        """What is to be said of a run that ended early, "" of a whole one. partial: then some results may be missing.

        Raises SettingsError, which names cases, where the folder does not have the results that run.json names.
        """
        run = self.run
        with refused(self.option, self.path, "{error.filename} cannot be read ({error.strerror})"):
            found = faults(self.items, ids_in(self.path / RESULTS), run.without_result)
        # Nobody knows how many cases a killed run did not run.
        left = len(found.missing) if run.finished is None else run.not_run or 0
        missing = found.missing if len(found.missing) > left * partial else ()
        for line in fault_lines(Faults(missing, found.doubled, found.foreign)):
            wanted = "go on with --probe-resume, which runs such cases again, or give the folder of a whole run"
            raise SettingsError(self.option, str(self.path), f"{line}; {wanted}")
        if run.finished is not None and not run.not_run:
            return ""
        if run.selected is None:
            return "its run ended early, before its cases were known"
        return f"its run ended early: {left:,} of {len(self.items.found):,} cases are missing"


# What is kept of a case.
Kept = TypeVar("Kept", covariant=True)


class ResultSet(Struct, Generic[Kept], frozen=True, dict=True):
    """Another run, a benchmark, or a baseline: what is kept of its cases, by portable id. identity says what it may be
    mixed with. same_device: is it of this run's device? limits: may a case fail, since it takes longer than there?"""

    kind: Literal["run", "benchmark", "baseline"]
    name: str
    cases: Mapping[str, Kept]
    identity: Identity = {}
    same_device: bool = True
    limits: bool = True

    def id_of(self, id: str) -> str | None:
        """The id of the same case here: in its own dtype or, where a benchmark has it in another one, in that."""
        if id in self.cases or self.kind != "benchmark":
            return id if id in self.cases else None
        return self._in_any_dtype.get(PortableId.parse(id).in_any_dtype)

    def get(self, id: str) -> Kept | None:
        """What is kept of the same case."""
        found = self.id_of(id)
        return None if found is None else self.cases[found]

    @cached_property
    def _in_any_dtype(self) -> Mapping[PortableId, str]:
        """The first of each case, or the one that ran as recorded."""
        found: dict[PortableId, str] = {}
        for id in self.cases:
            identity = PortableId.parse(id)
            if identity.dtype:
                found.setdefault(identity.in_any_dtype, id)
            else:
                found[identity] = id
        return found


# What a run is compared with: a benchmark, or a baseline.
OtherResults: TypeAlias = ResultSet[Result | KeptCase]
