from __future__ import annotations

import sys
from io import BytesIO
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


X = torch.arange(6.0).reshape(2, 3)
THREE = np.ones(3, np.float32)
NO_MEMORY = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"


def numpy_file(array: np.ndarray) -> bytes:
    written = BytesIO()
    np.save(written, array, allow_pickle=True)
    return written.getvalue()


def torch_file(value: object, **how: bool) -> bytes:
    written = BytesIO()
    torch.save(value, written, **how)
    return written.getvalue()


BEFORE_1_6 = {"_use_new_zipfile_serialization": False}
UNNEEDED = "which a stored tensor does not need"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *((name, None, "expected the bare name of a file next to the dump") for name in ("../a.npy", "/etc/passwd")),
        *((name, None, "expected the bare name of a file") for name in ("x/a.npy", "..", ".", "", "a\\b.npy", "a\0b")),
        ("gone.npy", None, "no file 'gone.npy' in {first}, {second}"),
        ("gone.npy", None, "--probe-inputs=generated"),
        ("a.npy", numpy_file(np.array([{}, 1], object)), "cannot be read"),
        ("a.npy", b"rubbish", "cannot be read"),
        ("a.npy", b"", "a.npy, which is empty, expected a stored tensor"),
        ("a.npy", b"\x93NUMPY\x01\x00" + len(NO_MEMORY).to_bytes(2, "little") + NO_MEMORY, "cannot be read"),
        ("a.npy", numpy_file(THREE[:2]), "found shape (2,)"),
        ("a.npy", numpy_file(THREE.astype(np.float64)), "found dtype float64"),
        ("a.npy", numpy_file(THREE.astype(np.int32)), "found dtype int32"),
        *(("a.pt", each, "cannot be read (") for each in (b"x", b"PK\3\4", b"PK\5\6" + bytes(18), b"\x80\x02.")),
        ("a.pt", torch_file({"a": X}), "which cannot be read (it holds a dict, not a tensor)"),
        ("a.pt", torch_file([X]), "which cannot be read (it holds a list, not a tensor)"),
        ("a.pt", torch_file(3), "which cannot be read (it holds a int, not a tensor)"),
        ("a.pt", torch_file(X.to_sparse()), f"it names torch._utils._rebuild_sparse_tensor, {UNNEEDED}"),
        ("a.pt", torch_file(Path("a").touch), f"it names __builtin__.getattr, {UNNEEDED}"),
        (
            "a.pt",
            torch_file(X, **BEFORE_1_6),
            "(PyTorch before 1.6 wrote it, or torch.save in that format; ",
        ),
    ],
)
def test_what_is_no_such_tensor_is_refused(
    files: StoredTensors, name: str, content: bytes | None, message: str
) -> None:
    first, second = files.data_dirs
    (first / "a.npy" if content is None else first / name).write_bytes(
        numpy_file(THREE) if content is None else content
    )
    assert message.format(first=first, second=second) in failure(files, spec(name))


def test_a_file_far_too_large_is_not_opened(files: StoredTensors) -> None:
    with (files.data_dirs[0] / "a.pt").open("wb") as file:
        file.truncate((1 << 20) + 4 * 12 + 1)
    assert f"a file of {(1 << 20) + 49} bytes" in failure(files, spec("a.pt"))


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
