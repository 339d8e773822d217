from __future__ import annotations

import gc
import os

import pytest

from pytest_probe.system.process import SETTINGS, paused_gc, wait_passively


def test_garbage_collection_is_paused_and_left_as_it_was() -> None:
    assert gc.isenabled()
    with paused_gc():
        assert not gc.isenabled()
        with paused_gc():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize("name", SETTINGS)
def test_what_the_user_has_set_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in SETTINGS:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, "4")
    before = dict(os.environ)
    wait_passively()
    assert dict(os.environ) == before


def test_threads_sleep_where_nobody_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in SETTINGS:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(SETTINGS[0], "ACTIVE")  # so that what follows is undone
    monkeypatch.delenv(SETTINGS[0])
    wait_passively()
    assert os.environ[SETTINGS[0]] == "PASSIVE"
