"""What a dump says of tensors and other arguments, of each framework and with or without the compiled kernel."""

from __future__ import annotations

import math
import zlib
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from msgspec import json

from pytest_probe.capture.config import read_config
from pytest_probe.capture.statistics import SMALL_BYTES

pytestmark = pytest.mark.usefixtures("counting")

SIZES = (7, SMALL_BYTES // 4, SMALL_BYTES // 4 + 1, 100_000, 300_000)


def shown(kit: Any, value: Any, **options: Any) -> Any:
    """A value as the dump has it."""
    place = import_module(f"pytest_probe.capture.{kit.P.__name__}.values")
    taking = place.Values(read_config(None, dump_path="d", **options))
    seen = taking.take(value)
    taking.settle()
    text = json.encode(seen).replace(b"-Infinity", b'"-inf"').replace(b"Infinity", b'"inf"').replace(b"NaN,", b'"nan",')
    return json.decode(text)


def made(kit: Any, array: np.ndarray, dtype: str = "float32") -> Any:
    tensor = kit.tensor(array)
    return tensor.to(getattr(kit.P, dtype)) if kit.FRAMEWORK == "pytorch" else tensor.astype(dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16", "int8", "int64", "complex64"])
def test_statistics_are_numpys(kit: Any, dtype: str, size: int) -> None:
    array = np.arange(size) % 13 - 4.0
    found = shown(kit, made(kit, array, dtype))
    sizes = np.abs(array) if dtype == "complex64" else array
    assert (found["Max"], found["Min"], found["shape"]) == (sizes.max(), sizes.min(), [size])
    named = f"torch.{dtype}" if kit.FRAMEWORK == "pytorch" else dtype
    assert (found["type"], found["dtype"]) == (f"{kit.P.__name__}.Tensor", named)
    exact = kit.FRAMEWORK == "pytorch" and dtype != "complex64"
    assert found["Mean"] == (sizes.mean() if exact else pytest.approx(sizes.mean(), rel=1e-6))
    assert math.isclose(found["Norm"], np.linalg.norm(sizes), rel_tol=1e-6)
    assert not {"stride", "NaN"} & found.keys()


@pytest.mark.parametrize("size", SIZES)
def test_what_is_not_finite_is_counted(kit: Any, size: int) -> None:
    array = np.ones(size, np.float32)
    array[:4] = [math.nan, math.inf, -math.inf, 3.0]
    found = shown(kit, made(kit, array))
    assert [found[key] for key in ("Max", "Min", "Mean", "Norm")] == ["nan"] * 4
    assert [found[key] for key in ("NaN", "Inf", "Negative_inf")] == [1, 2, 1]
    assert (found["Max_except_inf_nan"], found["Min_except_inf_nan"]) == (3.0, 1.0)
    only = shown(kit, made(kit, np.full(size, -math.inf, np.float32)))
    assert (only["Max"], only["Norm"], only["Inf"]) == ("-inf", "inf", size)
    assert "Max_except_inf_nan" not in only


@pytest.mark.parametrize("size", SIZES)
def test_booleans_are_counted(kit: Any, size: int) -> None:
    mask = np.zeros(size, bool)
    mask[1:4] = True
    found = shown(kit, made(kit, mask, "bool"))
    assert [found[key] for key in ("Max", "Min", "True", "Mean", "Norm")] == [True, False, 3, None, None]
    assert shown(kit, made(kit, np.ones(size), "bool"))["Min"] is True


def test_scalars_empty_tensors_and_few_integers(kit: Any) -> None:
    assert shown(kit, kit.tensor(-2.5))["Norm"] == 2.5
    assert shown(kit, kit.P.zeros([0, 3]))["Max"] is None
    assert shown(kit, kit.tensor([3, 1, 2]))["values"] == [3, 1, 2]


@pytest.mark.parametrize("rows", [3, 300])
def test_views_lie_as_they_lie_and_the_checksum_is_of_their_elements(kit: Any, rows: int) -> None:
    array = np.arange(rows * 64, dtype=np.float32).reshape(rows, 64)
    found = shown(kit, made(kit, array)[:, ::2].t(), summary_mode="md5")
    assert list(found["stride"]) == [2, 64]
    assert (found["Max"], found["Min"]) == (rows * 64 - 2, 0.0)
    assert found["md5"] == f"{zlib.crc32(np.ascontiguousarray(array[:, ::2].T).tobytes()):08x}"


def test_arguments_of_python(kit: Any) -> None:
    assert shown(kit, [True, 3, 2.5, "mean", None, 1 - 2j, slice(1, None, 2), np.float32(2.5)]) == [
        *({"type": "bool", "value": True}, {"type": "int", "value": 3}, {"type": "float", "value": 2.5}),
        *({"type": "str", "value": "mean"}, None, {"type": "complex", "value": [1.0, -2.0]}),
        *({"type": "slice", "value": [1, None, 2]}, {"type": "float32", "value": 2.5}),
    ]
