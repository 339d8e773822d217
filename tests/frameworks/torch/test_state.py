from __future__ import annotations

import pytest
import torch

from pytest_probe.frameworks.torch.state import SETTINGS, Fixed, OfUser, differing
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
