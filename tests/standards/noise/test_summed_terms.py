from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.model.comparison import Comparison
from pytest_probe.standards.noise.summed_terms import Terms, may_use_winograd, summed_terms
from tests.support.asking import comparison


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def asked(api: str, name: str, shape: tuple[int, ...], forward: int, args: Any = (), kwargs: Any = None) -> Comparison:
    """A comparison of one output, or gradient, of a call whose forward output has so many elements."""
    values = np.zeros(shape, np.float32)
    return comparison(values, values, api=api, name=name, args=args, kwargs=kwargs, terms=forward)


X, W, B = ones(16, 64), ones(32, 64), ones(32)
IMAGE, KERNEL = ones(2, 3, 10, 10), ones(4, 3, 3, 3)


@pytest.mark.parametrize(
    ("api", "name", "shape", "args", "forward", "terms", "assumed"),
    [
        ("Functional.linear", "output.0", (16, 32), (X, W, B), 512, 64, False),
        ("Functional.linear", "grad.input.0", (16, 64), (X, W, B), 512, 32, False),
        ("Functional.linear", "grad.input.1", (32, 64), (X, W, B), 512, 16, False),
        ("Functional.linear", "grad.input.2", (32,), (X, W, B), 512, 1024, False),
        ("Torch.addmm", "output.0", (16, 8), (ones(8), X, ones(64, 8)), 128, 64, False),
        ("Torch.dot", "output.0", (), (ones(100), ones(100)), 1, 100, False),
        ("Functional.conv2d", "output.0", (2, 4, 8, 8), (IMAGE, KERNEL), 512, 27, False),
        ("Functional.conv2d", "grad.input.1", (4, 3, 3, 3), (IMAGE, KERNEL), 512, 128, False),
        ("Functional.conv_transpose2d", "output.0", (2, 3, 12, 12), (ones(2, 4, 10, 10), KERNEL), 864, 36, False),
        ("Torch.sum", "output.0", (), (X,), 1, 1024, False),
        ("Torch.sum", "output.0", (16,), (X, -1), 16, 64, False),
        ("Torch.sum", "grad.input.0", (16, 64), (X, -1), 16, 1, False),
        ("Torch.softmax", "output.0", (16, 64), (X, -1), 1024, 64, False),
        ("Functional.layer_norm", "grad.input.2", (64,), (X, [64], ones(64)), 1024, 64, False),
        ("Torch.add", "output.0", (16, 64), (X, X), 1024, 1, False),
        ("Torch.add", "grad.input.1", (64,), (X, ones(64)), 1024, 16, False),
        ("Torch.einsum", "output.0", (16,), ("ij,ij->i", X, X), 16, 1024, True),
        ("NPU.unknown", "output.0", (16,), (X,), 16, 1024, True),
        ("Torch.arange", "output.0", (5,), (5,), 5, 5, True),
    ],
)
def test_terms(api: str, name: str, shape: tuple[int, ...], args: Any, forward: int, terms: int, assumed: bool) -> None:
    assert summed_terms(asked(api, name, shape, forward, args)) == Terms(terms, assumed)


def test_keyword_arguments_count() -> None:
    by_name = asked("Functional.linear", "output.0", (16, 32), 512, kwargs={"input": X, "weight": W})
    assert summed_terms(by_name) == Terms(64)


def test_a_gradient_has_the_terms_of_its_argument_though_sums_of_it_are_compared() -> None:
    assert summed_terms(asked("Torch.add", "grad.input.1", (8,), 1024, (X, ones(64)))) == Terms(16)


def test_an_empty_output_has_terms() -> None:
    assert summed_terms(asked("Torch.add", "grad.input.0", (0,), 0, (ones(0),))) == Terms(1)


@pytest.mark.parametrize(
    ("api", "args", "kwargs", "expected"),
    [
        ("Functional.conv2d", (IMAGE, KERNEL), {}, True),
        ("Functional.conv2d", (IMAGE, KERNEL, None, [1, 1]), {}, True),
        ("Functional.conv2d", (IMAGE, KERNEL), {"stride": 2}, False),
        ("Functional.conv2d", (IMAGE, KERNEL, None, (1, 2)), {}, False),
        ("Functional.conv2d", (IMAGE, ones(4, 3, 1, 1)), {}, False),
        ("Functional.conv2d", (), {"input": IMAGE, "weight": KERNEL}, True),
        ("Functional.conv_transpose2d", (IMAGE, KERNEL), {}, False),
        ("Torch.matmul", (X, W), {}, False),
    ],
)
def test_winograd(api: str, args: Any, kwargs: Any, expected: bool) -> None:
    assert may_use_winograd(asked(api, "output.0", (2, 4, 8, 8), 512, args, kwargs)) is expected
