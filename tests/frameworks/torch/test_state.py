from __future__ import annotations

import pytest
import torch

from pytest_probe import seed_all
from pytest_probe.frameworks.torch.state import SETTINGS, Fixed, OfUser, all_bits, differing, unfrozen
from tests.frameworks.test_state import held

pytestmark = pytest.mark.compat


def test_what_a_call_on_the_device_leaves_set_reaches_no_reference() -> None:
    with Fixed():
        fixed = held(SETTINGS)
        with OfUser("recorded"):
            torch.set_grad_enabled(False)
            torch.set_default_dtype(torch.float64)
            torch.use_deterministic_algorithms(True)
        assert held(SETTINGS) == fixed
        assert not torch.is_inference_mode_enabled()
    try:
        assert differing() == "deterministic algorithms on"  # the process', as the call left it
    finally:
        torch.use_deterministic_algorithms(False)


def test_flags_are_set_where_torchs_helpers_of_tests_forbid_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", False)
    before = torch.backends.cudnn.allow_tf32
    try:
        with unfrozen():
            torch.backends.cudnn.allow_tf32 = True
        with all_bits():
            assert not torch.backends.cudnn.allow_tf32
        assert torch.backends.cudnn.allow_tf32
        seed_all(5)
        assert torch.backends.flags_frozen()
    finally:
        with unfrozen():
            torch.backends.cudnn.allow_tf32 = before
