"""What a process may have set, in each framework: references do not meet it, the device does, and it is put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any

import pytest

from tests.support.installed import needs_paddle
from tests.support.users_state import PLAIN
from tests.support.users_state import STATES as OF_TORCH

pytestmark = pytest.mark.compat

# These are no settings of torch's, or have no other value to name.
UNNAMED = (PLAIN, "warnings raise", "numpy raises", "threads", "seed")


@contextmanager
def _written(place: int, value: Any) -> Iterator[None]:
    """One of Paddle's settings."""
    setting = import_module("pytest_probe.frameworks.paddle.state").SETTINGS[place]
    before = setting.read()
    setting.write(value)
    yield
    setting.write(before)


OF_PADDLE: dict[str, Callable[[], Any]] = {
    PLAIN: nullcontext,
    "grad mode off": lambda: _written(1, False),
    "default dtype float64": lambda: _written(2, "float64"),
    "FLAGS_check_nan_inf on": lambda: _written(4, True),
}
STATES = [
    *(("torch", name, state) for name, state in OF_TORCH.items()),
    *(pytest.param("paddle", name, state, marks=needs_paddle) for name, state in OF_PADDLE.items()),
]
EACH = pytest.mark.parametrize(("framework", "name", "state"), STATES)


def held(settings: Any, *owners: str) -> list[object]:
    return [setting.read() for setting in settings if not owners or setting.owner in owners]


@EACH
def test_a_fixed_state_is_that_of_a_new_process_and_is_put_back(framework: str, name: str, state: Any) -> None:
    of, P = import_module(f"pytest_probe.frameworks.{framework}.state"), import_module(framework)
    plain = held(of.SETTINGS)
    with state():
        before = held(of.SETTINGS)
        assert bool(of.differing()) is (name not in UNNAMED)
        assert framework == "torch" or of.differing() == name.replace(PLAIN, "")
        with of.Fixed():
            assert held(of.SETTINGS) == plain
            with of.Fixed():  # an inner one does nothing
                assert not of.differing()
            x = P.ones([2])
            (x.requires_grad_() * 2 if framework == "torch" else x * 2).sum().backward()
            assert held(of.SETTINGS) == plain
        assert held(of.SETTINGS) == before
    assert held(of.SETTINGS) == plain


@EACH
def test_the_device_has_what_the_user_has_set_but_for_what_a_record_tells(
    framework: str, name: str, state: Any
) -> None:
    of = import_module(f"pytest_probe.frameworks.{framework}.state")
    every = ("process", "call", "run")
    with state():
        before = {owner: held(of.SETTINGS, owner) for owner in every}
        with of.Fixed():
            fixed = {owner: held(of.SETTINGS, owner) for owner in every}
            for whose, users in (("users", ("process", "call")), ("recorded", ("process",)), ("fixed", ())):
                with of.OfUser(whose):
                    found = {owner: held(of.SETTINGS, owner) for owner in every}
                    assert found == {owner: (before if owner in users else fixed)[owner] for owner in every}
            assert {owner: held(of.SETTINGS, owner) for owner in every} == fixed


def test_references_draw_from_numbers_of_their_own(kit: Any) -> None:
    P, of = kit.module, import_module(f"pytest_probe.frameworks.{kit.module.__name__}.state")
    seed = P.manual_seed if kit.name == "pytorch" else P.seed
    seed(3)
    own = P.rand([4]).tolist()
    seed(3)
    with of.Fixed():
        drawn = P.rand([2]).tolist()
        with of.OfUser("recorded"):
            device = P.rand([2]).tolist()
        drawn += P.rand([2]).tolist()
    assert device + P.rand([2]).tolist() == own
    with of.Fixed():
        assert P.rand([4]).tolist() == drawn
