"""The runs of several shards read, checked and joined: --probe-shard and `pytest-probe merge`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from pytest_probe.core.regular_file import opened
from pytest_probe.core.result import PortableId, Result
from pytest_probe.core.whole_file import replacing
from pytest_probe.errors import ResultsError, SettingsError
from pytest_probe.reports.earlier import EarlierDump
from pytest_probe.reports.results_file import RESULTS, RUN, ResultsWriter, lines_of, read_results

ITEMS = "shard.json"
COMMAND = "merge"
# Of the settings, those that decide which cases there are, how they are dealt out, and what a result says, by the words
# of a message.
SAME: Mapping[str, str] = {
    "inputs": "inputs",
    "dtypes": "dtype",
    "standard": "standard",
    "apis": "--probe-api",
    "skip_apis": "--probe-skip-api",
    "directions": "direction",
    "allow": "--probe-allow",
    "repeat": "repeat",
    "flops": "flops",
    "mode": "mode",
    "time_budget": "--probe-time-budget",
    "time_limit": "--probe-time-limit",
    "gate": "gate",
    "fuzz": "fuzz",
    "strict": "strict",
    "emulate": "emulate",
    "unique": "unique",
}
# pytest's status of a run in which there was nothing to do.
NOTHING = 5


class ShardItem(msgspec.Struct, frozen=True, array_like=True):
    """An item of a shard: its portable id, or the node id of a test; its place in the run without shards; its node
    id."""

    id: str
    place: int
    node: str


def write_items(folder: Path, items: Sequence[ShardItem]) -> None:
    """Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / ITEMS) as temporary:
        temporary.write_bytes(msgspec.json.encode(items))


class ShardRun(msgspec.Struct, frozen=True):
    """What the run.json of a shard says, as far as merging needs it."""

    seed: int
    settings: dict[str, Any]
    dumps: tuple[EarlierDump, ...]
    devices: list[dict[str, str]]
    started: str
    finished: str | None = None
    exit_status: int | None = None
    not_run: int | None = None


class Shard(Struct, frozen=True, dict=True):
    """A folder of --probe-out whose run had --probe-shard=number/parts; whole is its run.json."""

    folder: Path
    run: ShardRun
    whole: Mapping[str, Any]
    number: int
    parts: int

    @classmethod
    def read(cls, folder: Path) -> Shard:
        """Raises SettingsError where the folder holds no run, or one without --probe-shard."""
        try:
            with opened(folder / RUN) as file:
                content = file.read()
            run, whole = msgspec.json.decode(content, type=ShardRun), msgspec.json.decode(content)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SettingsError(COMMAND, str(folder), f"give folders of --probe-out; {RUN}: {error}") from None
        given = run.settings.get("shard")
        if not isinstance(given, str):
            raise SettingsError(COMMAND, str(folder), "its run had no --probe-shard, so there is nothing to join")
        number, _, parts = given.partition("/")
        return cls(folder, run, whole, int(number), int(parts))

    @property
    def name(self) -> str:
        return f"{self.number}/{self.parts}"

    @property
    def is_whole(self) -> bool:
        """Has each of its items a result?"""
        return self.run.finished is not None and self.run.not_run == 0

    @cached_property
    def items(self) -> Mapping[str, ShardItem]:
        """By id. Raises SettingsError."""
        try:
            with opened(self.folder / ITEMS) as file:
                found = msgspec.json.decode(file.read(), type=list[ShardItem])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SettingsError(COMMAND, str(self.folder), f"{ITEMS} cannot be used: {error}") from None
        return {item.id: item for item in found}

    def item_of(self, result: Result) -> ShardItem:
        """The item of a result: a test may have several. Raises SettingsError where it is none of the shard's."""
        identity = result.id.rpartition("::")[0] if PortableId.parse(result.id).label.endswith(".py") else result.id
        found = self.items.get(identity)
        if found is None:
            raise SettingsError(COMMAND, str(self.folder), f"{ITEMS} does not have {result.id}")
        return found

    def results(self) -> Iterator[tuple[ShardItem, Result]]:
        """Raises SettingsError."""
        try:
            for result in read_results(self.folder / RESULTS):
                yield self.item_of(result), result
        except (OSError, ResultsError) as error:
            raise SettingsError(COMMAND, str(self.folder), f"{RESULTS} cannot be used: {error}") from None


