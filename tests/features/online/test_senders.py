"""When a run has nobody left to wait for."""

from __future__ import annotations

import pytest

from pytest_probe.capture.online.message import Entry, Goodbye, Sender
from pytest_probe.features.online import folder_source
from pytest_probe.features.online.folder_source import Senders

RANKS = [Sender(f"{rank:08x}", rank, 3) for rank in range(3)]


def entry(sender: Sender) -> Entry:
    return Entry(sender, 0, 0, "Torch.add.0.forward", "{}", {})


def test_all_that_train_together_say_goodbye() -> None:
    senders = Senders()
    assert not senders.all_ended
    for number, sender in enumerate(RANKS):
        senders.came(entry(sender), number)
    for sender in RANKS[:2]:
        senders.ended(Goodbye(sender, 1, 2))
        assert not senders.all_ended
    gone, lives = RANKS[2].run, [False, False, True]
    for each in lives:
        senders.alive(gone, each)
        assert senders.all_ended is not each
    senders.alive(gone, False)
    assert senders.lost(lambda run: {7}) == [
        "rank 2 went without a goodbye: 1 of the 3 entries that it sent were judged"
    ]


def test_what_was_sent_and_not_judged() -> None:
    """Of each program that said goodbye; what another host judged the program knows."""
    senders = Senders()
    senders.ended(Goodbye(Sender("0123abcd", 4, 1), 5, 0))
    assert senders.lost(lambda run: {-3, 2, 3, 4}) == []
    assert senders.lost(lambda run: {-3, 1, 2, 4}) == ["rank 4 has ended: 4 of the 5 entries that it sent were judged"]


def test_a_rank_that_never_comes_is_waited_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    senders = Senders()
    for sender in RANKS[:2]:
        senders.came(entry(sender))
        senders.ended(Goodbye(sender, 1, 0))
    assert not senders.all_ended
    monkeypatch.setattr(folder_source, "GONE_SECONDS", -1.0)
    assert senders.all_ended
    assert senders.lost(lambda run: {0}) == ["ranks that never came: 1"]
    senders.came(entry(RANKS[2]))
    assert not senders.all_ended
