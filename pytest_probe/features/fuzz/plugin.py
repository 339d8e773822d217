"""The items of --probe-fuzz: one an API of a dump, or of the table; each is a search."""

from __future__ import annotations

import functools
import os
import secrets
import shlex
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.errors import DumpError, RecordError, SettingsError
from pytest_probe.model.dump import Call, Direction, Dump, Record
from pytest_probe.model.result import SEARCH, Result
from pytest_probe.model.verdict import Verdict
from pytest_probe.option_types import Given, Keyed, Maybe, Needing, Place, Type
from pytest_probe.options import NAMED
from pytest_probe.plugin.collectors import ProbeFile
from pytest_probe.plugin.feature import Feature, Trait
from pytest_probe.plugin.guard import LOST
from pytest_probe.plugin.items import NoticeItem
from pytest_probe.plugin.reproduce import NOT_SAVED
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.plugin.xdist import is_controller
from pytest_probe.reports import terminal
from pytest_probe.reports.running_case import fatal_calls_of
from pytest_probe.selection import Selection
from pytest_probe.system.text import printable_line
from pytest_probe.user_errors import first_line

if TYPE_CHECKING:
    from pytest_probe.check import CaseOutcome
    from pytest_probe.features.fuzz.findings import Finding
    from pytest_probe.features.fuzz.search import Effort
    from pytest_probe.features.fuzz.templates import Template


# Its calls are the same ones each time.
QUICK = "quick"
_PROFILES = {QUICK: 25, "thorough": 1_000, "nightly": 10_000}


class Calls(Type):
    """A number of calls, or the name of a profile; None without a search."""

    def read(self, given: Given) -> str | None:
        text = given.text
        if not text:
            return None
        if text not in _PROFILES and not (text.isascii() and text.isdigit() and 1 <= int(text) < 2**31):
            raise given.wrong(f"give a number of calls, 1 or more, or {', '.join(_PROFILES)}")
        return text


class Search(Keyed):
    """A number of calls, and the folder of the dump that what they find is appended to. Two runs that differ in the
    folder alone are alike."""

    def __init__(self) -> None:
        super().__init__(Needing(Calls(), "hypothesis", "fuzz"), save=(Maybe(Place()), ""))

    def plain(self, value: tuple[str, Path | None] | None) -> int | None:
        return None if value is None else count(value[0])

    def identity(self, value: tuple[str, Path | None] | None) -> str | None:
        return None if value is None else value[0]


def count(asked: str) -> int:
    """The calls of an API that are drawn."""
    return _PROFILES[asked] if asked in _PROFILES else int(asked)


# The path that searches by the table alone have in place of a dump's.
TABLE = Path("table")
# The key of a worker's input.
_SEED = "probe_search_seed"
# Records of an API that are looked at for others than those seen so far.
_RECORDS = 64


