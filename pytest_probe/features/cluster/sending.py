"""What is sent to nodes: how a process starts, items with their raw records, and files that nodes cannot read.

A node reads no dump: raw entries, stacks and the reader's `decode` are sent with each part. So collecting, duplicates,
shards and `-k` happen once, in the controller.
"""

from __future__ import annotations

import math
import os
import pickle
import sys
import uuid
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from pytest_probe import inputs
from pytest_probe.check.cost import ByShapes
from pytest_probe.errors import RecordError
from pytest_probe.features.cluster.messages import SentCase, SentDump, Start
from pytest_probe.model.case import Case
from pytest_probe.model.dump import Call, Record, TensorSpec, named_tensors, no_frames, no_modules
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.session import Probe
from pytest_probe.system import archive

# How groups of cases are dealt out to processes that take more as soon as they are done: guided self-scheduling
# (Polychronopoulos and Kuck, 1987), heaviest first. Each time a process is free it gets a share of what is left, so
# that the last groups go out one at a time. Two parts a host hide the time of sending.

# Parts per process into which the remaining cost is divided. With 1, an estimate that is half of the truth would make
# all other processes wait for one.
_PARTS_PER_PROCESS = 4
# The most that goes out at once, in estimated milliseconds: what a lost process has to give back, and how often a run
# shows that it goes on.
MAX_PART_COST = 500.0
# Groups that do not fit into a node's memory, passed over in the search for one that does.
_MAX_PASSED_OVER = 1000


class Dealing:
    """Groups that wait, by their places in costs. costs are estimated milliseconds, sizes the bytes that a group takes
    while it runs."""

    def __init__(self, costs: Sequence[float], sizes: Sequence[int]) -> None:
        self._costs = costs
        self._sizes = sizes
        self._waiting = deque(sorted(range(len(costs)), key=lambda place: -costs[place]))
        self._alone: deque[int] = deque()
        self._left = math.fsum(costs)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._alone)

    def take(self, processes: int, room: float = math.inf) -> list[int]:
        """What one of so many processes gets, in the order in which it runs; room is the bytes that its node has left.
        Empty where nothing waits that fits."""
        if self._alone:
            found = self._fitting(self._alone, room, 0.0)
            if found:
                return found
        return self._fitting(self._waiting, room, min(MAX_PART_COST, self._left / (_PARTS_PER_PROCESS * processes)))

    def give_back(self, groups: Iterable[int], *, alone: bool) -> None:
        """These have not run. alone: each goes out by itself, so that a process that is lost again shows which one."""
        for place in groups:
            self._left += self._costs[place]
            (self._alone if alone else self._waiting).appendleft(place)

    def drop(self, larger_than: float) -> list[int]:
        """Take out, and give, what takes more bytes than this."""
        dropped = [place for place in self._waiting if self._sizes[place] > larger_than]
        if dropped:
            self._waiting = deque(place for place in self._waiting if self._sizes[place] <= larger_than)
            self._left -= math.fsum(self._costs[place] for place in dropped)
        return dropped

    def left(self) -> list[int]:
        """All that wait."""
        return sorted([*self._waiting, *self._alone])

    def _fitting(self, waiting: deque[int], room: float, wanted: float) -> list[int]:
        """The first groups that fit into room, until their cost reaches wanted."""
        found: list[int] = []
        passed: list[int] = []
        cost = 0.0
        while waiting and len(passed) < _MAX_PASSED_OVER:
            place = waiting.popleft()
            if self._sizes[place] > room:
                passed.append(place)
                continue
            if found and cost + self._costs[place] > wanted:
                waiting.appendleft(place)
                break
            found.append(place)
            cost += self._costs[place]
        waiting.extendleft(reversed(passed))
        self._left -= cost
        return found


# Bytes from which on a case is decoded itself: others of its shapes may have been recorded in narrower dtypes.
_LARGE = 2**30


