"""PaddlePaddle: a border between two kernels, where runs that are asked to round values and their gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
from paddle import Tensor
from paddle.autograd import PyLayer

from pytest_probe.frameworks.paddle.arrays import to_array, to_tensor
from pytest_probe.frameworks.widened import border_dtype
from pytest_probe.numerics.dtypes import numpy_dtype, round_to, widen


def border(tensor: Tensor) -> Tensor:
    """See Framework.border."""
    dtype = border_dtype()
    return _Border.apply(tensor, dtype) if dtype and tensor.is_floating_point() else tensor


class _Border(PyLayer):  # type: ignore[misc]
    @staticmethod
    def forward(context: Any, tensor: Tensor, dtype: str) -> Tensor:
        context.dtype = dtype
        return _rounded(tensor, dtype)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return _rounded(gradient, context.dtype)


def _rounded(tensor: Tensor, dtype: str) -> Tensor:
    # In a reference's run Paddle's casts give float64: NumPy's narrow.
    values = to_array(tensor.detach())
    return to_tensor(np.asarray(widen(round_to(values, numpy_dtype(dtype))).astype(values.dtype)))
