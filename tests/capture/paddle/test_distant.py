from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import capture
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.paddle import values
from tests.support.capturing import entries


def shown(value: Any, **config: Any) -> Any:
    """What a dump has of a value; settled by another thread, as the writer does it."""
    taken = values.Values(CaptureConfig("", **config))
    tree = taken.take(value)
    thread = threading.Thread(target=taken.settle)
    thread.start()
    thread.join()
    return json.loads(msgspec.json.encode(tree))


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tensors are on another device; their values are copied to the host as this says."""
    copies: list[str] = []
    numpy = paddle.Tensor.numpy

    def copied(tensor: Any, *args: Any) -> Any:
        copies.append(str(tensor.dtype))
        return numpy(tensor, *args)

    def refused(*_: object) -> None:
        raise AssertionError("the device's memory was read")

    monkeypatch.setattr(values, "may_be_far", lambda: True)
    monkeypatch.setattr(values, "_is_near", lambda tensor: False)
    monkeypatch.setattr(values, "string_at", refused)
    monkeypatch.setattr(values, "_array", refused)
    monkeypatch.setattr(paddle.Tensor, "numpy", copied)
    return copies


DTYPES = ["float64", "float32", "float16", "bfloat16", "int8", "int64", "complex64", "bool"]
SHAPES: list[tuple[int, ...]] = [(), (6,), (3, 20_000), (0, 3)]
KEYS = {"type", "dtype", "shape", "requires_grad", "Max", "Min", "Mean", "Norm", "True", "NaN", "Inf"}


def tensor(dtype: str, shape: tuple[int, ...]) -> Any:
    array = (np.arange(np.prod(shape)) % 61 - 7.0).reshape(shape)
    return paddle.to_tensor(array).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_they_are_those_of_the_host(
    dtype: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    near = shown(tensor(dtype, shape))
    copies = request.getfixturevalue("far")
    found = shown(tensor(dtype, shape))
    for key in KEYS & near.keys():
        # float32 sums of many are right to seven digits.
        sums = key in ("Mean", "Norm") and near[key] is not None
        assert found[key] == (pytest.approx(near[key], rel=1e-6) if sums else near[key]), key
    # One copy, of all that waits, in float64.
    assert set(copies) <= {"paddle.float64"}
    assert len(copies) == (0 not in shape)


def test_strides_masses_and_what_is_not_finite(far: list[str]) -> None:
    x = paddle.zeros([64, 512])
    x[:, 7] = float("nan")
    x[3, 8] = float("-inf")
    found = shown(x)
    assert [found["NaN"], found["Inf"]] == [64, 1]
    y = (paddle.arange(64 * 512, dtype="float32") % 2).reshape([64, 512])
    found = shown(y[:, ::2])
    assert found["stride"] == [512, 2]
    assert [found["Max"], found["Min"], found["zeros"]] == [0.0, 0.0, 1.0]


def test_values_are_copied_where_they_are_asked_for(far: list[str]) -> None:
    assert "md5" in shown(paddle.ones([3]), summary="md5")
    taken = values.Values(CaptureConfig("", task="tensor"))
    assert taken.take(paddle.full([2], 3.0)).data.tolist() == [3.0, 3.0]
    assert not taken.waits()
    assert shown(paddle.ones([3]), task="structure")["Max"] is None
    assert far == ["paddle.float32"] * 2


def test_what_a_device_cannot_count_is_copied(far: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def unable(*_: object) -> None:
        asked.append(1)
        raise RuntimeError("(NotFound) The kernel with key (npu, Undefined(AnyLayout), float64) is not registered.")

    monkeypatch.setattr(values, "_vector", unable)
    taken = values.Values(CaptureConfig(""))
    seen = [taken.take(paddle.full([2], number)) for number in (1.0, 2.0)]
    taken.settle()
    assert [one.max for one in seen] == [1.0, 2.0]
    assert len(asked) == 1


def test_a_capture_waits_for_them_when_a_step_ends(far: list[str], tmp_path: Path) -> None:
    x = paddle.ones([3])
    x.stop_gradient = False
    with capture(tmp_path, framework="paddle"):
        y = (x * 2.0).exp_()
        y.sum().backward()
        assert far == []
    assert len(far) == 1
    found = entries(tmp_path)
    assert found["paddle.Tensor.exp_.0.forward"]["input_args"][0]["Max"] == 2.0
    assert found["paddle.Tensor.__mul__.0.backward"]["input"][0]["Max"] == pytest.approx(np.exp(2.0))
    assert list(found) == [
        *("paddle.Tensor.__mul__.0.forward", "paddle.Tensor.exp_.0.forward", "paddle.sum.0.forward"),
        *("paddle.sum.0.backward", "paddle.Tensor.exp_.0.backward", "paddle.Tensor.__mul__.0.backward"),
    ]
    assert x.grad.tolist() == pytest.approx([2 * np.exp(2.0)] * 3)
