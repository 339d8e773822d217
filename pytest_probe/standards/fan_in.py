"""How many terms meet in one output element: what limits on accumulated rounding grow with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.standards.facts import Facts

# Where the operand stands whose last dimension is summed over: terms of one output = its extent.
PRODUCTS: Mapping[str, int] = {
    "linear": 0,
    "matmul": 0,
    "mm": 0,
    "bmm": 0,
    "mv": 0,
    "dot": 0,
    "inner": 0,
    "addmm": 1,
    "addbmm": 1,
    "baddbmm": 1,
    "addmv": 1,
    "chain_matmul": 0,
}
CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d"})
TRANSPOSED = frozenset({"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})
# Reductions and normalisations: as many terms as input elements for each output element, or along the row.
REDUCTIONS = frozenset(
    "sum mean nansum nanmean prod var std var_mean std_mean norm vector_norm logsumexp cosine_similarity mse_loss "
    "l1_loss smooth_l1_loss huber_loss nll_loss kl_div binary_cross_entropy binary_cross_entropy_with_logits trace "
    "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d".split()
)
ROWS = frozenset("softmax log_softmax softmin layer_norm rms_norm normalize cumsum cumprod logcumsumexp glu".split())


def fan_in(
    facts: Facts, name: str, expected: AnyArray, args: Sequence[Any], kwargs: Mapping[str, Any], forward_size: int
) -> tuple[int, bool]:
    """Terms of one element of output `name`, and whether that is only assumed.

    expected: the output; forward_size: elements of the largest forward output, which is where a gradient's terms come
    from. An unknown API is assumed to sum over all of its largest floating input.
    """
    shapes = [np.shape(value) for value in args if isinstance(value, np.ndarray)]
    shapes += [np.shape(value) for value in kwargs.values() if isinstance(value, np.ndarray)]
    largest = max((int(np.prod(shape, dtype=np.int64)) for shape in shapes), default=forward_size)
    size = max(expected.size, 1)
    terms = _terms(facts.name, shapes)
    if terms is not None:
        return (terms if name.startswith(("output", "input")) else max(1, forward_size * terms // size)), False
    if facts.elementwise or facts.classes & {"exact", "writes"}:
        return max(1, forward_size // size), False
    if facts.name in REDUCTIONS:
        return max(1, max(largest, forward_size) // size), False
    if facts.name in ROWS and shapes and shapes[0]:
        rows = max(shapes[0]) if name.startswith("output") else max(max(shapes[0]), forward_size // size)
        return rows, False
    return max(largest, forward_size), True


def _terms(name: str, shapes: Sequence[tuple[int, ...]]) -> int | None:
    """Terms of one forward output of a product or convolution; None for any other API."""
    place = PRODUCTS.get(name)
    if place is not None and place < len(shapes):
        return shapes[place][-1] if shapes[place] else 1
    if name in CONVOLUTIONS and len(shapes) > 1:
        return int(np.prod(shapes[1][1:], dtype=np.int64))
    if name in TRANSPOSED and len(shapes) > 1:
        return int(shapes[1][0] * np.prod(shapes[1][2:], dtype=np.int64))
    return None


def winograd(facts: Facts, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Is it a convolution that may be computed by Winograd's F4: kernel of 3 or more, stride 1?"""
    weight = args[1] if len(args) > 1 else kwargs.get("weight")
    if facts.name not in CONVOLUTIONS or not isinstance(weight, np.ndarray):
        return False
    stride = args[3] if len(args) > 3 else kwargs.get("stride", 1)
    strides = stride if isinstance(stride, (list, tuple)) else [stride]
    return max(weight.shape[2:], default=1) >= 3 and all(step == 1 for step in strides)
