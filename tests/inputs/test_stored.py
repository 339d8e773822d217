from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

import ml_dtypes
import numpy as np
import pytest
import torch

from pytest_probe.errors import RecordError
from pytest_probe.inputs import StoredTensors
from pytest_probe.model.dump import TensorSpec
from tests.support.tensor_files import safetensors

ENTRY, FIELD = "Functional.linear.0.forward", "input_args.1"


@pytest.fixture
def files(tmp_path: Path) -> StoredTensors:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    return StoredTensors(tmp_path / "dump.json", (tmp_path / "first", tmp_path / "second"), refuse)


def refuse(file: Path | BinaryIO) -> np.ndarray:
    raise ValueError("not one of ours")


def spec(name: str | None, shape: tuple[int, ...] = (3,), dtype: str = "float32") -> TensorSpec:
    return TensorSpec(dtype, shape, data_name=name)


def failure(files: StoredTensors, wanted: TensorSpec) -> str:
    with pytest.raises(RecordError) as caught:
        files.array(wanted, ENTRY, FIELD)
    assert str(caught.value).startswith(f"{files.dump_path}: {ENTRY}: {FIELD}: found ")
    return str(caught.value)


def test_folders_are_looked_in_in_order(files: StoredTensors) -> None:
    np.save(files.data_dirs[1] / "a.npy", np.full(3, 2, np.float32))
    assert files.array(spec("a.npy"), ENTRY, FIELD).tolist() == [2, 2, 2]
    np.save(files.data_dirs[0] / "a.npy", np.full(3, 1, np.float32))
    assert files.array(spec("a.npy"), ENTRY, FIELD).tolist() == [1, 1, 1]


@pytest.mark.parametrize("shape", [(), (0, 2), (2, 2)])
def test_any_shape_is_read_and_may_be_written_to(files: StoredTensors, shape: tuple[int, ...]) -> None:
    np.save(files.data_dirs[0] / "a.npy", np.ones(shape, np.float32))
    array = files.array(spec("a.npy", shape), ENTRY, FIELD)
    array[...] = 2
    assert array.shape == shape


def test_a_large_file_is_read_into_its_array(files: StoredTensors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[StoredTensors.__module__], "_READ", 1)
    for order in ("C", "F"):
        values = np.array([[1, 2, 3], [4, 5, 6]], np.float32, order=order)
        np.save(files.data_dirs[0] / "a.npy", values)
        array = files.array(spec("a.npy", (2, 3)), ENTRY, FIELD)
        assert array.tolist() == values.tolist()
        array[...] = 0
        assert np.load(files.data_dirs[0] / "a.npy").tolist() == values.tolist()


def test_other_files_go_through_the_framework(files: StoredTensors) -> None:
    path = files.data_dirs[0] / "a.pt"
    path.write_bytes(b"x")
    asked: list[Path] = []

    def load(file: Path | BinaryIO) -> np.ndarray:
        assert isinstance(file, Path)
        asked.append(file)
        return np.zeros(3, np.float32)

    StoredTensors(files.dump_path, files.data_dirs, load).array(spec("a.pt"), ENTRY, FIELD)
    assert asked == [path]
    assert "not one of ours" in failure(files, spec("a.pt"))


@pytest.mark.parametrize("name", ["../a.npy", "/etc/passwd", "x/a.npy", "..", ".", "", "a\\b.npy", "a\0b"])
def test_only_bare_names_are_looked_up(files: StoredTensors, name: str) -> None:
    np.save(files.data_dirs[0] / "a.npy", np.ones(3, np.float32))
    assert "expected the bare name of a file beside the dump" in failure(files, spec(name))


def test_a_missing_file_says_where_it_was_looked_for_and_what_to_do(files: StoredTensors) -> None:
    message = failure(files, spec("gone.npy"))
    assert f"no file 'gone.npy' in {files.data_dirs[0]}, {files.data_dirs[1]}" in message
    assert "--probe-inputs=generated" in message


def test_a_file_far_too_large_is_not_opened(files: StoredTensors) -> None:
    with (files.data_dirs[0] / "a.pt").open("wb") as file:
        file.truncate((1 << 20) + 4 * 12 + 1)
    assert f"a file of {(1 << 20) + 49} bytes" in failure(files, spec("a.pt"))


def test_a_header_that_promises_too_much_takes_no_memory(files: StoredTensors) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
    path = files.data_dirs[0] / "a.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    assert "cannot be read" in failure(files, spec("a.npy"))


