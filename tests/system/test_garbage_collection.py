from __future__ import annotations

import gc

from pytest_probe.system.garbage_collection import paused_gc


def test_garbage_collection_is_paused_and_left_as_it_was() -> None:
    assert gc.isenabled()
    with paused_gc():
        assert not gc.isenabled()
        with paused_gc():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
