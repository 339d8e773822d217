"""A border of torch's between two kernels."""

from __future__ import annotations

import pytest
import torch

from pytest_probe.frameworks.base import reference_run
from pytest_probe.frameworks.torch.references import border, widening
from pytest_probe.model.run import Way


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_border_rounds_values_and_gradients_in_runs_that_ask_for_it(dtype: str) -> None:
    x = torch.tensor([1.0 + 2.0**-13, 3.0], dtype=torch.float64, requires_grad=True)
    assert border(x) is x
    with reference_run(Way(dtype="float64", border=dtype)), widening("float64", []):
        passed = border(x)
    assert passed.tolist() == [1.0, 3.0]
    assert passed.dtype is torch.float64
    (gradient,) = torch.autograd.grad((passed * torch.tensor([1 - 2.0**-13, 2.0], dtype=torch.float64)).sum(), x)
    assert gradient.tolist() == [1.0, 2.0]


def test_integers_pass_a_border_as_they_are() -> None:
    index = torch.arange(300)
    with reference_run(Way(dtype="float64", border="bfloat16")):
        assert border(index) is index
