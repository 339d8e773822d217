from __future__ import annotations

import random

import pytest

from pytest_probe.capture.profiling.durations import MOST_SAMPLES, Durations


def test_the_first_call_counts_in_the_sums_and_in_nothing_else() -> None:
    durations = Durations()
    durations.add([0, 10_000, 20_000], [9_000, 1_000, 3_000], [0, 500, 0])
    found = durations.summary(12_500)
    assert (found.calls, found.total, found.own, found.share) == (3, 13.0, 12.5, 1.0)
    assert (found.first, found.least, found.p50) == (9.0, 1.0, 2.0)


def test_the_first_call_is_the_earliest_of_all_threads() -> None:
    durations = Durations()
    durations.add([500, 600], [7_000, 1_000], [0, 0])
    durations.add([100], [2_000], [0])
    found = durations.summary(1)
    assert (found.first, found.least) == (2.0, 1.0)
    assert found.p99 == pytest.approx(6.94)


def test_one_call_has_no_percentiles() -> None:
    durations = Durations()
    durations.add([0], [1_000], [0])
    found = durations.summary(1_000)
    assert (found.first, found.least, found.p50, found.p90, found.p99) == (1.0, None, None, None, None)


def test_calls_that_raised_are_counted_apart_and_their_time_is_in_the_sums() -> None:
    durations = Durations()
    durations.add([0, 1], [1_000, 1_000], [0, 0])
    durations.add_failed([5_000], [2_000])
    found = durations.summary(5_000)
    assert (found.calls, found.errors, found.total, found.own, found.p99) == (2, 1, 7.0, 5.0, 1.0)


def test_percentiles_come_from_a_sample_of_all_calls_and_counts_from_all() -> None:
    durations, chance = Durations(), random.Random(7)
    times = [chance.randrange(1, 1_000_000) for _ in range(20 * MOST_SAMPLES)]
    for start in range(0, len(times), 1_500):
        part = times[start : start + 1_500]
        durations.add(range(start, start + len(part)), part, [0] * len(part))
    found = durations.summary(sum(times))
    assert found.calls == len(times)
    assert found.total == pytest.approx(sum(times) / 1e3)
    # Of 10,000 uniform samples the standard error of the median is 0.5 %, of p90 0.3 %.
    assert found.p50 == pytest.approx(500, rel=0.03)
    assert found.p90 == pytest.approx(900, rel=0.02)
    assert len(durations._kept) == MOST_SAMPLES


def test_what_was_not_measured_is_none() -> None:
    durations = Durations()
    durations.add([0], [1], [0])
    found = durations.summary(0)
    assert (found.memory, found.device, found.share) == (None, None, 0.0)
    durations.grow(64)
    durations.grow(-16)
    assert durations.summary(0).memory == 48
