"""When a run has nobody left to wait for."""

from __future__ import annotations

import pytest

from pytest_probe.capture.online.message import Entry, Goodbye, Sender
from pytest_probe.features.online import source
from pytest_probe.features.online.source import Senders

RANKS = [Sender(f"{rank:08x}", rank, 3) for rank in range(3)]


def entry(sender: Sender) -> Entry:
    return Entry(sender, 0, 0, "Torch.add.0.forward", "{}", {})


def test_all_that_train_together_say_goodbye() -> None:
    senders = Senders()
    assert not senders.all_ended
    for sender in RANKS:
        senders.came(entry(sender))
    for sender in RANKS[:2]:
        senders.ended(Goodbye(sender, 1, 2))
        assert not senders.all_ended
    assert senders.died(RANKS[2].run)
    assert not senders.died(RANKS[2].run)
    assert senders.all_ended
    assert (senders.left_out, senders.dead()) == (4, [2])


def test_a_rank_that_never_comes_is_waited_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    senders = Senders()
    for sender in RANKS[:2]:
        senders.came(entry(sender))
        senders.ended(Goodbye(sender, 1, 0))
    assert not senders.all_ended
    monkeypatch.setattr(source, "GONE_SECONDS", -1.0)
    assert senders.all_ended
    senders.came(entry(RANKS[2]))
    assert not senders.all_ended


def test_a_stranger_that_sends_nothing_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "GONE_SECONDS", -1.0)
    senders = Senders()
    assert senders.died("ffffffff")
    assert not senders.all_ended
