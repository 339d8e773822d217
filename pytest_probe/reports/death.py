"""What a process that died while it ran a case says of that case."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from pytest_probe.errors import NoReference, OutOfMemory
from pytest_probe.model.verdict import Verdict
from pytest_probe.reports.running import Running

CRASH, TIMEOUT = "crash", "timeout"
# kill -9, as subprocess tells it, and where it has no name as well.
KILLED = -9
# What a process ends with at its limit: by the alarm, SIGALRM where there is one, or by faulthandler's timer.
LIMITED = (-14, 1)
# What runs, in the sentence about a death.
_WHAT = {"device": "the device ran it", "reference": "its reference ran", "": "it ran"}
_VMSTAT = Path("/proc/vmstat")


class Ending(Struct, frozen=True):
    """How a process ended: its exit status, negative for a signal as in subprocess, None where nobody knows; and
    whether the machine's memory ran out meanwhile."""

    status: int | None
    memory_ran_out: bool = False

    @property
    def killed(self) -> bool:
        """Was it ended from outside, as by kill -9?"""
        return self.status == KILLED

    @property
    def words(self) -> str:
        if self.status is None:
            return "in a way that nobody saw"
        if self.status >= 0:
            return f"with exit status {self.status}"
        return f"by {_signal_name(-self.status)}"


def by_limit(death: Running, status: int | None) -> bool:
    """Was it --probe-timeout that ended the process?"""
    return status in LIMITED and 0 < death.deadline <= time.time()


def verdict_on(death: Running, ending: Ending, *, times: int, timed_out: bool) -> Verdict:
    """The verdict on a case that a process died of: an error of the kind crash, timeout or out of memory; a skip where
    the reference ran. times is how often it died, timed_out whether the last time was by --probe-timeout."""
    how = "was ended by --probe-timeout" if timed_out else f"died {ending.words}"
    what = f"the process {how} while {_WHAT[death.side]}"
    if death.call is not None:
        what += f": {death.call}"
    if times > 1:
        what += f"; that was death {times} of this case, which is not run again"
    if death.side == "reference":
        return Verdict("skip", "", what, NoReference.kind)
    if ending.killed and ending.memory_ran_out:
        return Verdict("error", "", f"{what}: the machine's memory ran out", OutOfMemory.kind)
    return Verdict("error", "", what, TIMEOUT if timed_out else CRASH)


def memory_kills() -> int:
    """How many processes of this machine Linux has killed for memory; 0 where nothing tells."""
    with suppress(OSError, ValueError):
        for line in _VMSTAT.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
