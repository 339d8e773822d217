from __future__ import annotations

import codecs
import io
import pickle
import pickletools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_probe.errors import RecordError
from pytest_probe.inputs import StoredTensors
from pytest_probe.model.dump import TensorSpec
from pytest_probe.system.tensor_files.paddle_pickle import OtherValue, load_named, load_outputs
from pytest_probe.system.tensor_files.paddle_pickle import load as load_file
from tests.support.paddle_dumps import unpack_real, write_tensor


def load(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        return load_file(file)


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)),
        np.array(2.5, np.float16),
        np.zeros((0, 3), np.int64),
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
        np.array([1, 2], ">i4"),
        np.arange(4, dtype=np.uint16),
        np.array([-1, 2], np.int8),
    ],
    ids=str,
)
def test_arrays_come_back(tmp_path: Path, array: np.ndarray, protocol: int) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(pickle.dumps(("a name", array), protocol=protocol))
    found = load(path)
    assert (found.dtype, found.shape) == (array.dtype.newbyteorder("="), array.shape)
    assert found.tolist() == array.tolist()
    assert found.flags.writeable


def test_real_files(tmp_path: Path) -> None:
    folder = unpack_real(tmp_path).parent
    found = {path.name: load(path) for path in folder.glob("*.pt")}
    assert len(found) == 41
    assert found["paddle.add*0.0.pt"].tolist() == 1.5
    assert found["paddle.reshape*0.1.pt"].dtype == np.int64
    assert found["paddle.concat*1.0.pt"].dtype == np.float16


def test_the_name_that_numpy_1_writes(tmp_path: Path) -> None:
    path = write_tensor(tmp_path / "a.pt", np.arange(3))
    old = path.read_bytes().replace(b"\x8c\x16numpy._core.multiarray", b"\x8c\x15numpy.core.multiarray")
    # A pickle's frame tells its length; without it nothing does.
    path.write_bytes(old[:2] + old[11:])
    assert load(path).tolist() == [0, 1, 2]


