"""The estimator, by a clock that moves only as its calls say: nothing here depends on the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pytest_probe.features.timing.blocks import FEWEST, WARM_UP_CALLS, WARM_UP_SECONDS, times
from pytest_probe.model import measurement
from pytest_probe.model.measurement import HostClock
from tests.support.fake_clock import FakeClock

MICRO, MILLI = 1e-6, 1e-3


def test_what_an_empty_call_takes_is_subtracted(fake_clock: FakeClock) -> None:
    found = times(fake_clock, fake_clock.calls(12 * MICRO), fake_clock.calls(2 * MICRO), 0.05)
    assert found.median == pytest.approx(10 * MICRO)
    assert found.quartiles == pytest.approx((10 * MICRO, 10 * MICRO))
    assert found.least == pytest.approx(10 * MICRO)
    assert found.first == pytest.approx(12 * MICRO)
    assert found.empty == pytest.approx(2 * MICRO)
    assert not found.too_short


@pytest.mark.parametrize(("raw", "too_short"), [(3.9, True), (4.1, False)])
def test_too_short_is_less_than_two_empty_calls(fake_clock: FakeClock, raw: float, too_short: bool) -> None:
    found = times(fake_clock, fake_clock.calls(raw * MICRO), fake_clock.calls(2 * MICRO), 0.05)
    assert found.too_short is too_short


@pytest.mark.parametrize(
    ("costs", "budget", "median", "calls"),
    [
        ([0.09, 0.06], 0.05, 0.06, 2),
        ([0.6, 5 * MICRO], 0.05, 5 * MICRO, 0),
        ([0.04, 5 * MICRO], 0.1, 5 * MICRO, 0),
        ([0.04], 0.05, 0.04, 1 + WARM_UP_CALLS + FEWEST),
    ],
    ids=["beyond the budget: once", "beyond it when it loads things", "loads things", "slow: warms up three times"],
)
def test_a_first_call_counts_for_itself_alone(
    fake_clock: FakeClock, costs: list[float], budget: float, median: float, calls: int
) -> None:
    found = times(fake_clock, fake_clock.calls(*costs), fake_clock.calls(0.0), budget)
    assert found.first == pytest.approx(costs[0])
    assert found.once == (calls == 2)
    assert (found.median, found.least) == pytest.approx((median, median))
    assert found.calls == (calls or found.calls)
    assert len(found.blocks) >= (FEWEST if calls != 2 else 0)


@pytest.mark.parametrize("budget", [0.05, 0.5])
@pytest.mark.parametrize("one", [0.3 * MICRO, 7 * MICRO, 150 * MICRO, 4 * MILLI])
def test_the_budget_is_spent_and_no_more(fake_clock: FakeClock, one: float, budget: float) -> None:
    found = times(fake_clock, fake_clock.calls(one), fake_clock.calls(0.0), budget)
    assert 0.9 * budget < fake_clock.time < 1.1 * budget
    assert found.calls * one == pytest.approx(fake_clock.time)
    assert found.median == pytest.approx(one)


def test_a_budget_below_the_warm_up_leaves_the_fewest_blocks(fake_clock: FakeClock) -> None:
    found = times(fake_clock, fake_clock.calls(MICRO), fake_clock.calls(0.0), 0.001)
    assert len(found.blocks) == FEWEST
    assert fake_clock.time >= WARM_UP_SECONDS


def test_no_more_calls_are_ready_at_a_time_than_may_be(fake_clock: FakeClock) -> None:
    asked: list[int] = []
    calls = fake_clock.calls(MICRO)

    def ready(number: int) -> Sequence[Callable[[], object]]:
        asked.append(number)
        return calls(number)

    times(fake_clock, ready, fake_clock.calls(0.0), 0.05, most=7)
    assert max(asked) == 7


def test_interrupted_blocks_do_not_move_the_median(fake_clock: FakeClock) -> None:
    """A scheduler that takes the core away for 4 ms now and then."""
    made = 0

    def call() -> None:
        nonlocal made
        made += 1
        fake_clock.time += 10 * MICRO + (4 * MILLI if made % 50 == 0 else 0)

    found = times(fake_clock, lambda number: [call] * number, fake_clock.calls(0.0), 0.2)
    assert found.median == pytest.approx(10 * MICRO)
    assert found.least == pytest.approx(10 * MICRO)
    assert sum(found.blocks) / len(found.blocks) > 40 * MICRO


def test_nothing_waits_for_the_device_between_blocks(fake_clock: FakeClock) -> None:
    read: list[float] = []
    right = fake_clock.seconds

    def seconds(start: float, end: float) -> float:
        read.append(fake_clock.time)
        return right(start, end)

    fake_clock.seconds = seconds  # type: ignore[method-assign]
    found = times(fake_clock, fake_clock.calls(50 * MICRO), fake_clock.calls(0.0), 0.05)
    blocks = read[-len(found.blocks) :]
    assert len(set(blocks)) == 1


def test_what_a_call_raises_comes_through(fake_clock: FakeClock) -> None:
    def call() -> None:
        fake_clock.time += MICRO
        if fake_clock.time > 3 * MICRO:
            raise RuntimeError("shape '[2, 3]' is invalid")

    with pytest.raises(RuntimeError, match="is invalid"):
        times(fake_clock, lambda number: [call] * number, fake_clock.calls(0.0), 0.05)


def test_the_hosts_clock_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    def now() -> float:
        happened.append("now")
        return float(len(happened))

    monkeypatch.setattr(measurement, "now", now)
    device = HostClock(lambda: happened.append("wait"))
    assert device.seconds(device.mark(), device.mark()) == 2.0
    assert happened == ["wait", "now", "wait", "now"]
