"""The dumps of ptdbg_ascend: a .pkl that is text, with the folder of .npy files of its name beside it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pytest_probe.model.dump import Dump, Record
from pytest_probe.records import lazy_json
from pytest_probe.records.ptdbg.entries import decode, gradients, statistics_of
from pytest_probe.records.ptdbg.lines import Sorted, is_ptdbg, sorted_lines
from pytest_probe.records.ptdbg.stack import Stacks
from pytest_probe.records.salvage import ADVICE
from pytest_probe.system import archive
from pytest_probe.system.process import paused_gc

# Broken lines that a message tells of one by one.
_TOLD = 10
_NODES = "backward entries, of the last autograd node: compared and not replayed"
# Records that tell the release.
_LOOKED_AT = 100
# By the number of statistics in a line.
_VERSIONS = {3: "ptdbg 2.3", 4: "ptdbg 4"}


class PtdbgReader:
    """Reads what ptdbg_ascend 2.3 and 4.0 write. Lines stay as they are until their record is decoded."""

    name = "ptdbg"

    def sniff(self, path: Path, head: bytes) -> bool:
        """Is there a line as ["Torch_relu_0_forward_input.0", ...]?"""
        return is_ptdbg(head)

    def read(self, path: Path) -> Dump:
        """Read the dump. A line that belongs to no record is damage."""
        with paused_gc(), archive.open_file(path) as file:
            found = sorted_lines(lazy_json.without_mark(file.read()))
            records = tuple(_records(found))
        folder = path.with_suffix("")
        stored = archive.is_folder(folder)
        nodes = sum(record.node is not None for record in records)
        return Dump(
            path=path,
            framework="pytorch",
            task="tensor" if stored else "statistics",
            level="",
            records=records,
            decode=partial(decode, path),
            stack=Stacks({call.name: call.entries for call in found.calls.values()} if found.stacks else {}),
            data_dirs=(folder,) if stored else (),
            notes=tuple(_notes(found, records)),
            damage=_damage(path, found, len(records)),
            skipped={_NODES: nodes} if nodes else {},
            fields={"input": "input", "kwargs": "kwargs", "grad": "input"},
            observed=partial(gradients, path),
        )


def _records(found: Sorted) -> Iterator[Record]:
    for call in found.calls.values():
        forward, backward = call.entries.get("forward"), call.entries.get("backward")
        # A call of which only the stack was kept has an entry without values.
        raw, node = (None if entry is None else entry.raw for entry in (forward, backward))
        yield Record(call.name, call.namespace, call.api, call.number, raw, node=node)


def _notes(found: Sorted, records: tuple[Record, ...]) -> Iterator[str]:
    forward = sum(record.forward is not None for record in records)
    backward = sum(record.node is not None for record in records)
    lines = f"{found.values:,} lines of values, {found.stacks:,} of stacks"
    yield f"{_version(records)}, {forward + backward:,} entries: {forward:,} forward, {backward:,} backward; {lines}"
    if not found.values:
        yield "holds no tensors: all its lines are stacks"
    for name, count in found.repeated.items():
        yield f"{name} occurs {count} times, the last one counts"


def _version(records: tuple[Record, ...]) -> str:
    """What wrote the dump: the releases differ in the number of statistics."""
    counts = {statistics_of(raw) for record in records[:_LOOKED_AT] for raw in (record.forward or record.node,) if raw}
    known = sorted(_VERSIONS[count] for count in counts if count in _VERSIONS)
    return known[0] if len(known) == 1 else "ptdbg"


def _damage(path: Path, found: Sorted, records: int) -> tuple[str, ...]:
    if not found.broken:
        return ()
    told = "; ".join(found.broken[:_TOLD])
    more = len(found.broken) - _TOLD
    rest = f"; and {more:,} more such lines" if more > 0 else ""
    return (f"{path}: {told}{rest}; records kept: {records:,}; {ADVICE}",)
