"""Snapshots of Paddle's tensors and of other arguments."""

from __future__ import annotations

import json
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.paddle.values import Values
from pytest_probe.capture.statistics import overflown
from pytest_probe.system.tensor_files import paddle_pickle

pytestmark = pytest.mark.usefixtures("counting")


def shown(value: Any, **config: Any) -> Any:
    """What a dump has of a value."""
    values = Values(CaptureConfig("", **config))
    tree = values.take(value)
    values.settle()
    return json.loads(msgspec.json.encode(tree))


def fields(tree: dict[str, Any], *keys: str) -> list[Any]:
    return [tree.get(key) for key in keys]


@pytest.mark.parametrize("shape", [(6,), (3, 20_000)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int8", "int64", "complex64"])
def test_statistics_of_paddle_tensors_equal_numpys(dtype: str, shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape)) % 61 - 7.0).reshape(shape)
    tensor = paddle.to_tensor(array).astype(dtype)
    magnitudes = np.abs(array) if dtype.startswith("complex") else array
    found = shown(tensor)
    assert fields(found, "type", "dtype", "Max", "Min") == ["paddle.Tensor", dtype, magnitudes.max(), magnitudes.min()]
    assert tuple(found["shape"]) == shape
    assert found["Mean"] == pytest.approx(magnitudes.mean(), rel=1e-6)
    assert found["Norm"] == pytest.approx(np.linalg.norm(magnitudes), rel=1e-6)


def test_true_elements_are_counted() -> None:
    assert fields(shown(paddle.to_tensor([True, False, True])), "Max", "Min", "True") == [True, False, 2]
    assert fields(shown(paddle.ones([20_000], "bool")), "Max", "Min", "True") == [True, True, 20_000]


@pytest.mark.parametrize("size", [4, 20_000])
def test_nan_and_infinities_are_counted(size: int) -> None:
    array = np.ones(size, np.float32)
    array[:3] = [np.nan, np.inf, -np.inf]
    assert fields(shown(paddle.to_tensor(array)), "NaN", "Inf", "Negative_inf", "Max_except_inf_nan") == [1, 2, 1, 1.0]


def test_scalars_and_empty_tensors_have_statistics() -> None:
    assert fields(shown(paddle.to_tensor(2.5)), "Max", "Min") == [2.5, 2.5]
    assert fields(shown(paddle.zeros([0, 3])), "Max", "Min") == [None, None]


@pytest.mark.parametrize("rows", [3, 300])
def test_strides_are_recorded_and_the_checksum_is_of_the_elements(rows: int) -> None:
    tensor = paddle.to_tensor(np.arange(rows * 64, dtype=np.float32).reshape(rows, 64))[:, ::2].t()
    found = shown(tensor, summary="md5")
    assert list(found["stride"]) == [2, 64]
    assert [found["Max"], found["Min"]] == [rows * 64 - 2, 0.0]
    assert found["md5"] == f"{zlib.crc32(np.ascontiguousarray(tensor.numpy()).tobytes()):08x}"


def test_sparse_tensors_have_no_values() -> None:
    found = shown(paddle.sparse.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], [2, 2]))
    assert fields(found, "type", "dtype", "Max") == ["paddle.sparse", "float32", None]


def test_integers_keep_their_elements() -> None:
    assert shown(paddle.to_tensor([3, 1, 2]))["values"] == [3, 1, 2]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (paddle.float16, {"type": "paddle.dtype", "value": "float16"}),
        ("bfloat16", {"type": "paddle.dtype", "value": "bfloat16"}),
        ("mean", {"type": "str", "value": "mean"}),
        (paddle.CPUPlace(), {"type": "paddle.Place", "value": "cpu"}),
        (np.float32(2.5), {"type": "float32", "value": 2.5}),
        (1 + 2j, {"type": "complex", "value": [1.0, 2.0]}),
        (slice(1, None, 2), {"type": "slice", "value": [1, None, 2]}),
        (None, None),
    ],
)
def test_arguments_that_are_no_tensors_are_described(value: Any, expected: Any) -> None:
    assert shown(value) == expected


def test_shapes_are_lists_of_integers_and_objects_their_type() -> None:
    assert shown(paddle.ones([2, 3]).shape) == [{"type": "int", "value": 2}, {"type": "int", "value": 3}]
    assert shown(object()) == {"type": "builtins.object"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "complex64", "int8"])
def test_files_are_as_those_of_paddle(dtype: str, tmp_path: Path) -> None:
    tensor = paddle.to_tensor([0.0, 1.0, 2.0]).astype(dtype)
    values = Values(CaptureConfig("", task="tensor"))
    values.save(values.take(tensor).data, tmp_path / "ours.pt")
    paddle.save(tensor, str(tmp_path / "theirs.pt"))
    ours, theirs = (paddle_pickle.load(BytesIO((tmp_path / name).read_bytes())) for name in ("ours.pt", "theirs.pt"))
    assert ours.dtype == theirs.dtype
    assert np.array_equal(ours, theirs)
    assert paddle.load(str(tmp_path / "ours.pt")).tolist() == tensor.tolist()


def test_infinite_floats_are_overflows_and_integers_are_none() -> None:
    assert overflown(np.array([1.0, np.inf]))
    assert not overflown(np.array([1, 2]))
