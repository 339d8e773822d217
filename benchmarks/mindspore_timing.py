"""The times of MindSpore's calls beside a loop that is timed by hand, and what timing costs a call.

    python benchmarks/mindspore_timing.py [ROUNDS]       # in the environment of make test-mindspore

Each call waits for its kernel, in the loop as well. A round takes both, each first in turn; told is the median of the
rounds, in brackets their quartiles. The same of the loop beside itself says what the machine's noise makes of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from statistics import median, quantiles
from typing import Any, TypeAlias

import mindspore
import numpy as np
from mindspore import Tensor, mint

from pytest_probe import timing

Measure: TypeAlias = Callable[[Callable[[], Any]], float]
CALLS, CPU_CALLS = 300, 1_000
_random = np.random.default_rng(0)


def main(rounds: int) -> None:
    mindspore.runtime.launch_blocking()
    # Built for NumPy 1, MindSpore's first call raises with NumPy 2.
    with suppress(SystemError):
        mint.mul(Tensor(np.ones(1, np.float32)), 1.0)
    large = Tensor(_random.standard_normal((400, 400)).astype(np.float32))
    one = Tensor(np.ones(1, np.float32))
    for title, call in (
        ("matmul of 400 x 400", lambda: mint.matmul(large, large)),
        ("add of one element", lambda: mint.add(one, one)),
    ):
        for what, second in (("timed", timed), ("by hand again", by_hand)):
            pairs = list(in_turn(by_hand, second, call, rounds))
            ratio, more = spread(b / a for a, b in pairs), spread(b - a for a, b in pairs)
            print(f"{title}: {median(a for a, _ in pairs):.1f} us by hand; {what} {ratio} times, {more} us more")
    for title, call in (
        ("mint.add", lambda: mint.add(one, one)),
        ("a + b", lambda: one + one),
        ("mint.nn.functional.relu", lambda: mint.nn.functional.relu(one)),
    ):
        for what, second in (("timed", timed_thread), ("two times by hand", two_clocks), ("plain again", thread_time)):
            pairs = list(in_turn(thread_time, second, call, rounds))
            more = spread(b - a for a, b in pairs)
            print(f"CPU of {title}: {median(a for a, _ in pairs):.1f} us; {what} {more} us more")


def in_turn(first: Measure, second: Measure, call: Callable[[], Any], rounds: int) -> Iterator[tuple[float, float]]:
    """Both of each round; every other round takes the second before the first."""
    for number in range(rounds):
        if number % 2:
            later = second(call)
            yield first(call), later
        else:
            yield first(call), second(call)


def spread(numbers: Iterable[float]) -> str:
    low, middle, high = quantiles(numbers, method="inclusive")
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def by_hand(call: Callable[[], Any]) -> float:
    """The median of calls, in microseconds."""
    times = []
    for _ in range(CALLS):
        began = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - began)
    return median(times) / 1e3


def timed(call: Callable[[], Any]) -> float:
    """The same by `timing`."""
    with timing(framework="mindspore") as found:
        for _ in range(CALLS):
            call()
    ((_, spent),) = found.rows("")
    assert spent.p50 is not None
    return spent.p50


def timed_thread(call: Callable[[], Any]) -> float:
    with timing(framework="mindspore"):
        return thread_time(call)


def two_clocks(call: Callable[[], Any]) -> float:
    """The least that a wrapper does which times a call."""
    times: list[int] = []

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter_ns()
        result = call(*args, **kwargs)
        times.append(time.perf_counter_ns() - began)
        return result

    return thread_time(wrapper)


def thread_time(call: Callable[[], Any]) -> float:
    """Microseconds of this thread's CPU a call."""
    began = time.thread_time_ns()
    for _ in range(CPU_CALLS):
        call()
    return (time.thread_time_ns() - began) / CPU_CALLS / 1e3


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