def test_pickles_and_rubbish_are_refused(files: StoredTensors) -> None:
    np.save(files.data_dirs[0] / "a.npy", np.array([{}, 1], object), allow_pickle=True)
    assert "cannot be read" in failure(files, spec("a.npy"))
    (files.data_dirs[0] / "b.npy").write_bytes(b"rubbish")
    assert "cannot be read" in failure(files, spec("b.npy"))
    (files.data_dirs[0] / "c.npy").write_bytes(b"")
    assert "c.npy, which is empty, expected a stored tensor" in failure(files, spec("c.npy"))


def test_shape_and_dtype_must_be_those_of_the_record(files: StoredTensors) -> None:
    np.save(files.data_dirs[0] / "a.npy", np.ones(3, np.float32))
    assert "found shape (3,)" in failure(files, spec("a.npy", (1, 3)))
    assert "found dtype float32" in failure(files, spec("a.npy", dtype="float64"))
    assert "found dtype float32" in failure(files, spec("a.npy", dtype="int32"))


def test_bfloat16_in_numpy_files_is_raw_or_widened(files: StoredTensors) -> None:
    values = np.array([1.5, -2.0, np.nan], ml_dtypes.bfloat16)
    np.save(files.data_dirs[0] / "raw.npy", values.view("V2"))
    np.save(files.data_dirs[0] / "wide.npy", values.astype(np.float32))
    for name in ("raw.npy", "wide.npy"):
        array = files.array(spec(name, dtype="bfloat16"), ENTRY, FIELD)
        assert array.dtype == ml_dtypes.bfloat16
        assert array.view(np.uint16).tolist() == values.view(np.uint16).tolist()
    np.save(files.data_dirs[0] / "finer.npy", np.array([1.0001, 0, 0], np.float32))
    assert "found dtype float32" in failure(files, spec("finer.npy", dtype="bfloat16"))


def test_of_a_file_of_many_tensors_one_is_read(files: StoredTensors, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays: dict[str, np.ndarray] = {
        "a/\0": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array(7, np.int64),
        "c": np.ones((0, 2), bool),
    }
    (files.data_dirs[0] / "a.safetensors").write_bytes(safetensors(**arrays))
    read, whole = [], np.fromfile

    def noted(file: BinaryIO, dtype: type, count: int) -> np.ndarray:
        read.append(count)
        return whole(file, dtype, count)

    monkeypatch.setattr(np, "fromfile", noted)
    for key, array in arrays.items():
        wanted = TensorSpec(array.dtype.name, array.shape, data_name="a.safetensors", data_key=key)
        found = files.array(wanted, ENTRY, FIELD)
        assert found.tolist() == array.tolist()
        assert found.flags.writeable
    assert read == [24, 8, 0]


def test_one_of_a_file_of_torch_lies_in_order(files: StoredTensors) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    values = {
        "t": x.t(),
        "row": x[1, 1:],
        "e": x[:1, :1].expand(2, 2),
        "h": x.to(torch.bfloat16),
        "f8": x.to(torch.float8_e5m2),
    }
    torch.save(values, files.data_dirs[0] / "a.pt")
    for key, value in values.items():
        dtype = str(value.dtype).removeprefix("torch.")
        found = files.array(TensorSpec(dtype, tuple(value.shape), data_name="a.pt", data_key=key), ENTRY, FIELD)
        assert found.dtype.name == dtype
        assert found.flags.c_contiguous
        assert found.astype(np.float32).tolist() == value.float().tolist()


def test_one_of_many_that_cannot_be_had(files: StoredTensors) -> None:
    path = files.data_dirs[0] / "a.safetensors"
    path.write_bytes(safetensors(a=np.ones(3, np.float32)))

    def wanted(key: str, shape: tuple[int, ...] = (3,), dtype: str = "float32") -> TensorSpec:
        return TensorSpec(dtype, shape, data_name=path.name, data_key=key)

    assert f"shape (3,) in {path}, expected shape (4,)" in failure(files, wanted("a", (4,)))
    assert f"dtype float32 in {path}, expected float64" in failure(files, wanted("a", dtype="float64"))
    assert f"{path}, which cannot be read ('b')" in failure(files, wanted("b"))
    path.write_bytes(b"no")
    assert f"{path}, which cannot be read (its header is cut off" in failure(files, wanted("a"))
