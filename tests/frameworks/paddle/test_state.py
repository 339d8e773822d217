from __future__ import annotations

from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import frameworks
from pytest_probe.frameworks.paddle.state import SETTINGS, Fixed, OfUser, differing
from pytest_probe.model.run import Way

FRAMEWORK = frameworks.load("paddle")


@pytest.fixture
def users() -> Any:
    """What a user may have set, put back afterwards."""
    before = [setting.read() for setting in SETTINGS]
    paddle.set_default_dtype("float64")
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    tracer = paddle.base.framework._dygraph_tracer()
    tracer._has_grad = False
    yield
    for setting, value in zip(SETTINGS, before, strict=True):
        setting.write(value)


def now() -> list[Any]:
    return [setting.read() for setting in SETTINGS]


def test_paddles_defaults_differ_from_no_fixed_setting() -> None:
    assert differing() == ""
    with Fixed():
        assert now() == [setting.fixed for setting in SETTINGS]


def test_what_a_user_has_set_is_put_back(users: None) -> None:
    found = now()
    assert differing() == "grad mode off, default dtype float64, FLAGS_check_nan_inf on"
    with Fixed():
        assert now() == [setting.fixed for setting in SETTINGS]
        with Fixed():  # an inner one does nothing
            assert now() == [setting.fixed for setting in SETTINGS]
        assert now() == [setting.fixed for setting in SETTINGS]
    assert now() == found


def test_a_device_meets_the_users_flags(users: None) -> None:
    with Fixed(), OfUser("recorded"):
        assert (paddle.get_default_dtype(), paddle.get_flags("FLAGS_check_nan_inf")) == (
            "float32",
            {"FLAGS_check_nan_inf": True},
        )
    with Fixed(), OfUser("users"):
        assert paddle.get_default_dtype() == "float64"
    with Fixed():
        with OfUser("users"):
            pass
        assert now() == [setting.fixed for setting in SETTINGS]


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


def test_the_users_random_numbers_stay_theirs() -> None:
    paddle.seed(7)
    wanted = paddle.rand([3]).numpy()
    paddle.seed(7)
    with Fixed():
        first = paddle.rand([3]).numpy()
    with Fixed():
        assert np.array_equal(paddle.rand([3]).numpy(), first)
    assert np.array_equal(paddle.rand([3]).numpy(), wanted)


def test_a_run_leaves_the_default_dtype() -> None:
    FRAMEWORK.run(paddle.ones, [[2]], {}, Way(dtype="float64"))
    assert paddle.get_default_dtype() == "float32"


def test_the_random_state_changes_where_numbers_are_drawn() -> None:
    """Paddle writes the state out with an address, which is another each time."""
    with Fixed():
        before = FRAMEWORK.random_state()
        paddle.exp(paddle.ones([3]))
        assert FRAMEWORK.random_state() == before
        paddle.rand([2])
        assert FRAMEWORK.random_state() != before
