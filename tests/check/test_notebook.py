"""`pytest_probe.check` outside of pytest, and verdicts as a script and a notebook show them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import gelu

import pytest_probe
from pytest_probe.errors import SettingsError


def scaled(x: torch.Tensor) -> torch.Tensor:
    return 1.02 * gelu(x)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"standard": "nois"}, r"'nois' cannot be used; give one of .*did you mean noise\?"),
        ({"devise": "cpu"}, r"'devise' cannot be used; give one of .*did you mean device\?"),
        ({"seed": "a"}, "check: seed: 'a' cannot be used; give a whole number"),
        ({"allow": "tf32"}, "check: allow: 'tf32' cannot be used; give a tuple of names"),
        ({"rtol": 1e-3}, "a check takes no tolerance"),
        ({"api": "torch.nn.functional.gelo"}, "gelo"),
    ],
)
def test_conditions_that_nobody_knows_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        pytest_probe.check(torch.relu, reference=torch.relu, inputs=[torch.ones(2)], **given)


def test_a_wrong_function_says_how_far_it_is_off_and_why() -> None:
    found = pytest_probe.check(scaled, reference=gelu, inputs=torch.randn(64, 64).bfloat16(), device="cpu")
    first, numbers, cause = repr(found).splitlines()
    assert first == "error in bfloat16: output.0 [64, 64] bfloat16, by noise"
    assert numbers.startswith("  off by ")
    assert ", allowed " in numbers
    assert cause.endswith("looks like: all times 1.02")
    assert not found.passed
    assert repr(found[0]) == repr(found)


def test_both_directions_of_a_right_function_pass() -> None:
    found = pytest_probe.check(gelu, reference=gelu, inputs=[torch.randn(64)], backward=True, device="cpu")
    assert found.passed
    assert [each.verdict for each in found] == ["pass", "pass"]
    assert len(repr(found).splitlines()) == 6
    assert "would have been found: " in repr(found[1])


def test_what_runs_nowhere_has_not_passed() -> None:
    def raises(x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("no <kernel>")

    found = pytest_probe.check(raises, reference=raises, inputs=[torch.ones(2)], device="cpu")
    assert not found.passed
    assert "no <kernel>" in repr(found)
    assert "no &lt;kernel&gt;" in found._repr_html_()


def test_the_card_of_an_error() -> None:
    (verdict,) = found = pytest_probe.check(scaled, reference=gelu, inputs=torch.randn(64, 64), device="cpu")
    card = verdict._repr_html_()
    for part in ("✕ error", "looks like: all times 1.02", "noise ratio", "<th", "actual", "expected", "input.0"):
        assert part in card
    assert found._repr_html_() == card


def test_other_outputs_that_are_wrong_are_counted() -> None:
    """In the first of the three lines; the card has all of them."""

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, weight, bias) * 1.01

    given = [torch.randn(8, 16), torch.randn(4, 16), torch.randn(4)]
    found = pytest_probe.check(linear, reference=torch.nn.functional.linear, inputs=given, backward=True, device="cpu")
    assert ", and 2 more, by noise" in repr(found[1]).splitlines()[0]
    assert " more, by " not in repr(found[0])
