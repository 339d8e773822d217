from __future__ import annotations

import ctypes
import gc
import os
import platform

import pytest

from pytest_probe.system.process import NEGATIVE, POSITIVE, SETTINGS, filled_allocations, paused_gc, wait_passively


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


pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc fills memory")


def fresh(size: int, left: int | None = None) -> bytes:
    """The bytes of memory that malloc gives, aligned as tensors are; left is the byte that it is full of afterwards."""
    libc, place = ctypes.CDLL(None), ctypes.c_void_p()
    assert libc.posix_memalign(ctypes.byref(place), 64, ctypes.c_size_t(size)) == 0
    try:
        found = ctypes.string_at(place, size)
        if left is not None:
            ctypes.memset(place, left, size)
        return found
    finally:
        libc.free(place)


@pytest.mark.parametrize("size", [1000, 1 << 20, 1 << 25])
@pytest.mark.parametrize("byte", [POSITIVE, NEGATIVE])
def test_memory_is_full_of_the_byte(size: int, byte: int) -> None:
    with filled_allocations(byte):
        assert set(fresh(size)) == {byte}


def test_afterwards_it_is_not() -> None:
    with filled_allocations(POSITIVE):
        fresh(1 << 16)
    fresh(1 << 16, left=7)
    assert set(fresh(1 << 16)[-1000:]) != {POSITIVE}
