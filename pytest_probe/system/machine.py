"""The processor of this machine, work on its cores, the memory that a process may take, and what happens when that runs
out inside a case.

NumPy and torch both raise MemoryError then. Code of this package that catches exceptions and continues must not catch
this one.
"""

from __future__ import annotations

import functools
import os
import platform
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TypeVar

from pytest_probe.errors import OutOfMemory
from pytest_probe.user_errors import causes, first_line

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


@cache
def processor() -> str:
    """The processor's name, as far as the system gives it: libraries choose kernels by it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Processor", "cpu model"):
                return value.strip()
    return platform.processor() or platform.machine()


@cache
def last_level_cache() -> int:
    """Bytes of the largest cache that the first core sees, 0 where the system does not say."""
    found = [0]
    for size in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with suppress(OSError, ValueError, LookupError):
            text = size.read_text().strip()
            found.append(int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[text[-1]])
    return max(found)


class _Workers:
    count = 1


def share_cores(workers: int) -> None:
    """So many processes like this one run here: each leaves the others their cores."""
    _Workers.count = workers


def usable_cores() -> int:
    """How many threads this process may keep busy: the cores it may run on, at most as many as OMP_NUM_THREADS says."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    limit = int(said) if said.isdigit() and int(said) else cores
    return max(1, min(cores // _Workers.count, limit))


def in_order(
    pool: Executor | None, ahead: int, work: Callable[[_Given], _Made], given: Iterable[_Given]
) -> Iterator[_Made]:
    """What work gives of each, in their order: in a pool so many are begun before the first is taken."""
    if pool is None:
        yield from map(work, given)
        return
    begun = deque[Future[_Made]]()
    for each in given:
        begun.append(pool.submit(work, each))
        if len(begun) > ahead:
            yield begun.popleft().result()
    while begun:
        yield begun.popleft().result()


def open_files(wanted: int) -> int:
    """How many files this process may have open at once, at most so many: as many as the system allows."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        given = resource.getrlimit(resource.RLIMIT_NOFILE)
        soft, hard = (wanted if each == resource.RLIM_INFINITY else each for each in given)
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted), given[1]))
        return min(hard, wanted)
    return wanted


# Bytes. Chosen: a usual machine for training; a larger one skips calls that it could run.
_UNKNOWN_MEMORY = 1 << 36
# Where Linux shows control groups, and the file that holds a group's limit: of version 2, and of version 1.
_GROUPS = Path("/sys/fs/cgroup")
_LIMIT_2, _LIMIT_1 = "memory.max", "memory.limit_in_bytes"


@functools.cache
def available_memory(workers: int = 1) -> int:
    """Bytes of memory that this process may take: its share of the machine, or of its control group, where so many
    workers run here, and at most what its own address space has left (RLIMIT_AS); 64 GiB where the system does not say.

    The whole, not what is free now, and asked once: what is skipped must not depend on the state of the page cache.
    """
    groups = ""
    with suppress(OSError):
        groups = Path("/proc/self/cgroup").read_text()
    machine = min((_physical(), *group_limits(groups, _GROUPS)))
    return min((machine // workers, *_address_space_left()))


def _physical() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN_MEMORY


def group_limits(groups: str, mounted: Path) -> Iterator[int]:
    """The limits, in bytes, of a process's control groups and of those above them. groups: what /proc/self/cgroup says
    of it, a line "4:memory:/a/b" for version 1 and "0::/a/b" for version 2; mounted: where the groups are seen."""
    for line in groups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0":
            yield from _limits(mounted, group, _LIMIT_2)
        elif "memory" in controllers.split(","):
            yield from _limits(mounted / "memory", group, _LIMIT_1)


def _limits(mounted: Path, group: str, name: str) -> Iterator[int]:
    """Inside a container a group may be seen by a shorter path than its own: whatever is there counts."""
    path = PurePosixPath(group.lstrip("/"))
    for folder in (path, *path.parents):
        try:
            text = (mounted / folder / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():  # "max": no limit
            yield int(text)


def _address_space_left() -> Iterator[int]:
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            yield max(limit - pages * resource.getpagesize(), 0)
    except (ImportError, OSError, ValueError):
        return


def out_of_memory(error: MemoryError) -> OutOfMemory:
    """The skip of a case whose memory ran out; frees what the frames of its error hold."""
    release_frames(error)
    return OutOfMemory(f"memory ran out ({first_line(error)}); free some, or run with fewer workers")


def release_frames(error: MemoryError) -> None:
    """Free what the frames of an error hold: their arrays would live as long as the traceback."""
    for link in causes(error):
        traceback.clear_frames(link.__traceback__)
        link.__traceback__ = None
