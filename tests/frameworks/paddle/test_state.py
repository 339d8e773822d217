from __future__ import annotations

import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import frameworks
from pytest_probe.frameworks.paddle.state import Fixed, differing
from pytest_probe.model.run import Arguments, Way

FRAMEWORK = frameworks.load("paddle")


def test_a_static_program_is_set_aside() -> None:
    paddle.enable_static()
    try:
        assert differing() == "static graph on"
        with Fixed():
            assert paddle.in_dynamic_mode()
            assert float(paddle.to_tensor(2.0) * 2) == 4.0
        assert not paddle.in_dynamic_mode()
    finally:
        paddle.disable_static()


def test_a_run_leaves_the_default_dtype() -> None:
    FRAMEWORK.run(paddle.ones, Arguments(([2],), {}, None), Way(dtype="float64"))
    assert paddle.get_default_dtype() == "float32"


def test_the_random_state_changes_where_numbers_are_drawn() -> None:
    """Paddle writes the state out with an address, which is another each time."""
    with Fixed():
        before = FRAMEWORK.random_state()
        paddle.exp(paddle.ones([3]))
        assert FRAMEWORK.random_state() == before
        paddle.rand([2])
        assert FRAMEWORK.random_state() != before
