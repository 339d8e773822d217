from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from pytest_probe.errors import RecordError
from pytest_probe.inputs import StoredTensors
from pytest_probe.model.dump import TensorSpec
from tests.support.tensor_files import safetensors, torch_zip

ENTRY, FIELD = "Functional.linear.0.forward", "input_args.1"


@pytest.fixture
def files(tmp_path: Path) -> StoredTensors:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    return StoredTensors(tmp_path / "dump.json", (tmp_path / "first", tmp_path / "second"))


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


@pytest.mark.parametrize("name", ["../a.npy", "/etc/passwd", "x/a.npy", "..", ".", "", "a\\b.npy", "a\0b"])
def test_only_bare_names_are_looked_up(files: StoredTensors, name: str) -> None:
    np.save(files.data_dirs[0] / "a.npy", np.ones(3, np.float32))
    assert "expected the bare name of a file next to the dump" in failure(files, spec(name))


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
    taken, empty = [], np.empty

    def noted(count: int, dtype: type) -> np.ndarray:
        taken.append(count)
        return empty(count, dtype)

    monkeypatch.setattr(np, "empty", noted)
    for key, array in arrays.items():
        wanted = TensorSpec(array.dtype.name, array.shape, data_name="a.safetensors", data_key=key)
        found = files.array(wanted, ENTRY, FIELD)
        assert found.tolist() == array.tolist()
        assert found.flags.writeable
    assert taken == [24, 8, 0]


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


def of_torch(files: StoredTensors, value: torch.Tensor) -> np.ndarray:
    return files.array(spec("a.pt", tuple(value.shape), str(value.dtype).removeprefix("torch.")), ENTRY, FIELD)


X = torch.arange(6.0).reshape(2, 3)
Z = torch.complex(X, X + 1)


@pytest.mark.parametrize(
    "value",
    [
        *(X, X.t(), X[1, 1:], X[:1, :1].expand(2, 2), X[:0], X[1, 2], torch.nn.Parameter(X), X[:, ::2]),
        *(X.to(torch.bfloat16), X.to(torch.float8_e5m2), X > 2, X.long(), X.to(torch.uint16)),
        *(Z, Z.conj(), Z.conj().imag, Z.t().conj(), torch.zeros(3).expand(1000, 3)),
    ],
    ids=str,
)
def test_a_file_of_torch_is_what_torch_reads(
    files: StoredTensors, monkeypatch: pytest.MonkeyPatch, value: torch.Tensor
) -> None:
    torch.save(value, files.data_dirs[0] / "a.pt")
    monkeypatch.delattr(torch, "load")
    found = of_torch(files, value)
    plain = value.detach().resolve_conj().resolve_neg()
    assert found.tolist() == (plain.tolist() if value.itemsize > 2 else plain.float().tolist())


def saved_with(files: StoredTensors, head: bytes, tail: bytes) -> None:
    """A file of the tensor [1, 2], of which the pickle calls a function with what comes behind its hooks."""
    storage = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\x000X\5\0\0\0npu:0K\2tQ"
    hooks = b"ccollections\nOrderedDict\n)R"
    pickled = b"\x80\x02c" + head + b"\n(" + storage + b"K\0K\2\x85K\1\x85\x89" + hooks + tail + b"tR."
    torch_zip(files.data_dirs[0] / "a.pt", pickled, {"0": np.array([1, 2], "<f4").tobytes()})


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        (b"torch._utils\n_rebuild_tensor_v2", b"}X\x0e\0\0\0npu_format_/ND\x88s"),
        (b"torch_npu.utils.storage\n_rebuild_npu_tensor", b"K\2"),
    ],
)
def test_what_another_device_writes_of_itself_is_passed_over(files: StoredTensors, head: bytes, tail: bytes) -> None:
    saved_with(files, head, tail)
    assert files.array(spec("a.pt", (2,)), ENTRY, FIELD).tolist() == [1, 2]


def test_a_tensor_may_be_larger_than_its_file(files: StoredTensors) -> None:
    value = torch.ones(1).expand(1 << 30)
    torch.save(value, files.data_dirs[0] / "a.pt")
    assert of_torch(files, value).strides == (0,)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": X}, "it holds a dict, not a tensor"),
        ([X], "it holds a list, not a tensor"),
        (3, "it holds a int, not a tensor"),
        (X.to_sparse(), "it names torch._utils._rebuild_sparse_tensor, which a stored tensor does not need"),
        (Path("a").touch, "it names __builtin__.getattr, which a stored tensor does not need"),
    ],
    ids=str,
)
def test_what_is_no_tensor(files: StoredTensors, value: object, message: str) -> None:
    torch.save(value, files.data_dirs[0] / "a.pt")
    assert f"which cannot be read ({message})" in failure(files, spec("a.pt"))


def test_a_file_in_the_format_before_1_6(files: StoredTensors) -> None:
    torch.save(X, files.data_dirs[0] / "a.pt", _use_new_zipfile_serialization=False)
    assert "(PyTorch before 1.6 wrote it, or torch.save in that format; load it and save it again)" in failure(
        files, spec("a.pt")
    )


@pytest.mark.parametrize("content", [b"x", b"PK\3\4", b"PK\5\6" + bytes(18), b"\x80\x02."])
def test_what_is_no_file_of_a_tensor(files: StoredTensors, content: bytes) -> None:
    (files.data_dirs[0] / "a.pt").write_bytes(content)
    assert "which cannot be read (" in failure(files, spec("a.pt"))
