"""What a test compares may be anything: a section or none, and never another failure."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from pytest_probe import frameworks
from pytest_probe.features.asserts import section as sections
from tests.features.asserts.test_causes import failed_section, text_of


def lines(actual: np.ndarray, expected: np.ndarray) -> list[str]:
    return failed_section(lambda: np.testing.assert_allclose(actual, expected, rtol=1e-3)).splitlines()


@pytest.mark.parametrize("shape", [(4096,), (2, 2048), (8, 8, 64)])
def test_large_ones_are_sampled(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    monkeypatch.setattr(sections, "SAMPLE", 512)
    expected = np.linspace(1, 2, 4096).reshape(shape)
    actual = expected.copy()
    actual[..., -1] = 9
    text = "\n".join(lines(actual, expected))
    assert "a sample: 1 of " in text
    assert re.search(rf"\[.*\b{shape[-1] - 1}\] +9 ", text)


def test_a_sample_may_hold_nothing_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "SAMPLE", 512)
    expected = np.linspace(1, 2, 4096)
    actual = expected.copy()
    actual[1] = 9
    assert "  no element of the sample differs" in lines(actual, expected)


def test_large_tensors_are_sampled_before_they_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "SAMPLE", 512)
    copied: list[int] = []
    array_of = frameworks.array_of

    def noting(value: torch.Tensor) -> np.ndarray:
        copied.append(value.numel())
        return array_of(value)

    monkeypatch.setattr(frameworks, "array_of", noting)
    expected = torch.linspace(1, 2, 1 << 16).reshape(256, 256)
    assert "looks like: negated" in text_of(-expected, expected)
    assert max(copied) <= 512
