"""--probe-shard: which part of the items this run has. And `pytest-probe merge`: the runs of several shards read,
checked and joined into one, and their junit file, with the names that pytest's own has.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree

import pytest

from pytest_probe.check.cost import dealt
from pytest_probe.errors import SettingsError
from pytest_probe.model.result import Result
from pytest_probe.model.verdict import SEVERITY
from pytest_probe.option_types import Given, Type
from pytest_probe.plugin import junit
from pytest_probe.plugin.feature import Feature, Trait
from pytest_probe.plugin.items import NoticeItem
from pytest_probe.plugin.order import PLACE, costs_of, deselect, sharing_runs
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.reports.answers import Answers
from pytest_probe.reports.groups import Groups
from pytest_probe.reports.result_set import RunFolder
from pytest_probe.reports.results_file import RESULTS, RUN, ResultsWriter, differences, refused
from pytest_probe.reports.selected import ITEMS, SelectedItem, id_list, selected_in, write_items
from pytest_probe.reports.tally import Tally
from pytest_probe.reports.terminal import WIDTH, group_lines, summary_lines
from pytest_probe.system.decoding import to_json
from pytest_probe.system.files import replacing
from pytest_probe.system.text import printable

# More shards than any run has cases.
MOST_PARTS = 1_000_000


def shard_of(text: str) -> tuple[int, int] | None:
    """The I and N of "I/N", the I-th of N parts; None for anything else, or N is more than any run has cases."""
    match = re.fullmatch(r"([0-9]{1,7})/([0-9]{1,7})", text)
    number, parts = (int(match[1]), int(match[2])) if match else (0, 0)
    return (number, parts) if 1 <= number <= parts <= MOST_PARTS else None


class Part(Type):
    """The I and N of the I-th of N parts; None for the whole."""

    def read(self, given: Given) -> tuple[int, int] | None:
        found = shard_of(given.text)
        if given.text and found is None:
            raise given.wrong("give I/N, the I-th of N parts, with I from 1 to N, as 1/4")
        return found

    def plain(self, value: tuple[int, int] | None) -> str | None:
        return None if value is None else "/".join(map(str, value))


# The key of a worker's output.
_EMPTY = "probe_nothing_left"


class Shard(Feature):
    # Has it no items, since there are fewer groups than shards?
    _empty = False

    @property
    def traits(self) -> Sequence[Trait]:
        return ("part", "no items") if self._empty else ("part",)

    def select(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Leave the items of this shard. Items that share a run stay together. What another plugin shuffled is dealt
        out as if it had not."""
        assert self.probe.settings.shard is not None
        number, parts = self.probe.settings.shard
        groups, config = sharing_runs(items), session.config
        key = _order(self.probe)
        ordered = sorted(groups, key=lambda group: min(map(key, group)))
        dealt_out = zip(ordered, dealt(costs_of(ordered), parts), strict=True)
        mine = {id(group) for group, part in dealt_out if part == number - 1}
        deselect(config, [item for group in groups if id(group) not in mine for item in group])
        for place, item in enumerate(sorted(items, key=key)):
            item.stash[PLACE] = place
        self._empty = bool(groups) and not mine
        if hasattr(config, "workeroutput"):
            config.workeroutput[_EMPTY] = self._empty
        items[:] = chain.from_iterable(group for group in groups if id(group) in mine)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._empty |= getattr(node, "workeroutput", {}).get(_EMPTY, False)


def _order(probe: ProcessSession) -> Callable[[pytest.Item], tuple[object, ...]]:
    """The order of one run: dump by dump, as collected; then the user's own tests, and then what initialises."""
    given = {path: place for place, path in enumerate(probe.dumps.paths)}
    # Dumps that were not given come after the given ones, by their paths.
    last, in_order = len(given), probe.has("in order")

    def key(item: pytest.Item) -> tuple[object, ...]:
        if not isinstance(item, NoticeItem):
            return False, last + 1, item.nodeid
        late, path = item.initialises and not in_order, item.dump_path
        return late, given.get(path, last), str(path), item.number, item.nodeid

    return key


_COMMAND = "merge"
# pytest's status of a run in which there was nothing to do.
_NOTHING = 5
# The node id of an item, and a result of it.
_Named: TypeAlias = tuple[str, Result]
# The exit status of a run in which something failed, as of pytest.
_FAILED = 1


