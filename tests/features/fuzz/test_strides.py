"""Drawn strides that choose a kernel where sizes of 1 make a tensor dense in either order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from benchmarks.fuzzing.running import checker, trials
from pytest_probe.model.dump import Call, Surroundings, TensorSpec
from pytest_probe.model.run import Arguments, Leaf
from pytest_probe.numerics.dtypes import numpy_dtype
from tests.evidence.test_calls import slanted

API = "Functional.batch_norm"
ROUNDOFFS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def verdicts(dtype: str, kernel: Callable[..., Any] | None = None) -> list[str]:
    """Of an evaluation of images of one element whose strides have the channels last, and its backward."""
    rng = np.random.default_rng(0)
    shape, strides = (8, 16, 1, 1), (16, 1, 16, 16)
    image = Leaf(rng.standard_normal(shape).astype(numpy_dtype(dtype)), True, strides)
    mean, weight, bias = (Leaf(rng.standard_normal(16).astype(numpy_dtype(dtype))) for _ in range(3))
    var = Leaf((rng.random(16) + 0.5).astype(numpy_dtype(dtype)))
    specs = (TensorSpec(dtype, shape, stride=strides, requires_grad=True), *[TensorSpec(dtype, (16,))] * 4)
    call = Call(specs, {}, None, (), surroundings=Surroundings())
    judging = trials(checker(API if kernel else "", kernel), API)
    found = judging.judged(call, Arguments((image, mean, var, weight, bias), {}, ()))
    return [each.verdict.verdict for each in found.checked]


@pytest.mark.parametrize("dtype", ROUNDOFFS)
def test_batch_norm_of_images_of_one_element(dtype: str) -> None:
    # The backward's own kernel rounds inside, in steps that are not written down.
    assert verdicts(dtype) == ["pass", "warning"]

    def wrong(*args: torch.Tensor) -> torch.Tensor:
        return slanted(F.batch_norm, 0, 1 + ROUNDOFFS[dtype], *args)

    assert verdicts(dtype, wrong) == ["pass", "error"]
