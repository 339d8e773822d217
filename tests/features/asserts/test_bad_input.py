"""What a test compares may be anything: a section or none, and never another failure."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from pytest_probe import frameworks
from pytest_probe.features.asserts import section as sections
from tests.features.asserts.test_causes import failed_section, text_of
from tests.features.asserts.test_failed import HEAD

ODD = """
    def test_meta():
        same(torch.ones(4, device="meta"), torch.ones(5, device="meta"))

    def test_sparse():
        same(torch.eye(4).to_sparse(), 2 * torch.eye(4).to_sparse())

    def test_dtypes():
        same(x, x.double())

    def test_shapes():
        same(torch.ones(3, 4), torch.ones(4, 3))

    def test_bool_and_complex():
        same(torch.ones(4, dtype=torch.bool), torch.ones(4, dtype=torch.complex64) * 1j, check_dtype=False)

    def test_complex():
        same(torch.ones(64, dtype=torch.complex64) * 1j, torch.ones(64, dtype=torch.complex64))

    def test_nan():
        same(torch.full((4, 4), float("nan")), torch.full((4, 4), float("nan")))

    def test_nan_and_numbers():
        same(torch.full((4, 4), float("nan")), torch.ones(4, 4))

    def test_empty():
        same(torch.ones(0, 4), torch.ones(4, 0))

    def test_objects():
        np.testing.assert_array_equal(np.array([object()]), np.array([object()]))

    def test_strings():
        np.testing.assert_array_equal(np.array(["a"]), np.array(["b"]))

    def test_keys():
        same({"a": x}, {"b": x})

    def test_nested():
        deep = [x]
        deep.append(deep)
        assert np.allclose(deep[0] * 2, x)

    def test_raises():
        class Tensor:
            shape, dtype = (2,), "float32"

            def __array__(self, *args, **kwargs):
                raise RuntimeError("it is gone")

        def assert_close(actual, expected):
            raise AssertionError

        assert_close.__globals__["__name__"], name = "torch.testing.mine", __name__
        try:
            assert_close(Tensor(), Tensor())
        finally:
            assert_close.__globals__["__name__"] = name
"""


def test_odd_operands(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(HEAD + ODD)
    plain = pytester.runpytest("-rN")
    found = pytester.runpytest("-rN", "--probe-asserts")
    assert found.parseoutcomes() == plain.parseoutcomes()
    first = [[re.sub("0x[0-9a-f]+", "", line) for line in run.outlines if line[:2] == "E "] for run in (plain, found)]
    assert first[0] == first[1]
    text = found.stdout.str()
    assert "INTERNALERROR" not in text
    for words in (
        "the shapes differ: nothing more is compared",
        "the difference cannot be explained: Unsupported: a tensor of layout torch.sparse_coo",
        "all numbers are equal: dtypes, shapes, devices or layouts differ",
        "NaN: 16 on both sides, equal with equal_nan=True alone",
        "looks like: NaN where numbers are expected",
    ):
        assert words in text


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
