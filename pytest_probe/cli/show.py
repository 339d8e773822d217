"""`pytest-probe show`: what a dump holds, without running it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check import Case, floating_dtypes, preview
from pytest_probe.check.weak import predicted
from pytest_probe.cli.record import Described, text
from pytest_probe.errors import DumpError, RecordError, SettingsError
from pytest_probe.model.case import DIRECTIONS
from pytest_probe.model.dump import Dump, named_tensors
from pytest_probe.model.verdict import SENSITIVITY, STRONG, WEAK, Answer, Verdict
from pytest_probe.options import DIRECTION_CHOICES, DTYPE_CHOICES, NAMED
from pytest_probe.records import find_dumps, labels, read_dump
from pytest_probe.registry import Registry
from pytest_probe.reports.answers import Answers
from pytest_probe.reports.terminal import WIDTH, holds
from pytest_probe.selection import Selection, apis_of, closest, matches, select
from pytest_probe.standards.tables import classes_of, does_work
from pytest_probe.system.text import check_name, printable
from pytest_probe.user_errors import allowing_refusal

_SIZES = ((1_000, "up to 1,000 elements"), (1_000_000, "up to 1,000,000"), (1_000_000_000, "up to 1,000,000,000"))
USAGE_ERROR = 2


class _Line(Struct, frozen=True):
    """One case as it is shown: dtype "" without floats, elements of all its tensors, verdict where it is skipped; weak
    says why it will prove little. computes: does its API do more than to fill, to draw or to copy?"""

    case: Case
    dtype: str
    elements: int
    skip: Verdict | None
    weak: str = ""
    computes: bool = False

    @property
    def text(self) -> str:
        if self.skip is not None:
            return f"  {self.case.id:<50}  skip: {self.skip.kind}: {self.skip.reason}"
        return f"  {self.case.id:<50}  {self.dtype or '-':<12} {self.elements:>12,}"


def add_parser(commands: Any) -> None:
    """Register the command with argparse."""
    parser = commands.add_parser(
        "show",
        help="list what a dump holds: what would run, and what would be skipped and why; or one record in full",
        description="List the cases of dumps: what would run, with its dtype and the elements of its tensors, "
        "what would be skipped and why, and totals by API, dtype and size. Nothing is run, and no conftest.py is read: "
        "what its hooks add (readers, namespaces, references) does not count here.",
        usage="pytest-probe show [options] DUMP [DUMP ...] [RECORD]",
        epilog="exit status: 0, or 2 where an argument or a dump cannot be used",
    )
    parser.add_argument(
        "dumps",
        nargs="+",
        metavar="DUMP",
        help="dump files, folders of dumps, archives of one, or patterns; then a record's name, or a glob of names, to "
        "show those records in full: arguments, outputs, gradients, the stack, and what a replay would do",
    )
    parser.add_argument("--json", action="store_true", help="records in full as a JSON array, all without a RECORD")
    for name in ("api", "skip-api"):
        parser.add_argument(f"--{name}", NAMED[name].flag, action="append", metavar="GLOB", help=NAMED[name].help)
    for name in ("direction", "dtype"):
        option = NAMED[name]
        parser.add_argument(f"--{name}", option.flag, default=option.default, metavar=option.metavar, help=option.help)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """The exit status. Raises SettingsError, or DumpError for a path that leads to no dump."""
    dtypes = [check_name("--dtype", dtype.strip(), DTYPE_CHOICES) for dtype in arguments.dtype.split(",")]
    selection = Selection(
        apis=tuple(map(frameworks.signatures().spelled, arguments.api or ())),
        skip_apis=tuple(map(frameworks.signatures().spelled, arguments.skip_api or ())),
        directions=DIRECTION_CHOICES[check_name("--direction", arguments.direction, DIRECTION_CHOICES)],
        dtypes=tuple(None if dtype == "recorded" else dtype for dtype in dtypes),
    )
    asked = _Asked(Registry.default())
    paths, names = asked.split(arguments.dumps)
    named = labels(paths)
    if names or arguments.json:
        chosen = replace(selection, apis=(*selection.apis, *names))
        return _in_full(asked, paths, named, chosen, arguments.json)
    shown: list[_Line] = []
    unmatched, apis = {*selection.apis, *selection.skip_apis}, set[str]()
    for path in paths:
        dump = asked.read(path)
        if dump is None:
            continue
        print(printable(f"{named[path]}: {holds(dump)}"))
        for note in dump.notes:
            print(printable(f"  {note}"))
        unmatched = {glob for glob in unmatched if not matches(glob, dump.records)}
        apis |= apis_of([dump])
        # What people look for first: what computes, each part in the order of calls.
        for line in sorted(_lines(dump, selection, asked.registry), key=lambda line: not line.computes):
            print(printable(line.text))
            shown.append(line)
        asked.tell(dump.damage)
    if shown or not asked.status:
        print("\n".join(_totals(shown)))
    for glob in sorted(unmatched):
        print(printable(f"{glob} matches no record{closest(glob, apis)}"), file=sys.stderr)
    return asked.status


class _Asked:
    """The dumps that were asked for, each read once; status is the exit status so far."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.status = 0
        self._kept: dict[Path, Dump | None] = {}

    def read(self, path: Path) -> Dump | None:
        """The dump at a path, which is forgotten then; None, and a message, where it cannot be read."""
        if path in self._kept:
            return self._kept.pop(path)
        try:
            return read_dump(path, self.registry.readers)
        except DumpError as error:
            self.tell([str(error)])
            return None

    def tell(self, troubles: Iterable[str]) -> None:
        for trouble in troubles:
            print(printable(f"pytest-probe: error: {trouble}"), file=sys.stderr)
            self.status = USAGE_ERROR

    def split(self, given: Sequence[str]) -> tuple[list[Path], tuple[str, ...]]:
        """The dumps, and the names of the records to show in full: the last argument's, where it leads to no file.
        Raises DumpError or SettingsError."""
        *others, last = given
        if not others or os.path.lexists(last):
            return self._found(given), ()
        paths, name = self._found(others), frameworks.signatures().spelled(last)
        self._kept = {path: self.read(path) for path in paths}
        dumps = [dump for dump in self._kept.values() if dump is not None]
        names = tuple(dict.fromkeys(each for dump in dumps for each in _named(dump, name)))
        if names:
            return paths, names
        with suppress(DumpError):
            return [*paths, *self._found([last])], ()
        raise SettingsError("RECORD", last, f"it is no dump, and matches no record{closest(name, apis_of(dumps))}")

    def _found(self, given: Sequence[str]) -> list[Path]:
        return [path for each in given for path in find_dumps(Path(os.path.abspath(each)))]


