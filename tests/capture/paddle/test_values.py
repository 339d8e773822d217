from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.paddle.values import Values
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


def test_sparse_tensors_have_no_values() -> None:
    found = shown(paddle.sparse.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], [2, 2]))
    assert fields(found, "type", "dtype", "Max") == ["paddle.sparse", "float32", None]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (paddle.float16, {"type": "paddle.dtype", "value": "float16"}),
        ("bfloat16", {"type": "paddle.dtype", "value": "bfloat16"}),
        (paddle.CPUPlace(), {"type": "paddle.Place", "value": "cpu"}),
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