class _Calls:
    """Pickles as a call."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


class _Outside(pickle.Pickler):
    def persistent_id(self, obj: Any) -> str | None:
        return "x" if isinstance(obj, np.ndarray) else None


def _outside() -> bytes:
    buffer = io.BytesIO()
    _Outside(buffer, protocol=4).dump(("a", np.zeros(3)))
    return buffer.getvalue()


def _state(shape: tuple[int, ...], data: bytes) -> bytes:
    return pickle.dumps(("a", _State(shape, data)), protocol=4)


class _State:
    def __init__(self, shape: tuple[int, ...], data: bytes) -> None:
        self.state = (1, shape, np.dtype("f4"), False, data)

    def __reduce__(self) -> tuple[Any, ...]:
        return (*np.zeros(1).__reduce__()[:2], self.state)


def _system(command: str) -> bytes:
    import os

    return pickle.dumps(("a", _Calls(os.system, command)), protocol=4)


DATES = pickle.dumps(("a", np.zeros(2, "M8[s]")), protocol=4)
OLD_NUMPY = any(code.name == "EMPTY_DICT" for code, _, _ in pickletools.genops(DATES))
HOSTILE = {
    "protocol 5": (
        pickle.dumps(("a", np.zeros(3)), protocol=5),
        "its pickle has the instruction BYTEARRAY8, which a stored",
    ),
    "nothing": (b"", "it is cut, or no pickle of a tensor: pickle exhausted before seeing STOP"),
    "text": (b"hello", "its pickle has the instruction LIST, which a stored"),
    "cut": (pickle.dumps(("a", np.zeros(100)), protocol=4)[:-50], "it is cut, or no pickle of a tensor: "),
    "eval": (pickle.dumps(("a", _Calls(eval, "1/0")), protocol=4), "it names builtins.eval, which a stored tensor"),
    "file": (
        pickle.dumps(("a", _Calls(open, "x", "w")), protocol=4),
        f"it names {open.__module__}.open, which a stored tensor does not",
    ),
    "tuple": (pickle.dumps(("a", 3), protocol=4), "it holds something else than a name and an array"),
    "one": (pickle.dumps(np.zeros(3), protocol=4), "it holds something else than a name and an array"),
    "list": (pickle.dumps(["a", np.zeros(3)], protocol=4), "its pickle has the instruction EMPTY_LIST, which a stored"),
    "objects": (pickle.dumps(("a", np.array([None])), protocol=4), "its pickle has the instruction EMPTY_LIST, which"),
    "text array": (pickle.dumps(("a", np.array(["x"])), protocol=4), "its array is not of numbers"),
    "fields": (pickle.dumps(("a", np.zeros(2, "f4,i4")), protocol=4), "its pickle has the instruction "),
    "dates": (DATES, "its pickle has the instruction EMPTY_DICT" if OLD_NUMPY else "its array is not of numbers"),
    "outside": (_outside(), "its pickle has the instruction BINPERSID, which a stored tensor does not need"),
    "larger": (_state((10**12,), b"1234"), "its array has not as many bytes as its shape says"),
    "negative": (_state((-1,), b"1234"), "its array has no shape"),
    "memo": (b"\x80\x04r" + struct.pack("<I", 2**31) + b".", "its pickle has the instruction LONG_BINPUT, which"),
    "many": (b"\x80\x04" + b"N" * 1000 + b".", "its pickle has more than 500 instructions, which no stored tensor has"),
    "no state": (b"\x80\x04\x8c\x01a\x8c\x05numpy\x8c\x07ndarray\x93)R\x86.", "its array has no state"),
    "changed": (
        # BUILD on the class itself, which would change what later files get.
        b"\x80\x04\x8c\x01a\x8c\x05numpy\x8c\x07ndarray\x93\x8c\x01xb\x86.",
        "it is no pickle of a tensor (TypeError)",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_stored_tensor_is_refused(tmp_path: Path, name: str) -> None:
    content, message = HOSTILE[name]
    path = tmp_path / "a.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared below
        load(path)
    assert str(caught.value).startswith(message)


def test_a_file_that_names_a_function_runs_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made"
    path = tmp_path / "a.pt"
    path.write_bytes(_system(f"touch {made}"))
    with pytest.raises(ValueError, match=r"it names posix\.system, which a stored tensor does not need"):
        load(path)
    assert not made.exists()
    files = StoredTensors(tmp_path / "dump.json", (tmp_path,), fields={"input": "args"})
    with pytest.raises(RecordError) as caught:
        files.array(TensorSpec("float32", (3,), data_name="a.pt"), *files.place("paddle.add.0", "input.1"))
    start = f"{tmp_path / 'dump.json'}: paddle.add.0.forward: args.1: found {path}, which cannot be read (it names"
    assert str(caught.value).startswith(start)


def test_bfloat16_lies_there_as_integers(tmp_path: Path) -> None:
    values = np.array([1.5, -2.25, 0], ml_dtypes.bfloat16)
    write_tensor(tmp_path / "a.pt", values.view(np.uint16))
    files = StoredTensors(tmp_path / "dump.json", (tmp_path,))
    found = files.array(TensorSpec("bfloat16", (3,), data_name="a.pt"), "paddle.add.0.forward", "args.0")
    assert found.dtype == ml_dtypes.bfloat16
    assert found.tolist() == [1.5, -2.25, 0]
    for dtype in ("float16", "float32", "int16"):
        with pytest.raises(RecordError, match=f"found dtype uint16 in .*, expected {dtype} as recorded"):
            files.array(TensorSpec(dtype, (3,), data_name="a.pt"), "paddle.add.0.forward", "args.0")


def test_a_file_of_another_shape(tmp_path: Path) -> None:
    write_tensor(tmp_path / "a.pt", np.zeros((2, 3), np.float32))
    files = StoredTensors(tmp_path / "dump.json", (tmp_path,))
    with pytest.raises(RecordError, match=r"args\.0: found shape \(2, 3\) in .*, expected shape \(3, 2\) as recorded"):
        files.array(TensorSpec("float32", (3, 2), data_name="a.pt"), "paddle.add.0.forward", "args.0")


_WHOLE = pickle.dumps(("a name", np.arange(6, dtype=np.float32).reshape(2, 3)), protocol=4)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=80)
    | st.builds(
        lambda at, bytes_: _WHOLE[:at] + bytes_ + _WHOLE[at + 1 :], st.integers(0, len(_WHOLE)), st.binary(max_size=3)
    )
)
def test_any_bytes_are_an_array_or_no_tensor(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(content)
    found = _loaded(path)
    assert found is None or found.size * found.itemsize == found.nbytes


def _loaded(path: Path) -> np.ndarray | None:
    try:
        return load(path)
    except ValueError:
        return None


def _tensor(array: np.ndarray) -> tuple[str, np.ndarray]:
    return ("eager_tmp_0", array)


def _kept(path: Path, content: Any, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", [2, 4])
def test_the_outputs_of_a_call(tmp_path: Path, protocol: int) -> None:
    one = load_outputs(_kept(tmp_path / "one", [True, _tensor(np.arange(3, dtype=np.float32))]))
    assert (one.bfloat16, one.several, one.values[0].tolist()) == (True, False, [0, 1, 2])
    assert not one.values[0].flags.writeable
    tensors = [_tensor(np.full(4, number, np.int64)) for number in range(300)]
    several = load_outputs(_kept(tmp_path / "several", [False, tensors], protocol))
    assert (several.bfloat16, several.several) == (False, True)
    assert [value[0] for value in several.values] == list(range(300))
    numbers = load_outputs(_kept(tmp_path / "numbers", [False, [None, True, 3, 2.5, "x", np.float32(1), [1]]]))
    assert numbers.values == (None, True, 3, 2.5, "x", OtherValue("scalar of NumPy's"), OtherValue("list"))
    (scalar,) = load_outputs(_kept(tmp_path / "scalar", [False, ("eager_tmp_0", np.float32(1))], protocol)).values
    assert scalar == OtherValue("scalar of NumPy's")
    assert load_outputs(_kept(tmp_path / "none", [False, []])).values == ()


def test_a_dictionary_of_tensors(tmp_path: Path) -> None:
    named = {"actual.output.0": np.eye(2, dtype=np.float32), "StructuredToParameterName@@": {"actual.output.0": "e"}}
    found = load_named(_kept(tmp_path / "a.pt", named))
    assert list(found) == ["actual.output.0"]
    assert found["actual.output.0"].tolist() == [[1, 0], [0, 1]]
    with pytest.raises(ValueError, match="it holds no dictionary of tensors"):
        load_named(_kept(tmp_path / "a.pt", [1]))


OUTPUTS = {
    "eval": ([False, _Calls(eval, "1/0")], "it names builtins.eval, which a stored tensor"),
    "bytes": ([False, _Calls(codecs.encode, "x", "rot13")], "it holds bytes that are no text"),
    "no flag": ([_tensor(np.zeros(2))], "it holds something else than a flag and outputs"),
    "tensor": (_tensor(np.zeros(2)), "it holds something else than a flag and outputs"),
    "objects": ([False, _tensor(np.array([None]))], "its array is not of numbers"),
    "many": ([False, [None] * 70_000], "its pickle has more than 65536 instructions"),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_are_no_outputs_is_refused(tmp_path: Path, name: str) -> None:
    content, message = OUTPUTS[name]
    with pytest.raises(ValueError, match=message):
        load_outputs(_kept(tmp_path / "a", content))


def test_outputs_that_are_cut_or_promise_more_than_they_hold(tmp_path: Path) -> None:
    path = tmp_path / "a"
    small, large = (_kept(path, [False, _tensor(np.zeros(size))]).read_bytes() for size in (100, 1 << 16))
    cut = [small[:-50], *(large[:size] for size in (len(large) - 1, len(large) - 100, 1 << 17, 300))]
    for content in (*cut, b"\x80\x04\x8e" + struct.pack("<Q", 2**45) + b"abc."):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="it is cut, or no pickle of a tensor"):
            load_outputs(path)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_large_outputs(tmp_path: Path, protocol: int) -> None:
    """Sizes around that from which on bytes lie outside a pickle's frames."""
    sizes = [(1 << 16) + more for more in (-1, 0, 1)]
    arrays = [np.arange(size, dtype=np.uint32).astype(np.uint8) for size in sizes]
    path = _kept(tmp_path / "a", [False, [*map(_tensor, arrays), 3, _tensor(arrays[1])]], protocol)
    *found, number, again = load_outputs(path).values
    path.unlink()
    assert number == 3
    for array, wanted in zip((*found, again), (*arrays, arrays[1]), strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_a_class_of_the_reader_keeps_its_attributes(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\x80\x04\x8c\x16numpy._core.multiarray\x8c\x06scalar\x93N}\x8c\x01xK\x01s\x86b.")
    with pytest.raises(ValueError, match=r"it is no pickle of a tensor \(TypeError\)"):
        load_outputs(path)