def start_of(probe: Probe) -> Start:
    """The start message, from this process's configuration."""
    config = probe.config
    conftests = [
        os.path.dirname(plugin.__file__)
        for plugin in config.pluginmanager.get_plugins()
        if os.path.basename(getattr(plugin, "__file__", None) or "") == "conftest.py"
    ]
    pytests = {key: value for key, value in os.environ.items() if key.startswith(("PYTEST_", "PYTHONPATH"))}
    # What pytest-xdist would send its workers, with what other plugins would add.
    node = SimpleNamespace(workerinput={}, config=config, gateway=None)
    given: dict[str, Any] = node.workerinput
    given["testrunuid"] = uuid.uuid4().hex
    given["mainargv"] = list(sys.argv)
    if hasattr(config.hook, "pytest_configure_node"):
        config.hook.pytest_configure_node(node=node)
    return Start(
        tuple(map(str, config.invocation_params.args)),
        str(config.invocation_params.dir),
        str(config.rootpath),
        tuple(sys.path),
        tuple(dict.fromkeys(conftests)),
        {**pytests, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")},
        # Dumps go with the cases, and only the controller resumes an earlier run.
        replace(probe.settings, values={**probe.settings.values, "dumps": (), "resume": False}, dump_files=()),
        given,
    )


def sizes_of(groups: Iterable[Iterable[ProbeItem]]) -> list[int]:
    """Bytes of each group, roughly: of its largest item."""
    known = ByShapes(_needed)

    def size(case: Case) -> int:
        found = known.of(case)
        return found if found < _LARGE else _needed(case)

    return [max(size(item.case) for item in group) for group in groups]


def _needed(case: Case) -> int:
    """The memory that a case needs; 0 for a record that cannot be decoded."""
    try:
        return inputs.memory_needed(case.dump.decode(case.record), case.dtype)
    except RecordError:
        return 0


def _decoded_here(record: Record) -> Call:
    """Replaces a decoder that cannot be sent: each case has its call."""
    raise AssertionError(f"{record.name} was sent without its call")


class Sending:
    """shipped are the dumps whose files nodes cannot read."""

    def __init__(self, probe: Probe, shipped: Collection[Path]) -> None:
        self._probe = probe
        self._shipped = shipped
        self._dumps: dict[Path, SentDump] = {}

    def case(self, item: ProbeItem) -> SentCase:
        """An item; its record stays raw."""
        case, entry = item.case, f"{item.case.record.name}.{item.case.direction}"
        sent = self._dump(item.dump_path)
        plots = self._probe.has("plots")
        return SentCase(
            item.nodeid,
            sent,
            case.record,
            case.direction,
            case.dtype,
            next(iter(item.extra_keyword_matches), None),
            self._probe.places(self._probe.dumps.read(item.dump_path)).get(case.record.name) if plots else None,
            case.dump.stack(entry),
            case.dump.modules(entry) if plots else (),
            item.folded,
            item.command,
            _decoded(item) if item.folded or sent.dump.decode is _decoded_here else None,
        )

    def files(self, item: ProbeItem) -> Iterator[tuple[str, Path]]:
        """The files of its tensors, where they are shipped, by their path in a host's folder."""
        sent = self._dump(item.dump_path)
        if not sent.shipped or self._probe.settings.inputs in ("generated", "exact"):
            return
        dump = self._probe.dumps.read(item.dump_path)
        call = _decoded(item)
        if isinstance(call, RecordError):
            return
        outgoing: Mapping[str, TensorSpec | None] = call.outgoing or {}
        trees = (call.args, dict(call.kwargs), call.outputs or (), call.gradients or (), dict(outgoing))
        names = {spec.data_name for tree in trees for _, spec in named_tensors(tree)}
        for name in {name for name in names if name and Path(name).name == name}:
            for kind, folders in (("tensors", dump.data_dirs), ("gradients", dump.gradient_dirs)):
                # The file of this name that a process on the dump's machine would read.
                path = next((folder / name for folder in folders if archive.is_file(folder / name)), None)
                inside = path and (dump.anywhere or path.resolve().is_relative_to(dump.path.parent.resolve()))
                if path is not None and inside:
                    yield f"{sent.number}/{kind}/{name}", path

    def _dump(self, path: Path) -> SentDump:
        if path not in self._dumps:
            dump = self._probe.dumps.read(path)
            bare = replace(
                dump, records=(), compare_only=(), notes=(), damage=(), skipped={}, stack=no_frames, modules=no_modules
            )
            decode = dump.decode
            try:
                # Not where it is a function inside another one, as in a reader of the project's own.
                pickle.dumps(decode)
            except Exception:  # whatever the reader's own objects raise
                decode = _decoded_here
            found = replace(bare, observed=None, decode=decode)
            self._dumps[path] = SentDump(
                len(self._dumps), path, self._probe.dumps.label(path), found, path in self._shipped
            )
        return self._dumps[path]


def _decoded(item: ProbeItem) -> Call | RecordError:
    """The call, or why there is none, which its item says."""
    try:
        return item.case.dump.decode(item.case.record)
    except RecordError as error:
        return error