class ShardFolder(RunFolder, frozen=True):
    """A folder of --probe-out whose run had --probe-shard=number/parts."""

    number: int
    parts: int

    @classmethod
    def at(cls, folder: Path) -> ShardFolder:
        """Raises SettingsError where the folder holds no run, or one without --probe-shard."""
        give = f"give folders of --probe-out; {RUN}: "
        found = RunFolder.read(_COMMAND, folder, give + "{error}", give + "{error.found}")
        given = found.run.settings.get("shard")
        if not isinstance(given, str):
            raise SettingsError(_COMMAND, str(folder), "its run had no --probe-shard, so there is nothing to join")
        shard = shard_of(given)
        if shard is None:
            wanted = f"{RUN}: settings.shard is {given!r}; expected I/N, with I from 1 to N and N up to {MOST_PARTS:,}"
            raise SettingsError(_COMMAND, str(folder), wanted)
        return cls(_COMMAND, folder, found.run, found.whole, *shard)

    @property
    def name(self) -> str:
        return f"{self.number}/{self.parts}"

    def by_item(self) -> Iterator[tuple[SelectedItem, Result]]:
        """Each result with its item: a test may have several. Raises SettingsError where it is none of the shard's."""
        unusable = f"{RESULTS} cannot be used: {{error}}"
        for result in self.results(unusable, unusable):
            item = self.items.of(result.id)
            if item is None:
                raise SettingsError(_COMMAND, str(self.path), f"{ITEMS} does not have {result.id}")
            yield item, result


def check(shards: Sequence[ShardFolder], *, partial: bool) -> None:
    """Can they be joined? Raises SettingsError. partial: some may be missing, or have ended early."""
    one = shards[0]
    for other in shards[1:]:
        if one.parts != other.parts:
            wanted = f"it is one of {other.parts} shards, {one.path} is one of {one.parts}; give shards of one run"
            raise SettingsError(_COMMAND, str(other.path), wanted)
        for found in differences(other.run.identity, one.run.identity, "merge"):
            difference = f"its run has {found.field} {found.before}, that of {one.path} has {found.now}"
            raise SettingsError(_COMMAND, str(other.path), f"{difference}; give shards of one run")
    parts = one.parts
    seen: dict[int, ShardFolder] = {}
    early: dict[int, str] = {}
    for shard in shards:
        if shard.number in seen:
            wanted = f"it is shard {shard.name}, and so is {seen[shard.number].path}; give each shard once"
            raise SettingsError(_COMMAND, str(shard.path), wanted)
        seen[shard.number] = shard
        early[shard.number] = shard.early_end(partial=partial)
    if partial:
        return
    missing = [f"{number}/{parts}" for number in range(1, parts + 1) if number not in seen]
    if missing:
        given = ", ".join(str(shard.path) for shard in shards)
        raise SettingsError(_COMMAND, given, f"shards are missing: {id_list(missing)}; add them, or --partial")
    for shard in shards:
        if early[shard.number]:
            wanted = f"{early[shard.number]}; go on with --probe-resume, or add --partial"
            raise SettingsError(_COMMAND, str(shard.path), wanted)


def joined(shards: Sequence[ShardFolder]) -> list[tuple[SelectedItem, Result]]:
    """All results in the order of the run without shards. Raises SettingsError where two shards have the same item."""
    found: list[tuple[SelectedItem, Result]] = []
    owner: dict[str, ShardFolder] = {}
    for shard in shards:
        for item, result in shard.by_item():
            if owner.setdefault(item.id, shard) is not shard:
                wanted = f"it has {item.id}, and so has {owner[item.id].path}; give shards of one run"
                raise SettingsError(_COMMAND, str(shard.path), wanted)
            found.append((item, result))
    return sorted(found, key=lambda pair: pair[0].place)


def run_of(shards: Sequence[ShardFolder], results: Iterable[Result]) -> dict[str, Any]:
    """The run.json of all of them, as one run without shards has it."""
    first, runs = shards[0], [shard.run for shard in shards]
    statuses = [run.exit_status for run in runs if run.exit_status is not None]
    some = [status for status in statuses if status != _NOTHING]
    ends = [run.finished for run in runs]
    devices = [device for run in runs for device in run.devices]
    without = [id for run in runs for id in run.without_result]
    return {
        **{key: value for key, value in first.whole.items() if key not in ("schema", "tables", "selected")},
        "settings": {**first.run.settings, "shard": None, "strict": any(run.settings.get("strict") for run in runs)},
        "identity": {**first.run.identity, "shard": None},
        "devices": [device for place, device in enumerate(devices) if device not in devices[:place]],
        "started": min(run.started for run in runs),
        "finished": None if None in ends else max(end for end in ends if end is not None),
        "exit_status": max(some or statuses, default=0),
        "verdicts": dict(Counter(result.verdict for result in results)),
        "not_run": sum(run.not_run or 0 for run in runs),
        "shards": [shard.name for shard in shards],
        **({"without_result": without} if without else {}),
    }


def write(folder: Path, run: Mapping[str, Any], items: Sequence[SelectedItem], results: Iterable[Result]) -> None:
    """The results, the list of the items and run.json of all shards. Raises SettingsError where the folder has results
    or cannot be written."""
    path = folder / RESULTS
    if path.exists() and path.stat().st_size:
        raise SettingsError("--out", str(folder), f"it holds {RESULTS} of another run; give a new folder")
    with refused("--out", folder, "it cannot be written to: {error.strerror}"):
        folder.mkdir(parents=True, exist_ok=True)
        writer = ResultsWriter(folder, run)
        write_items(folder, items)
        writer.add(selected=selected_in(folder))
        for result in results:
            writer.write(f"{to_json(result).decode()}\n")
        writer.close()
    if writer.trouble:
        raise SettingsError("--out", str(folder), f"it cannot be written to: {writer.trouble}")


