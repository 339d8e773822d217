from __future__ import annotations

import pytest

from pytest_probe.plugin.progress import time_left


@pytest.mark.parametrize(
    ("passed", "share", "expected"),
    [
        (2.0, 0.5, ""),
        (10.0, 0.0, ""),
        (30.0, 0.5, "30 s"),
        (100.0, 0.1, "15 min"),
        (3600.0, 0.2, "4 h 00 min"),
        (3600.0, 0.37, "1 h 42 min"),
        (10.0, 1.5, "0 s"),
    ],
)
def test_the_time_left_follows_from_the_share_of_the_cost(passed: float, share: float, expected: str) -> None:
    assert time_left(passed, share) == expected
