"""The table of failing asserts: each section names the cause that it has, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe.features.asserts.explain import held_dtype
from pytest_probe.features.asserts.failed import failed_assert
from pytest_probe.features.asserts.section import section
from tests.features.asserts.table import BF16, F16, TABLE, randn

NONE = "nothing known"


def text_of(actual: object, expected: object, **tolerance: Any) -> str:
    """The section that a failing assert_close has."""
    return failed_section(lambda: torch.testing.assert_close(actual, expected, **tolerance))


def cause(text: str) -> str:
    lines = " ".join(text.split("\n  ")[1:]).replace("    ", " ")
    return lines.partition("looks like: ")[2].partition(" beyond")[0]


@pytest.mark.parametrize("name", TABLE)
def test_the_section_names_the_cause_or_none(name: str) -> None:
    case = TABLE[name]
    found = cause(text_of(*case.make(), **case.tolerance, check_dtype=False))
    assert any(words in found for words in case.words) if case.words else found.startswith(NONE)
    assert case.place in found


@pytest.mark.parametrize("dtype", [torch.float32, BF16, F16])
def test_unlike_formulas_have_no_cause(dtype: torch.dtype) -> None:
    x, w = randn(64, 128, seed=1), randn(128, 64, seed=2)
    product = x @ w
    pairs = [
        (x[:, :-16] @ w[:-16], product),
        (torch.nn.functional.silu(x), torch.nn.functional.gelu(x)),
        (randn(64, 64, seed=3) * product.std(), product),
        (product.cumsum(-1), product),
    ]
    for actual, expected in pairs:
        assert cause(text_of(actual.to(dtype), expected.to(dtype))).startswith(NONE)


def test_a_factor_below_one_rounding_is_not_called_one() -> None:
    x = randn(64, 64, seed=5, dtype=BF16)
    found = cause(text_of((x.float() * 1.002).to(BF16), x, rtol=1e-4, atol=0.0))
    assert "at most one step of bfloat16, always to one side" in found


HEALTHY: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]] = {
    "the kernel's own rounding": lambda x: (x.tanh(), x.double().tanh().to(x.dtype)),
    "against float32": lambda x: (x.exp(), x.float().exp()),
    "a sum in two parts": lambda x: ((x[:, :50].float().sum(1) + x[:, 50:].float().sum(1)).to(x.dtype), x.sum(1)),
    "rounded to the narrower dtype": lambda x: (x.double().sigmoid().to(x.dtype), x.double().sigmoid()),
}
PLANTED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rows": lambda y: torch.cat([y[:-3], y[-3:] * 0]),
    "columns": lambda y: torch.cat([y[:, :-2], y[:, -2:] * float("nan")], 1),
    "swapped": lambda y: y[[1, 0, *range(2, len(y))]],
    "factor": lambda y: y * 1.01,
    "small factor": lambda y: y * 0.998,
    "offset": lambda y: y + 0.02,
    "shifted": lambda y: y.roll(1, -1),
    "noise": lambda y: y + 0.05 * randn(*y.shape, seed=9),
    "column": lambda y: y + (torch.arange(y.shape[-1]) % 8 == 3) * 0.1,
}


@pytest.mark.parametrize("dtype", [torch.float32, BF16, F16])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_difference_is_a_rounding_or_has_no_cause(name: str, dtype: torch.dtype) -> None:
    actual, expected = HEALTHY[name](randn(64, 96, seed=1, dtype=dtype))
    if actual.dtype == expected.dtype and torch.equal(actual, expected):
        return
    found = cause(text_of(actual, expected, rtol=0.0, atol=0.0, check_dtype=False))
    assert " rounding" in found or found.startswith(NONE)


@pytest.mark.parametrize("dtype", [torch.float32, BF16, F16])
@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("kernel", [torch.float32, torch.float64])
def test_a_planted_fault_is_no_rounding(name: str, dtype: torch.dtype, kernel: torch.dtype) -> None:
    x = randn(64, 96, seed=2, dtype=dtype)
    exact = torch.nn.functional.layer_norm(x.to(kernel), (96,))
    found = cause(text_of(PLANTED[name](exact).to(dtype), exact.to(dtype), rtol=0.0, atol=0.0))
    assert "rounding" not in found


def test_a_place_of_many_is_no_rounding_however_large_other_numbers_are() -> None:
    right = (randn(64, 96, seed=3) * torch.logspace(-3, 1, 64)[:, None]).exp()
    wrong = right + (torch.arange(96) % 8 == 3) * 0.1 * randn(64, 96, seed=4).abs()
    assert "rounding" not in cause(text_of(wrong.to(BF16), right.to(BF16), rtol=0.0, atol=0.0))


@pytest.mark.parametrize(("actual", "expected"), [([1.0, 1.0], [2.0, 2.0]), ([3.0] * 9, [2.0] * 9)])
def test_a_few_numbers_have_no_cause(actual: list[float], expected: list[float]) -> None:
    """They are a factor, an offset and a limit of one another."""
    assert cause(text_of(torch.tensor(actual), torch.tensor(expected))).startswith(NONE)


def test_rows_of_zeros_are_seen_among_roundings() -> None:
    x = randn(64, 64, seed=6)
    out = x.to(BF16).float()
    out[-4:] = 0
    text = text_of(out, x, rtol=1.6e-2, atol=1e-2)
    assert "float32 (of bfloat16 numbers)" in text
    assert "looks like: zeros" in text
    assert "where: last 4 of dim 0" in text


@pytest.mark.parametrize(
    ("values", "held"),
    [
        (randn(1000).double().numpy(), "float64"),
        (randn(1000).numpy(), "float32"),
        (randn(1000, dtype=BF16).float().numpy(), "bfloat16"),
        (randn(1000, dtype=F16).double().numpy(), "float16"),
        (np.arange(1000.0), "float64"),
        (np.round(randn(1000).double().numpy() * 20) / 16, "float64"),
        (randn(8, dtype=BF16).float().numpy(), "float32"),
    ],
)
def test_numbers_of_16_bit_are_known(values: np.ndarray, held: str) -> None:
    """Whole numbers and short fractions are of 16 bit as well, and say nothing; nor do a few numbers."""
    assert held_dtype(values).name == held


def linear_without_its_tail(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x[:, :-4] @ w[:, :-4].T).to(x.dtype)


def short_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(torch.softmax(x[:, :-1], -1), (0, 1))


def whole_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def failed_section(failing: Callable[[], None]) -> str:
    with pytest.raises(AssertionError) as raised:
        failing()
    failed = failed_assert(raised.value, lambda module, source: None)
    assert failed is not None
    return "\n".join(section(failed))


@pytest.mark.parametrize("dtype", [torch.float32, BF16])
def test_what_a_check_names_is_named_where_the_test_says_what_it_compared(dtype: torch.dtype) -> None:
    x, w = randn(16, 36, seed=1, dtype=dtype), randn(24, 36, seed=2, dtype=dtype)

    def of_calls() -> None:
        torch.testing.assert_close(linear_without_its_tail(x, w), torch.nn.functional.linear(x, w))

    def of_names() -> None:
        y = short_softmax(x)
        torch.testing.assert_close(y.float(), whole_softmax(x).float())

    def of_values() -> None:
        torch.testing.assert_close(linear_without_its_tail(x, w), torch.nn.functional.linear(x + 0, w))

    assert cause(failed_section(of_calls)) == "as without the last 4 of dim 1 of input"
    assert cause(failed_section(of_names)).startswith("as without the last 1 of dim -1 of input")
    assert cause(failed_section(of_values)).startswith(NONE)
