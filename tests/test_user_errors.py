from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from pytest_probe.user_errors import ends_run, first_line, noting_interrupts


def in_a_thread(function: Callable[[], None]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def directly(function: Callable[[], None]) -> None:
    function()


def without_the_signal(function: Callable[[], None]) -> None:
    """As a program that a shell started with `nohup` and `&`."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        function()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("run", [directly, in_a_thread, without_the_signal])
def test_an_interrupt_that_a_call_raises_itself_does_not_end_the_run(run: Callable[[Callable[[], None]], None]) -> None:
    ends: list[bool] = []

    def call() -> None:
        with noting_interrupts():
            ends.append(ends_run(KeyboardInterrupt()))
        ends.append(ends_run(KeyboardInterrupt()))

    run(call)
    assert ends == [False, True]


def test_the_users_interrupt_ends_the_run() -> None:
    with noting_interrupts():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert ends_run(KeyboardInterrupt())


def test_first_line() -> None:
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(ValueError("")) == "ValueError"
    assert len(first_line(ValueError("x" * 1000))) == 300