def _named(dump: Dump, glob: str) -> Iterator[str]:
    """The names of a dump's records that a name or a glob matches, also as ptdbg spells them: "Torch_relu_0"."""
    asked = Selection(apis=(glob,))
    for record in (*dump.records, *dump.compare_only):
        spelled = f"{record.namespace}_{record.api}_{record.number}"
        matched = any(asked.admits(record, direction) for direction in DIRECTIONS)
        if matched or any(fnmatchcase(f"{spelled}{end}", glob) for end in ("", *(f"_{each}" for each in DIRECTIONS))):
            yield escape(record.name)


def _in_full(
    asked: _Asked, paths: Sequence[Path], named: Mapping[Path, str], selection: Selection, as_json: bool
) -> int:
    """Show the selected records one by one."""
    shown = 0
    for path in paths:
        dump = asked.read(path)
        if dump is None:
            continue
        described = Described(dump, named[path], asked.registry)
        for place, record in enumerate(described.records):
            if not any(selection.admits(record, direction) for direction in DIRECTIONS):
                continue
            found = described.record(place)
            if as_json:
                print("[" if not shown else ",", json.dumps(found, indent=1), sep="\n" if shown else "")
            else:
                print(printable("\n".join([*([""] if shown else []), *text(found)])))
            shown += 1
        asked.tell(dump.damage)
    if as_json:
        print("]" if shown else "[]")
    return asked.status


def _lines(dump: Dump, selection: Selection, registry: Registry) -> Iterator[_Line]:
    for record, direction, dtype in select(dump, selection, floating_dtypes):
        case = Case(dump, record, direction, dtype)
        try:
            call = dump.decode(record)
        except RecordError as error:
            yield _Line(case, "", 0, Verdict("skip", "", str(error), error.kind))
            continue
        found = dtype or "+".join(floating_dtypes(call))
        weak, computes = "", False
        with allowing_refusal():  # arguments that its API has not: the case says so
            bound = frameworks.signatures(dump.framework).bind(case.api, call.args, call.kwargs)
            classes = classes_of(bound.name)
            weak = predicted(call, direction, bound, classes)
            computes = bool(found) and does_work(bound.name)
        trees = (call.args, call.kwargs, call.outputs or ())
        elements = sum(spec.size for tree in trees for _, spec in named_tensors(tree))
        yield _Line(case, found, elements, preview(case, registry), weak, computes)


def _totals(lines: Sequence[_Line]) -> Iterator[str]:
    skipped = Counter(line.skip.kind for line in lines if line.skip is not None)
    yield ""
    yield f"{len(lines) - skipped.total():,} cases would run, {skipped.total():,} would be skipped"
    yield from (f"  {count:>8,}  {kind}" for kind, count in skipped.most_common())
    running = [line for line in lines if line.skip is None]
    if any(line.weak for line in running):
        found = Answers()
        for line in running:
            outcome = WEAK if line.weak else STRONG
            answer = Answer(f"{SENSITIVITY} as statistics say", outcome, line.weak, {STRONG: (int(not line.weak), 1)})
            found.count(answer, line.case.api, line.dtype, line.case.direction, line.case.id)
        yield from found.lines(WIDTH)
    yield from _table("API", ((line.case.api, line.elements) for line in running))
    yield from _table("dtype", ((line.dtype or "no floats", line.elements) for line in running))
    sizes = (next((name for limit, name in _SIZES if line.elements <= limit), "larger") for line in running)
    yield from _table("size", zip(sizes, (line.elements for line in running), strict=True))


def _table(title: str, rows: Iterable[tuple[str, int]]) -> Iterator[str]:
    cases: Counter[str] = Counter()
    elements: Counter[str] = Counter()
    for name, count in rows:
        cases[name] += 1
        elements[name] += count
    if cases:
        yield ""
        yield f"{title:<44} {'cases':>10} {'elements':>20}"
        yield from (f"{name:<44} {cases[name]:>10,} {count:>20,}" for name, count in elements.most_common())
