from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_probe.errors import RecordError, Unsupported
from pytest_probe.model.dump import DtypeSpec, SizeSpec, TensorSpec
from pytest_probe.model.run import Array, Leaf
from tests.inputs.conftest import Build

NORMAL = TensorSpec("float32", (4, 25), 2.5, -2.25, 0.05, 10.0)


def test_tensors_become_leaves_and_all_else_stays(arguments: Build) -> None:
    marked = TensorSpec("float32", (2,), 1.0, 0.0, requires_grad=True)
    size, dtype = SizeSpec((2, 3)), DtypeSpec("float32")
    made = arguments([marked, (NORMAL, None)], size, slice(1, 2), kwargs={"dtype": dtype, "d": {"x": NORMAL}})
    assert isinstance(made.args[0], list)
    assert isinstance(made.args[0][1], tuple)
    assert made.args[0][0].requires_grad
    assert not made.args[0][1][0].requires_grad
    assert made.args[0][1][1] is None
    assert made.args[1:] == (size, slice(1, 2))
    assert made.kwargs["dtype"] is dtype
    assert isinstance(made.kwargs["d"]["x"], Leaf)
    assert made.gradients is None


def test_the_values_are_pinned(arguments: Build) -> None:
    """A change of the streams changes every result that users compare: it is never an accident."""
    made = arguments(TensorSpec("float64", (3,)), TensorSpec("int64", (4,), 1000, 0))
    assert made.args[0].array.tolist() == [1.0587720044775493, 0.6327536838447926, 1.5823844644768286]
    assert made.args[1].array.tolist() == [553, 679, 0, 1000]


def test_every_dtype_rounds_the_same_values(arguments: Build) -> None:
    wide = arguments(NORMAL, dtype="float64").args[0].array
    assert wide.dtype == np.float64
    for name in ("float32", "float16", "bfloat16"):
        narrow = arguments(NORMAL, dtype=name).args[0].array
        assert narrow.dtype == np.dtype(getattr(ml_dtypes, name, name))
        assert np.array_equal(narrow, wide.astype(narrow.dtype))
    assert np.array_equal(arguments(NORMAL).args[0].array, wide.astype(np.float32))


def test_a_dtype_is_for_floats_and_complex_of_its_width(arguments: Build) -> None:
    specs = [TensorSpec(dtype, (3,)) for dtype in ("int32", "bool", "complex64", "complex128", "float8_e5m2")]

    def dtypes(dtype: str) -> list[str]:
        return [leaf.array.dtype.name for leaf in arguments(*specs, dtype=dtype).args]

    assert dtypes("float64") == ["int32", "bool", "complex128", "complex128", "float64"]
    assert dtypes("float32") == ["int32", "bool", "complex64", "complex64", "float32"]
    assert dtypes("bfloat16") == ["int32", "bool", "complex64", "complex128", "bfloat16"]


def test_a_stream_depends_on_record_path_and_seed_alone(arguments: Build) -> None:
    alone = arguments("text", NORMAL).args[1].array
    gradients = arguments(gradients=(None, NORMAL)).gradients
    assert gradients is not None
    assert gradients[1] is not None
    assert np.array_equal(arguments(NORMAL, NORMAL, kwargs={"a": NORMAL}).args[1].array, alone)
    assert np.array_equal(arguments(1, NORMAL, api="Functional.relu").args[1].array, alone)
    for other in (
        arguments(NORMAL).args[0],
        arguments(1, NORMAL, seed=1).args[1],
        arguments(1, NORMAL, record="Torch.exp.1").args[1],
        arguments(kwargs={"1": NORMAL}).kwargs["1"],
        arguments(1, [NORMAL]).args[1][0],
        gradients[1],
    ):
        assert abs(np.corrcoef(other.array.reshape(-1), alone.reshape(-1))[0, 1]) < 0.4


def test_gradients_are_built_and_cast(arguments: Build) -> None:
    made = arguments(NORMAL, gradients=(None, NORMAL), dtype="float16").gradients
    assert made is not None
    assert made[0] is None
    assert made[1] is not None
    assert (made[1].array.dtype, made[1].array.shape) == (np.dtype(np.float16), (4, 25))


def stored(name: str | None) -> TensorSpec:
    return TensorSpec("float32", (2, 2), 1.0, 1.0, data_name=name)


def test_auto_takes_what_is_stored_and_generates_the_rest(arguments: Build, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    values = np.array([[1, 2], [3, 1e5]], np.float32)
    np.save(tmp_path / "data" / "x.npy", values)
    made = arguments(stored("x.npy"), NORMAL, kind="auto")
    assert np.array_equal(made.args[0].array, values)
    assert np.array_equal(made.args[1].array, arguments(0, NORMAL).args[1].array)
    assert np.isinf(arguments(stored("x.npy"), kind="auto", dtype="float16").args[0].array[1, 1])
    assert arguments(stored("x.npy")).args[0].array[1, 1] == 1.0
    written = TensorSpec("int16", (2, 2), 900, 3, values=(3, 900, 4, 5))  # in the dump itself
    found = arguments(written, kind="auto").args[0].array
    assert (found.dtype.name, found.tolist()) == ("int16", [[3, 900], [4, 5]])
    assert arguments(written).args[0].array.tolist() != found.tolist()


def test_an_array_stays_one(arguments: Build) -> None:
    spec = TensorSpec("float32", (4, 25), 2.5, -2.25, 0.05, 10.0, ndarray=True)
    tensor, array = arguments(NORMAL).args[0], arguments(spec, dtype="bfloat16").args[0]
    assert type(array) is Array
    assert array.array.dtype == np.float32
    assert np.array_equal(array.array, tensor.array)


def test_stored_without_a_file_name_is_a_skip(arguments: Build) -> None:
    with pytest.raises(Unsupported, match=r"Torch.exp.0.backward: input.1: no tensor was stored") as caught:
        arguments(gradients=(None, NORMAL), kind="stored")
    assert caught.value.kind == "no stored tensors"


@pytest.mark.parametrize(
    ("call", "where"),
    [
        ({"kwargs": {"mask": TensorSpec("quint8", (2,))}}, r"Torch.exp.0.forward: input_kwargs.mask.dtype"),
        ({"gradients": (TensorSpec("quint8", (2,)),)}, r"Torch.exp.0.backward: input.0.dtype"),
    ],
)
def test_an_unknown_dtype_names_its_field(arguments: Build, call: dict[str, Any], where: str) -> None:
    with pytest.raises(RecordError, match=where + ": found 'quint8'"):
        arguments(**call)
