from __future__ import annotations

import pytest
import torch

from pytest_probe.frameworks.python.framework import EVERY
from pytest_probe.frameworks.torch.state import SETTINGS, Fixed, OfUser, differing
from tests.support.users_state import PLAIN, STATES

pytestmark = pytest.mark.compat

# These are no settings of torch's, or have no other value to name.
UNNAMED = (PLAIN, "warnings raise", "numpy raises", "threads", "seed")


def held() -> list[object]:
    return [setting.read() for setting in SETTINGS]


@pytest.mark.parametrize("name", STATES)
def test_a_fixed_state_is_that_of_a_new_process_and_is_put_back(name: str) -> None:
    plain = held()
    with STATES[name]():
        before = held()
        assert bool(differing()) is (name not in UNNAMED)
        with Fixed():
            assert held() == plain
            assert not torch.is_inference_mode_enabled()
            assert not differing()
            torch.ones(2, requires_grad=True).sum().backward()
        assert held() == before
    assert held() == plain


@pytest.mark.parametrize("name", STATES)
def test_the_device_has_what_the_user_has_set_but_for_what_a_record_tells(name: str) -> None:
    with STATES[name]():
        before = held()
        with Fixed():
            fixed = held()
            with OfUser("users"):
                assert of(held(), "process", "call") == of(before, "process", "call")
                assert of(held(), "run") == of(fixed, "run")
            with OfUser("recorded"):
                assert of(held(), "process") == of(before, "process")
                assert of(held(), "run", "call") == of(fixed, "run", "call")
            with OfUser("fixed"):
                assert held() == fixed
            assert held() == fixed


def of(values: list[object], *owners: str) -> list[object]:
    return [value for setting, value in zip(SETTINGS, values, strict=True) if setting.owner in owners]


def test_what_a_call_on_the_device_leaves_set_reaches_no_reference() -> None:
    with Fixed():
        fixed = held()
        with OfUser("recorded"):
            torch.set_grad_enabled(False)
            torch.set_default_dtype(torch.float64)
            torch.use_deterministic_algorithms(True)
        assert held() == fixed
    try:
        assert differing() == "deterministic algorithms on"  # the process', as the call left it
    finally:
        torch.use_deterministic_algorithms(False)


def test_references_draw_from_numbers_of_their_own() -> None:
    torch.manual_seed(3)
    own = torch.rand(4)
    torch.manual_seed(3)
    with Fixed():
        drawn = torch.rand(2)
        with OfUser("recorded"):
            device = torch.rand(2)
        drawn = torch.cat([drawn, torch.rand(2)])
    assert torch.equal(torch.cat([device, torch.rand(2)]), own)
    with Fixed():
        assert torch.equal(torch.rand(4), drawn)


def test_every_setting_has_an_owner() -> None:
    assert {setting.owner for setting in SETTINGS} == set(EVERY)
