"""The calls of one thread, as they are made: the part that every timed call passes.

A thread's log is a flat list of numbers for each API, and is added up a thousand calls at a time. So a call is timed in
about a microsecond, and the garbage collector has nothing to walk. While a call runs, its thread adds up what timed
calls inside it took; the call's own time is the rest. So total = self + children holds exactly, in every thread, and
after exceptions.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

now = time.perf_counter_ns

# The numbers of one call in a log, which is flat: a tuple each would be an object for the garbage collector.
FIELDS = 3
# Calls of an API are added up so many at a time.
_FULL = FIELDS * 1024
Logs: TypeAlias = defaultdict["Api", list[int]]


class DeviceClock(Protocol):
    """A device that computes while the host goes on; what is asked for at every first-level call. memory: does it
    report how much memory is allocated?"""

    memory: bool

    def before(self, api: Api) -> Any:
        """A call begins; returns what `after` needs."""

    def after(self, api: Api, token: Any) -> int:
        """The call has returned or raised; by how many bytes the device's allocated memory has grown."""


class Api(Struct, frozen=True, eq=False):
    """What times are added up for: an API of a framework, named as in a dump, in one direction.

    shapes: of calls with these dtypes and shapes alone, "" of all; whole is the same API with all of them. clock is
    None where calls are done when they return, as on a CPU.
    """

    framework: str
    name: str
    direction: str = "forward"
    shapes: str = ""
    whole: Api | None = None
    clock: DeviceClock | None = None


# One call in a trace: its API, when it began, and how long it took (ns).
Traced: TypeAlias = tuple[Api, int, int]


class Track:
    """One thread. For each API `calls` has FIELDS values a call that returned: when it began, how long it took, and how
    long the timed calls inside took; `failed` has the same of calls that raised, `noted` of spans of several calls.
    `growth` are bytes, `stretches` what was begun and ended. Times are in ns."""

    __slots__ = ("_fold", "_frames", "_inner", "_nested", "_open", "calls", "failed", "growth", "noted", "number",
                 "stretches", "thread")  # fmt: skip

    def __init__(self, fold: Callable[[Track], None], nested: bool) -> None:
        self.calls: Logs = defaultdict(list)
        self.failed: Logs = defaultdict(list)
        self.noted: Logs = defaultdict(list)
        self.growth: defaultdict[Api, int] = defaultdict(int)
        self.stretches: list[Traced] = []
        self.thread = threading.current_thread().name
        self.number = threading.get_native_id()
        self._fold = fold
        self._nested = nested
        self._open = 0
        self._inner = 0
        self._frames: list[tuple[Api, int, int]] = []

    def call(
        self, api: Api, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> Any:
        """Make a call, and log its time; inside another one only where nested. Raises what the call raises."""
        depth, outer = self._open, self._inner
        if depth:
            if not self._nested:
                return function(*args, **kwargs) if kwargs else function(*args)
        elif api.clock is not None:
            function = self._waiting(api, api.clock, function)
        self._inner = 0
        self._open = depth + 1
        log, begin = self.calls, now()
        try:
            result = function(*args, **kwargs) if kwargs else function(*args)
        except BaseException:
            log = self.failed
            raise
        finally:
            spent = now() - begin
            self._open = depth
            found = log[api]
            found += (begin, spent, self._inner)
            self._inner = outer + spent
        if len(found) >= _FULL:
            self._fold(self)
        return result

    def begin(self, api: Api) -> None:
        """Something other than a call begins, such as a node of a graph, also inside a call."""
        self._frames.append((api, self._inner, now()))
        self._inner = 0
        self._open += 1

    def end(self, api: Api) -> tuple[int, int, int]:
        """It has ended: when it began, how long it took, and how long what was timed inside; 0 where it never began."""
        end = now()
        while self._frames:
            begun, outer, begin = self._frames.pop()
            # An exception left the frames above it open.
            self._open -= self._open > 0
            if begun is api:
                spent, inner = end - begin, self._inner
                self._inner = outer + spent
                self.stretches.append((api, begin, spent))
                return begin, spent, inner
        return 0, 0, 0

    def end_call(self, api: Api) -> None:
        """The same as `end` and `note`: what began last is one call."""
        end = now()
        if self._frames and self._frames[-1][0] is api:
            _, outer, begin = self._frames.pop()
            spent = end - begin
            log = self.calls[api]
            log += (begin, spent, self._inner)
            self._inner = outer + spent
            self._open -= self._open > 0
            if len(log) >= _FULL:
                self._fold(self)
        elif (found := self.end(api))[0]:
            self.note(api, *found)

    def note(self, api: Api, begin: int, spent: int, inner: int) -> None:
        """Count what was begun and ended, in one stretch or several, as one call."""
        log = self.noted[api]
        log += (begin, spent, inner)
        if len(log) >= _FULL:
            self._fold(self)

    def _waiting(self, api: Api, clock: DeviceClock, function: Callable[..., Any]) -> Callable[..., Any]:
        def waiting(*args: Any, **kwargs: Any) -> Any:
            token = clock.before(api)
            try:
                return function(*args, **kwargs)
            finally:
                self.growth[api] += clock.after(api, token)

        return waiting


class ShapeRows:
    """Finds the row of a call. tensor is the framework's class of tensors."""

    def __init__(self, api: Api, tensor: type) -> None:
        self._api = api
        self._tensor = tensor
        self._known: dict[str, Api] = {}

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Api:
        """shapes of the row: `float32[2, 3], int64[4]` in the order of the arguments; keyword arguments come last."""
        named = (f"{key}={one}" for key, value in kwargs.items() for one in self._shapes((value,)))
        text = ", ".join([*self._shapes(args), *named]) or "no tensors"
        found = self._known.get(text)
        if found is None:
            api = self._api
            found = Api(api.framework, api.name, api.direction, text, api, api.clock)
            self._known[text] = found
        return found

    def _shapes(self, values: Sequence[Any]) -> Iterator[str]:
        for value in values:
            if isinstance(value, self._tensor):
                # Both classes have these by the same names.
                tensor: Any = value
                try:
                    yield f"{str(tensor.dtype).rpartition('.')[2]}{list(tensor.shape)}"
                except Exception:  # nested tensors have no shape, and classes of a program's own raise what they like
                    yield "tensor[?]"
            elif isinstance(value, list | tuple):
                yield from self._shapes(value)


class WaitingClock:
    """Waits for the device before and after a call, so that the host's time is the device's. allocated gives the bytes
    that its allocator has handed out, None where it does not report them."""

    def __init__(self, synchronize: Callable[[], object], allocated: Callable[[], int] | None) -> None:
        self._synchronize = synchronize
        self._allocated = allocated or (lambda: 0)
        self.memory = allocated is not None

    def before(self, api: Api) -> int:
        self._wait()
        return self._allocated()

    def after(self, api: Api, token: int) -> int:
        self._wait()
        return self._allocated() - token

    def _wait(self) -> None:
        # An error of the device's is the program's, which meets it where it waits itself.
        with suppress(RuntimeError, OSError):
            self._synchronize()