class Fuzz(Feature):
    def __init__(self, probe: ProcessSession) -> None:
        super().__init__(probe)
        # The same in all processes of a run: one that goes on with a search draws the same calls.
        given: dict[str, Any] = getattr(probe.config, "workerinput", {})
        self.seed: int = given.get(_SEED, secrets.randbits(32))

    @property
    def traits(self) -> Sequence[Trait]:
        """Where no dump is given APIs are searched by the table alone."""
        return () if self.probe.dumps.paths or self.probe.settings.collect else ("collects",)

    def prepare(self) -> None:
        """Raises SettingsError for a search of the table alone where --probe-api names nothing in it."""
        settings = self.probe.settings
        option, globs = NAMED["fuzz"].flag, settings.selection.apis
        if "collects" in self.traits and not globs:
            wanted = f"give a dump with {NAMED['dump'].flag}, or {NAMED['api'].flag}"
            raise SettingsError(option, settings.given["fuzz"], wanted)
        if "collects" in self.traits and not _table_apis(settings.selection):
            from pytest_probe.features.fuzz.templates import table

            known = ", ".join(sorted(table()))
            raise SettingsError(NAMED["api"].flag, ", ".join(globs), f"without a dump the table has {known}")

    def header(self) -> list[str]:
        """A line for a search in this process, which no call may end."""
        if is_controller(self.probe.config):
            return []
        return [
            "probe: a drawn call that ends the process, or hangs, ends this run; "
            "with -n or --probe-isolate it is a finding, and the search goes on"
        ]

    def items(self, parent: ProbeFile, dump: Dump) -> Iterator[NoticeItem]:
        """An item for each API of a dump that has a selected record."""
        found: dict[str, list[Record]] = {}
        for record in dump.records:
            if any(self.probe.settings.selection.admits(record, direction) for direction in record.directions):
                found.setdefault(f"{record.namespace}.{record.api}", []).append(record)
        for api, records in found.items():
            yield _FuzzItem.from_parent(parent, api=api, framework=dump.framework, records=records, dump=dump)

    def select(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Add the searches that belong to no file."""
        if "collects" in self.traits:
            table: Table = Table.from_parent(session, name=TABLE.name, nodeid=TABLE.name, probe=self.probe)
            items.extend(table.collect())

    def for_workers(self) -> dict[str, Any]:
        return {_SEED: self.seed}

    def own_item(self, nodeid: str, device: str | None) -> tuple[Path, str, str] | None:
        path, name = self.probe.dumps.of_item(nodeid)
        if not name.endswith(SEARCH):
            return None
        path = TABLE if "collects" in self.traits and nodeid == f"{TABLE.name}::{name}" else path
        return path, name, search_command(self.probe, path, name.removesuffix(SEARCH), device)


def search_command(probe: ProcessSession, path: Path, api: str, device: str | None) -> str:
    """The command that searches an API again, with the same calls."""
    target, given = f"--probe-api={shlex.quote(api)}", probe.settings.given
    if path != TABLE:
        target = f"--probe-dump={shlex.quote(str(path))} {target}"
    if "direction" in given:
        target += f" --probe-direction={given['direction']}"
    command = probe.settings.command(target, given.get("dtype"), device)
    asked = probe.settings.fuzz
    if asked is None or asked[0] == QUICK:
        return command
    seed = next(feature.seed for feature in probe.features if isinstance(feature, Fuzz))
    return f"{command} --hypothesis-seed={probe.config.getoption('--hypothesis-seed', None) or seed}"


class _FuzzItem(NoticeItem):
    """The search around one API's records, or, without records, by the table alone."""

    makes_calls = True

    def __init__(
        self, *, api: str, framework: str, records: Sequence[Record] = (), dump: Dump | None = None, **kwargs: Any
    ) -> None:
        super().__init__(name=f"{api}{SEARCH}", **kwargs)
        self.api = api
        self.framework = framework
        self.records = records
        self.dump = dump
        self._failures: list[Finding] = []
        self._loss = ""
        self.add_marker(pytest.mark.probe(api=api.partition(".")[2], namespace=api.partition(".")[0]))

    def limited(self) -> AbstractContextManager[None]:
        """No limit for the whole search: each call has a limit of its own."""
        return nullcontext()

    def judge(self) -> Verdict:
        from pytest_probe.features.fuzz.findings import search_result, verdict_of
        from pytest_probe.features.fuzz.from_records import fit_sizes
        from pytest_probe.features.fuzz.trial import Target, Trials

        probe, standard = self.probe, self.probe.settings.standard
        backward = self.dump is None or any(record.backward is not None for record in self.records)
        directions: tuple[Direction, ...] = probe.settings.selection.directions if backward else ("forward",)
        target = Target(self.api, self.framework, self.name, self.dump_path, directions)
        fatal = {found.call.key: found for found in fatal_calls_of(probe.running_folder, str(self.portable_id))}
        trials = Trials(probe.quick_checker, target, probe.announced, fatal, self._further)
        try:
            templates = [found for each in self._templates() if (found := fit_sizes(trials, each)) is not None]
        except RecordError as error:
            return Verdict("skip", standard, str(error), error.kind)
        if not templates:
            reason = f"the reference rejects the calls that were recorded of {self.api}, so none is drawn around them"
            return Verdict("skip", standard, reason, "nothing to fuzz")
        trials = replace(trials, target=replace(trials.target, ulp=templates[0].ulp))
        try:
            result = search_result(trials, templates, self._effort(), probe.checker)
        except Exception:  # whatever a device that is lost makes a framework raise
            if not self._loss:
                raise
        if self._loss:
            hint = "with -n or --probe-isolate it is a finding, and the search goes on"
            return Verdict("error", standard, f"a drawn call left the device unusable: {self._loss}; {hint}")
        self._failures = result.failures(strict=probe.settings.strict)
        verdict = verdict_of(result, standard, strict=probe.settings.strict)
        asked = probe.settings.fuzz
        folder = None if asked is None else asked[1]
        saved = () if folder is None else (self._saved(found, folder) for found in self._failures)
        return replace(verdict, notes=(*verdict.notes, *saved))

    def _further(self, checked: CaseOutcome) -> CaseOutcome:
        """A drawn call as the run's features judge it. One that leaves the device unusable ends a worker, as a crash
        does, while the call is announced."""
        self.probe.note_loss(checked)
        if self.probe.device_lost:
            if hasattr(self.config, "workerinput"):
                os._exit(LOST)
            self._loss = self._loss or checked.verdict.reason
        for feature in self.probe.features:
            checked = feature.judge_drawn_call(checked)
        return checked

    def _saved(self, found: Finding, folder: Path) -> str:
        """A note on where the call was appended, or why it was not."""
        from pytest_probe.features.fuzz.findings import append

        try:
            return f"saved as {append(folder, found, self.framework)} in {folder}"
        except (OSError, DumpError) as error:
            return f"{NOT_SAVED}{folder} cannot be written ({getattr(error, 'strerror', None) or first_line(error)})"

    def _effort(self) -> Effort:
        from pytest_probe.features.fuzz.search import Effort, database

        asked = self.probe.settings.fuzz
        assert asked is not None
        cache = getattr(self.config, "cache", None)
        folder = None
        if cache is not None:
            # Where nothing can be written there, the next run draws anew.
            with suppress(OSError):
                found = cache.mkdir("probe-fuzz")
                with TemporaryFile(dir=found):
                    folder = found
        seed = next(feature.seed for feature in self.probe.features if isinstance(feature, Fuzz))
        return Effort(count(asked[0]), asked[0] == QUICK, database(folder), seed)

    def _templates(self) -> list[Template]:
        """Raises RecordError where all records are broken."""
        from pytest_probe.features.fuzz.from_records import learnt
        from pytest_probe.features.fuzz.templates import DTYPES, template_from_table

        signatures = frameworks.signatures(self.framework)
        asked = tuple(dtype for dtype in self.probe.settings.selection.dtypes if dtype is not None)
        if self.dump is None:
            return [template_from_table(self.api, signatures, asked or DTYPES)]
        decoded = [_decoded(self.dump, record) for record in self.records[:_RECORDS]]
        calls = [call for call in decoded if isinstance(call, Call)]
        if not calls:
            raise next(error for error in decoded if isinstance(error, RecordError))
        return learnt(self.api, signatures, calls, asked)

    def text(self, verdict: Verdict) -> str:
        device = self.probe.device if self.probe.settings.devices else None
        shown = terminal.failure(
            verdict,
            name=self.name,
            device=self.probe.name_of(self.probe.device, self.framework),
            frame=None,
            saved="",
            command=search_command(self.probe, self.dump_path, self.api, device),
            whole=self.probe.verbose,
            width=self.probe.width,
        )
        return "\n\n".join([shown, *(each.script for each in self._failures if each.script)])

    def result(self, verdict: Verdict, duration: float) -> Result:
        device = self.probe.name_of(self.probe.device, self.framework)
        return Result.of(
            verdict, self.portable_id, api=self.api, direction="", dtype="", device=device, duration=duration
        )

    def shown_place(self) -> tuple[PathLike[str] | str, int | None, str]:
        return printable_line(str(self.dump_path)), None, f"{self.name} "


class Table(pytest.Collector):
    """The APIs of the table that --probe-api names, where no dump was given."""

    def __init__(self, *, probe: ProcessSession, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.probe = probe
        self.dump_path = TABLE

    def collect(self) -> Iterator[pytest.Item]:
        for number, api in enumerate(_table_apis(self.probe.settings.selection)):
            item = _FuzzItem.from_parent(self, api=api, framework=frameworks.DEFAULT)
            item.number = number
            yield item


@functools.cache
def _table_apis(selection: Selection) -> tuple[str, ...]:
    """The APIs that --probe-api names, of those in the table of constraints."""
    from pytest_probe.features.fuzz.templates import entry_of

    known, signatures = frameworks.load(frameworks.DEFAULT).apis(), frameworks.signatures()
    named = (api for api in dict.fromkeys(known) if selection.names(api))
    return tuple(api for api in named if entry_of(api, signatures) is not None)


def _decoded(dump: Dump, record: Record) -> Call | RecordError:
    try:
        return dump.decode(record)
    except RecordError as error:
        return error
