"""Which calls, steps and ranks a capture records."""

from __future__ import annotations

import threading
from fnmatch import fnmatchcase

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.online.sending import Connection

# More steps than these are not counted.
_MANY_STEPS = 100_000


class Scope:
    """Decides about one call after the other; an interval of names is open from its first name to its last."""

    def __init__(self, config: CaptureConfig, online: Connection | None = None) -> None:
        """online: what leaves out calls that the checking host has no room for."""
        self._config = config
        self._online = online
        calls = (entry.removesuffix(".forward").removesuffix(".backward") for entry in config.scope or ("", ""))
        self._first, self._last = calls
        self._open = False
        self._lock = threading.Lock()
        self.whole = not (config.scope or config.names or online is not None)

    def wants_api(self, name: str) -> bool:
        """Is this API, as "Functional.linear", on the white list, where there is one, and not on the black list?"""
        white, black = self._config.white, self._config.black
        return (not white or _listed(name, white)) and not _listed(name, black)

    def wants(self, call: str) -> bool:
        """Is this call, as "Functional.linear.0", inside, with both its directions? Asked once for each, in order."""
        if self.whole:
            return True
        inside = True
        if self._first:
            with self._lock:
                inside = self._open = self._open or call == self._first
                self._open = self._open and call != self._last
        names = self._config.names
        # A name of the list may name a direction; a call is recorded with both or not at all.
        both = f"{call}.forward {call}.backward"
        wanted = inside and (not names or any(name in both for name in names))
        return wanted and (self._online is None or self._online.pace.wants(call.rpartition(".")[0]))

    def wants_later_step(self, step: int) -> bool:
        return not self._config.steps or any(each[-1] > step for each in self._config.steps)

    def steps_left(self, step: int) -> str:
        """How many steps are wanted behind this one, "; 2 steps left"; "" if no step is, or if they have no end."""
        left = len({each for steps in self._config.steps for each in steps[-_MANY_STEPS:] if each > step})
        return f"; {left:,} step{'s' * (left != 1)} left" if 0 < left < _MANY_STEPS else ""

    def enters(self, module: str) -> bool:
        """Like `wants`, for the forward entry of a module: an interval that ends with it holds all that it calls."""
        if self.whole:
            return True
        with self._lock:
            self._open = self._open or module == self._first
        names = self._config.names
        return (self._open or not self._first) and (not names or any(name in module for name in names))

    def leaves(self, module: str) -> None:
        """The forward of a module ends."""
        if module == self._last:
            with self._lock:
                self._open = False

    def again(self) -> None:
        """A new step begins: the interval is closed."""
        self._open = False

    def wants_step(self, step: int) -> bool:
        return _among(step, self._config.steps)

    def wants_rank(self, rank: int | None) -> bool:
        return _among(rank or 0, self._config.ranks)


def _among(number: int, wanted: tuple[range, ...]) -> bool:
    return not wanted or any(number in each for each in wanted)


def _listed(name: str, patterns: tuple[str, ...]) -> bool:
    """Is the name listed: in full, without its prefix, or by a glob of either?"""
    bare = name.partition(".")[2]
    return any(fnmatchcase(name, pattern) or fnmatchcase(bare, pattern) for pattern in patterns)
