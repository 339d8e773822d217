from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from pytest_probe.frameworks.paddle.signatures import SIGNATURES, bind, canonical
from pytest_probe.frameworks.python.binding import Signature
from pytest_probe.model.run import BoundCall

A, B = np.zeros((2, 3)), np.ones((3, 4))
INTEGERS = np.arange(3)
# Entries that Paddle does not tell, or tells otherwise, and why.
EXCEPTIONS: Mapping[str, str] = {
    "getitem": "Python's own slot, without a signature",
    "setitem": "Python's own slot, without a signature",
    "__rfloordiv__": "reflected: what it is called on comes second",
    "__rmod__": "reflected: what it is called on comes second",
    "__rmatmul__": "reflected: what it is called on comes second",
    "_C_ops.layer_norm": "an operator, without a signature",
    "_C_ops.embedding": "an operator, without a signature",
    "_C_ops.full_": "an operator, without a signature",
    "cross_entropy_with_softmax": "an operator, without a signature",
    "gaussian": "an operator, without a signature",
    "msort": "sorts along a dimension that it does not name",
}


def functions(key: str) -> Iterator[Any]:
    import paddle

    functional, fused = paddle.nn.functional, paddle.incubate.nn.functional
    for place in (functional, paddle, paddle.linalg, fused, paddle.geometric, paddle.vision.ops, paddle.Tensor):
        found = getattr(place, key, None)
        if (found is not None and place is not paddle.Tensor) or (found is not None and key.endswith("_")):
            yield found


@pytest.mark.parametrize("key", [key for key in SIGNATURES if key not in EXCEPTIONS])
def test_parameters_are_paddles(key: str) -> None:
    pytest.importorskip("paddle")
    signature = Signature.parsed(SIGNATURES[key])
    mismatches = []
    for function in functions(key):
        try:
            known = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            continue
        names = [signature.aliases.get(item.name, item.name) for item in known if item.kind is not item.VAR_POSITIONAL]
        wanted = [name for name in signature.parameters if name in names]
        first = names[: len(wanted)]
        if wanted and wanted[0] == names[0] and first == wanted:
            return
        mismatches.append((names, wanted))
    assert not mismatches, mismatches


@pytest.mark.parametrize(
    ("api", "name"),
    [
        ("paddle.Tensor.__radd__", "add"),
        ("paddle.Tensor.__truediv__", "div"),
        ("paddle.Tensor.multiply_", "multiply"),
        ("paddle.nn.functional.conv2d_transpose", "conv_transpose2d"),
        ("paddle.nn.functional.linear", "affine"),
        ("paddle.nn.clip._squared_l2_norm", "squared_l2_norm"),
        ("paddle.take_along_axis", "take_along_dim"),
        ("paddle._C_ops.cross_entropy_with_softmax", "cross_entropy"),
        ("paddle.Tensor.astype", "to"),
    ],
)
def test_canonical_names(api: str, name: str) -> None:
    assert canonical(api) == name


def bound(api: str, *args: Any, **kwargs: Any) -> BoundCall:
    return bind(api, args, kwargs)


def test_axis_is_dim() -> None:
    assert bound("paddle.sum", A, 1).argument("input.1") == 1  # nobody asks a sum for it
    assert bound("paddle.argmax", A, axis=1).argument("dim") == 1
    assert bound("paddle.topk", A, 2, None).argument("dim") == -1
    assert bound("paddle.nn.functional.layer_norm", A, 3, None, None, 1e-6).argument("eps") == 1e-6


def test_an_operator_that_fills_takes_its_size_second() -> None:
    assert bound("paddle._C_ops.full_", A, [3], 0.5).argument("size") == [3]
    assert bound("paddle.full", [3], 0.5).argument("size") == [3]


def test_a_product_of_transposed_factors_is_another() -> None:
    assert bound("paddle.matmul", A, B).name == "matmul"
    assert bound("paddle.matmul", A, B, False, True).name == "transposed_matmul"
    assert bound("paddle.incubate.nn.functional.fused_linear", A, B, transpose_weight=True).name == "linear"


def test_places_of_a_pooling_are_known_where_its_padding_is() -> None:
    pooling = "paddle.nn.functional.max_pool2d"
    assert bound(pooling, A, 2, 1, [1, 1]).name == "max_pool2d"
    assert bound(pooling, A, 2, 1, "SAME").name == "max_pool2d_padded"
    assert bound(pooling, A, 2, 1, [0, 1, 0, 1]).name == "max_pool2d_padded"
    assert bound(pooling, A, 2, data_format="NHWC").name == "max_pool2d_channels_last"


def test_a_dropout_of_rows_is_none_of_elements() -> None:
    dropout = "paddle.nn.functional.dropout"
    assert bound(dropout, A, 0.1).name == "dropout"
    assert bound(dropout, A, 0.1, 0).name == "feature_dropout"
    assert bound(dropout, A, 0.1, mode="downscale_in_infer").name == "unscaled_dropout"
    assert bound(dropout, A, 0.1, 0, mode="downscale_in_infer").name == "feature_dropout"
    assert bound(dropout, A, 0.1, training=False, mode="downscale_in_infer").name == "dropout"


def test_writes_and_sums_at_places() -> None:
    assert bound("paddle.scatter", A, INTEGERS, A).name == "index_copy"
    assert bound("paddle.scatter", A, INTEGERS, A, overwrite=False).name == "index_add"
    assert bound("paddle.put_along_axis", A, INTEGERS, A, 0).name == "scatter"
    assert bound("paddle.put_along_axis", A, INTEGERS, A, 0).argument("reduce") is None
    assert bound("paddle.put_along_axis", A, INTEGERS, A, 0, "add").name == "scatter_reduce"


def test_medians() -> None:
    assert bound("paddle.median", A, 1).name == "averaged_median"
    assert bound("paddle.median", A, 1, mode="min").name == "median"


def test_ends_of_integers() -> None:
    one, two = bound("paddle.randint", 10, shape=[3]), bound("paddle.randint", 2, 10, [3])
    assert (one.argument("low"), one.argument("high")) == (0, 10)
    assert (two.argument("low"), two.argument("high")) == (2, 10)


def test_a_geometric_distribution_is_not_rounded() -> None:
    found = bound("paddle.Tensor.geometric_", A, 0.3)
    assert found.name == "exponential"
    assert found.argument("lambd") == pytest.approx(-math.log(0.7))


def test_the_name_of_a_result_is_no_argument() -> None:
    assert set(bound("paddle.add", A, A, name=None).given) == {"input", "other"}


def test_a_function_of_nobody() -> None:
    found = bound("", A)
    assert (found.name, found.native, found.argument("input") is A) == ("", False, True)