def check(shards: Sequence[Shard], *, partial: bool) -> None:
    """Can they be joined? Raises SettingsError. partial: some may be missing, or have ended early."""
    for other in shards[1:]:
        _check_same(shards[0], other)
    parts = shards[0].parts
    seen: dict[int, Shard] = {}
    for shard in shards:
        if shard.number in seen:
            wanted = f"it is shard {shard.name}, and so is {seen[shard.number].folder}; give each shard once"
            raise SettingsError(COMMAND, str(shard.folder), wanted)
        seen[shard.number] = shard
    if partial:
        return
    missing = [f"{number}/{parts}" for number in range(1, parts + 1) if number not in seen]
    if missing:
        given = ", ".join(str(shard.folder) for shard in shards)
        raise SettingsError(COMMAND, given, f"shards are missing: {', '.join(missing)}; add them, or --partial")
    for shard in shards:
        if not shard.is_whole:
            wanted = "its run ended early; go on with --probe-resume, or add --partial"
            raise SettingsError(COMMAND, str(shard.folder), wanted)


def _check_same(one: Shard, other: Shard) -> None:
    pairs: list[tuple[str, Any, Any]] = [("seed", one.run.seed, other.run.seed)]
    pairs += [(word, one.run.settings.get(key), other.run.settings.get(key)) for key, word in SAME.items()]
    pairs.append(("a number of shards of", one.parts, other.parts))
    digests = ({dump.label: dump.digest for dump in shard.run.dumps} for shard in (one, other))
    pairs += [(f"{label} with digest", mine, its) for label, mine, its in _beside(*digests)]
    for word, mine, its in pairs:
        if mine != its:
            told = f"its run has {word} {_shown(its)}, that of {one.folder} has {_shown(mine)}"
            raise SettingsError(COMMAND, str(other.folder), f"{told}; give shards of one run")


def _beside(one: Mapping[str, str], other: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    return ((label, one.get(label, "none"), other.get(label, "none")) for label in dict.fromkeys((*one, *other)))


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def joined(shards: Sequence[Shard]) -> list[tuple[ShardItem, Result]]:
    """All results in the order of the run without shards. Raises SettingsError where two shards have the same item."""
    found: list[tuple[ShardItem, Result]] = []
    owner: dict[str, Shard] = {}
    for shard in shards:
        for item, result in shard.results():
            if owner.setdefault(item.id, shard) is not shard:
                wanted = f"it has {item.id}, and so has {owner[item.id].folder}; give shards of one run"
                raise SettingsError(COMMAND, str(shard.folder), wanted)
            found.append((item, result))
    return sorted(found, key=lambda pair: pair[0].place)


def run_of(shards: Sequence[Shard], results: Iterable[Result]) -> dict[str, Any]:
    """The run.json of all of them, as one run without shards has it."""
    first = shards[0]
    statuses = [shard.run.exit_status for shard in shards if shard.run.exit_status not in (None, NOTHING)]
    ends = [shard.run.finished for shard in shards]
    devices = [device for shard in shards for device in shard.run.devices]
    return {
        **{key: value for key, value in first.whole.items() if key != "schema"},
        "settings": {**first.run.settings, "shard": None},
        "devices": [device for place, device in enumerate(devices) if device not in devices[:place]],
        "started": min(shard.run.started for shard in shards),
        "finished": None if None in ends else max(end for end in ends if end is not None),
        "exit_status": max((status for status in statuses if status is not None), default=0),
        "verdicts": dict(Counter(result.verdict for result in results)),
        "not_run": sum(shard.run.not_run or 0 for shard in shards),
        "shards": [shard.name for shard in shards],
    }


def write(folder: Path, run: Mapping[str, Any], results: Iterable[Result]) -> None:
    """The results and run.json of all shards. Raises SettingsError where the folder has results or cannot be
    written."""
    path = folder / RESULTS
    if path.exists() and path.stat().st_size:
        raise SettingsError("--out", str(folder), f"it holds {RESULTS} of another run; give a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writer = ResultsWriter(folder, run)
        for result in results:
            writer.write(lines_of([result]))
        writer.close()
        trouble = writer.trouble
    except OSError as error:
        trouble = str(error.strerror)
    if trouble:
        raise SettingsError("--out", str(folder), f"it cannot be written to: {trouble}")