def write_junit(path: Path, results: Iterable[_Named], groups: Groups, *, strict: bool) -> None:
    """One testcase an item, whose results follow one another; of several the worst is shown. The groups of all come
    first. strict: warnings fail. Raises OSError."""
    suite = ElementTree.Element("testsuite", name="pytest")
    counts = {"errors": 0, "failures": 0, "skipped": 0, "tests": 0}
    total = 0.0
    properties = ElementTree.SubElement(suite, "properties")
    for name, line in junit.group_properties(groups):
        ElementTree.SubElement(properties, "property", name=name, value=line)
    for node, found in groupby(results, key=lambda pair: pair[0]):
        each = [result for _, result in found]
        worst = max(each, key=lambda result: (result.fails(strict=strict), SEVERITY[result.verdict]))
        outcome = _add(suite, node, worst, each, strict=strict)
        counts["tests"] += 1
        if outcome:
            counts[outcome] += 1
        total += worst.duration
    suite.attrib |= {name: str(number) for name, number in counts.items()} | {"time": f"{total:.3f}"}
    suites = ElementTree.Element("testsuites", name="pytest tests")
    suites.append(suite)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        ElementTree.ElementTree(suites).write(temporary, encoding="utf-8", xml_declaration=True)


def _add(suite: ElementTree.Element, node: str, worst: Result, each: Sequence[Result], *, strict: bool) -> str:
    """What the item counts as, in addition to a test: "failures", "skipped" or ""."""
    classname, name = names(node)
    case = ElementTree.SubElement(suite, "testcase", classname=classname, name=name, time=f"{worst.duration:.3f}")
    properties = ElementTree.SubElement(case, "properties")
    for key, value in junit.properties(worst):
        ElementTree.SubElement(properties, "property", name=key, value=printable(str(value)))
    reason = printable(worst.why)
    if worst.fails(strict=strict):
        text = "\n".join(result.why for result in each if result.fails(strict=strict))
        failure = ElementTree.SubElement(case, "failure", message=reason.partition("\n")[0])
        failure.text = printable(text)
        return "failures"
    known = worst.change == "known"
    if worst.verdict != "skip" and not known:
        return ""
    kind = "pytest.xfail" if known else "pytest.skip"
    ElementTree.SubElement(case, "skipped", type=kind, message=reason)
    return "skipped"


def names(node: str) -> tuple[str, str]:
    """classname and name of an item, as pytest makes them of its node id."""
    path, bracket, parameters = node.partition("[")
    parts = path.split("::")
    parts[0] = parts[0].replace("/", ".").removesuffix(".py")
    return ".".join(parts[:-1]), parts[-1] + bracket + parameters


def add_parser(commands: Any) -> None:
    """Register the command with argparse."""
    parser = commands.add_parser(
        "merge",
        help="join the results of the shards of a run",
        description="Join folders of --probe-out, one for each shard of --probe-shard: results.jsonl, run.json and the "
        "CSV files are those of one run without shards. Tensors of --probe-save stay where they are; summary.md and "
        "compare_result_*.csv are not written, since they hold what a run reads of the dumps.",
        epilog="exit status: 0, 1 where a case failed or a shard's run did, 2 where an argument cannot be used",
    )
    parser.add_argument("folders", metavar="DIR", type=Path, nargs="+", help="the folder of one shard")
    parser.add_argument("-o", "--out", metavar="DIR", type=Path, required=True, help="folder for the results of all")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write one junit file of all cases")
    parser.add_argument("--partial", action="store_true", help="some shards may be missing, or have ended early")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """The exit status. Raises SettingsError."""
    # Each run of pytest imports this file, and writes no tables of the tools by it.
    from pytest_probe.export.files import write_files

    shards = sorted(map(ShardFolder.at, arguments.folders), key=lambda shard: shard.number)
    check(shards, partial=arguments.partial)
    found = joined(shards)
    results = [result for _, result in found]
    whole = run_of(shards, results)
    items = sorted((item for shard in shards for item in shard.items.found), key=lambda item: item.place)
    write(arguments.out, whole, items, results)
    strict = bool(whole["settings"]["strict"])
    tally, answers = Tally(), Answers()
    for result in results:
        tally.add(result)
        answers.add(result)
    with refused("--out", arguments.out, "it cannot be written to: {error.strerror}"):
        write_files(arguments.out, whole["settings"])
    if arguments.junit is not None:
        with refused("--junit", arguments.junit, "it cannot be written: {error.strerror}"):
            write_junit(arguments.junit, ((item.node, result) for item, result in found), tally.groups, strict=strict)
    lines = [*summary_lines(tally, not_run=whole["not_run"]), *answers.lines(WIDTH), *group_lines(tally)]
    if any(result.against is not None and result.against.rows for result in results):
        lines.append("compare_result_*.csv are not written: they hold stacks, and merge reads no dump")
    print(printable("\n".join(lines)))
    return _FAILED if whole["exit_status"] or any(result.fails(strict=strict) for result in results) else 0
