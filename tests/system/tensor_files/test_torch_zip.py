from __future__ import annotations

import pickle
import re
import tracemalloc
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_probe.system.tensor_files import NamedTensors, StoredTensor, stored_tensors
from pytest_probe.system.tensor_files.torch_zip import is_dictionary
from tests.support.tensor_files import torch_zip

X = torch.arange(6.0).reshape(2, 3)
# A tensor of two float32 in the storage "0", as torch writes it: offset, shape and stride follow.
_STORAGE = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\x000X\3\0\0\0cpuK\2tQ"


def _saved(path: Path, value: Any) -> NamedTensors:
    torch.save(value, path)
    return stored_tensors(path)


def _pickle(*tensors: bytes) -> bytes:
    body = b"".join(
        b"X\1\0\0\0%dctorch._utils\n_rebuild_tensor_v2\n(%s%s\x89}tR" % (i, _STORAGE, each)
        for i, each in enumerate(tensors)
    )
    return b"\x80\x02}(" + body + b"u."


def _written(path: Path, pickled: bytes, storage: bytes = bytes(8), **more: bytes) -> NamedTensors:
    return stored_tensors(torch_zip(path, pickled, {"0": storage}, **more))


def _values(path: Path, tensor: StoredTensor, dtype: str = "float32") -> list[float]:
    count = tensor.span * getattr(torch, dtype).itemsize
    data = path.read_bytes()[tensor.start : tensor.start + count]
    return torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype)).tolist()


def test_names_are_dotted(tmp_path: Path) -> None:
    found = _saved(
        tmp_path / "a.pt", {"a.b": X, "c": {"d": [X, (X,)]}, 7: X, "n": 3, "t": "x", "s": torch.Size([1]), "e": {}}
    )
    assert [*found.tensors] == ["a.b", "c.d.0", "c.d.1.0", "7"]
    assert found.others == ("n", "t", "s")
    assert found.damage == ()


def test_a_tensor_lies_in_its_storage(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    found = _saved(
        path, {"x": X, "row": X[1], "turned": X.t(), "wide": X[:1, :1].expand(4, 5), "none": X[:0], "one": X[1, 2]}
    )
    assert {name: (t.shape, t.stride) for name, t in found.tensors.items()} == {
        "x": ((2, 3), None),
        "row": ((3,), None),
        "turned": ((3, 2), (1, 3)),
        "wide": ((4, 5), (0, 0)),
        "none": ((0, 3), None),
        "one": ((), None),
    }
    values = {name: _values(path, tensor) for name, tensor in found.tensors.items() if tensor.span}
    assert values == {"x": [0, 1, 2, 3, 4, 5], "row": [3, 4, 5], "turned": [0, 1, 2, 3, 4, 5], "wide": [0], "one": [5]}


def test_every_dtype_is_known(tmp_path: Path) -> None:
    names = [
        *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16"),
        *("float32", "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"),
    ]
    path = tmp_path / "a.pt"
    found = _saved(path, {name: torch.ones(3).to(getattr(torch, name)) for name in names})
    assert {name: tensor.dtype for name, tensor in found.tensors.items()} == {name: name for name in names}
    assert _values(path, found.tensors["bfloat16"], "bfloat16") == [1, 1, 1]


def test_a_state_and_its_parameters(tmp_path: Path) -> None:
    found = _saved(tmp_path / "a.pt", torch.nn.Sequential(torch.nn.Linear(2, 3)).state_dict())
    assert [*found.tensors] == ["0.weight", "0.bias"]
    found = _saved(tmp_path / "b.pt", OrderedDict(p=torch.nn.Parameter(X)))
    assert found.tensors["p"].shape == (2, 3)


def test_a_tensor_may_have_attributes(tmp_path: Path) -> None:
    marked, parameter = X.clone(), torch.nn.Parameter(X)
    marked.layer = parameter.layer = 3  # type: ignore[attr-defined]
    found = _saved(tmp_path / "a.pt", {"x": marked, "p": parameter})
    assert {name: tensor.shape for name, tensor in found.tensors.items()} == {"x": (2, 3), "p": (2, 3)}


def test_what_torch_computes_when_it_reads_is_written_down(tmp_path: Path) -> None:
    z = torch.ones(2, dtype=torch.complex64)
    found = _saved(tmp_path / "a.pt", {"x": X, "conj": z.conj(), "neg": z.clone().conj().imag}).tensors
    assert [tensor.views for tensor in found.values()] == [(), ("conj",), ("neg",)]


def test_more_names_than_a_byte_counts(tmp_path: Path) -> None:
    names = [f"layer.{number}" for number in range(1000)]
    assert [*_saved(tmp_path / "a.pt", {name: X.clone() for name in names}).tensors] == names


@pytest.mark.parametrize(
    ("value", "known"), [({"x": X}, True), ({}, True), (OrderedDict(x=X), True), (X, False), ([X], False), (3, False)]
)
def test_a_dictionary_is_known_by_its_beginning(tmp_path: Path, value: Any, known: bool) -> None:
    torch.save(value, tmp_path / "a.pt")
    assert is_dictionary((tmp_path / "a.pt").read_bytes()) == known


def test_another_zip_is_none(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("dump/data.pkl", b"\x80\x02}." * 9)
    assert not is_dictionary((tmp_path / "a.zip").read_bytes())
    assert not is_dictionary(b"PK\3\4")
    assert not is_dictionary(b"")


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (b"K\1K\2\x85K\1\x85", "it ends at element 3 of a storage of 2"),
        (b"K\0K\2\x85K\2\x85", "it ends at element 3 of a storage of 2"),
        (b"K\0J\0\0\0\x40\x85K\0\x85", "it has 4,294,967,296 bytes, more than a file of"),
        (b"K\0(" + b"K\1" * 65 + b"t(" + b"K\1" * 65 + b"t", "it has 65 dimensions, expected at most 64"),
    ],
)
def test_a_tensor_that_cannot_be_had_leaves_the_others(tmp_path: Path, own: bytes, message: str) -> None:
    found = _written(tmp_path / "a.pt", _pickle(b"K\0K\2\x85K\1\x85", own))
    assert [*found.tensors] == ["0"]
    (damage,) = found.damage
    assert damage.startswith(f"1: {message}")


def test_a_storage_must_be_there_as_it_is(tmp_path: Path) -> None:
    good = _pickle(b"K\0K\2\x85K\1\x85")
    assert _written(tmp_path / "a.pt", good, bytes(7)).damage == ("0: it ends at element 2 of a storage of 1",)
    found = stored_tensors(torch_zip(tmp_path / "b.pt", good))
    assert found.damage == ("0: its storage 0 is not there, or is packed",)
    with zipfile.ZipFile(tmp_path / "c.pt", "w") as file:
        file.writestr("a/data.pkl", good)
        file.writestr("a/data/0", bytes(1 << 20), zipfile.ZIP_DEFLATED)
    assert stored_tensors(tmp_path / "c.pt").damage == ("0: its storage 0 is not there, or is packed",)


def _nested(depth: int) -> bytes:
    return b"\x80\x02" + b"}X\1\0\0\0a" * depth + b"}" + b"s" * depth + b"."


# A list that holds the list before it ten times, nine times over.
_REPEATED = (
    b"\x80\x02}(X\1\0\0\0a](K\1K\1eq\0"
    + b"".join(b"X\1\0\0\0%d](%seq%c" % (i, b"h%c" % i * 10, i + 1) for i in range(9))
    + b"u."
)


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (pickle.dumps({"x": print}, 2), "it names __builtin__.print, which a stored tensor does not need"),
        (
            b"\x80\x02}X\1\0\0\0acos\nsystem\n(X\2\0\0\0lstRs.",
            "it names os.system, which a stored tensor does not need",
        ),
        (b"\x80\x02c" + b"a" * 5000 + b"\nb\n.", "it names " + "a" * 77 + "..., which a stored tensor does not need"),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "its pickle has the instruction LONG_BINPUT, which"),
        (
            b"\x80\x05\x96" + b"\0\0\0\0\0\1\0\0.",
            "it is cut, or no pickle of a tensor: expected 1099511627776 bytes in a bytearray8, but only 1 remain",
        ),
        (b"\x80\x02cos\nsystem\n(X\2\0\0\0lsto.", "its pickle has the instruction OBJ, which"),
        (
            b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\1\0\0\0aK\1sb.",
            "it is no pickle of a tensor (AttributeError)",
        ),
        (
            b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}X\3\0\0\0runK\1s\x86b.",
            "it is no pickle of a tensor (AttributeError)",
        ),
        (b"\x80\x02}(K\1", "it is cut, or no pickle of a tensor: pickle exhausted before seeing STOP"),
        (b"\x80\x02}}K\1s.", "it is no pickle of a tensor (TypeError)"),
        (_pickle(b"J\xff\xff\xff\xffK\2\x85K\1\x85"), "it holds a tensor without a place in its storage"),
        (_pickle(b"K\0K\2\x85K\1K\1\x86"), "it holds a tensor without a place in its storage"),
        (b"\x80\x02X\1\0\0\0aQ.", "it points to something outside the file"),
        (_nested(40), "its dictionaries and lists repeat one another, or are nested deeper than 32"),
        (b"\x80\x02}q\0X\1\0\0\0ah\0s.", "its dictionaries and lists repeat one another, or are nested deeper than 32"),
        (_REPEATED, "its dictionaries and lists repeat one another, or are nested deeper than 32"),
        (
            b"\x80\x02}X\x10\x27\0\0" + b"a" * 10_000 + b"K\1s.",
            "it has a name of 10,000 characters, expected fewer than 1,000",
        ),
        (b"\x80\x02}(" + b"K\1" * (1 << 23) + b"0.", "its pickle has 16,777,222 bytes, expected at most 16,777,216"),
    ],
)
def test_a_hostile_pickle_is_refused_and_takes_no_memory(tmp_path: Path, pickled: bytes, message: str) -> None:
    path = torch_zip(tmp_path / "a.pt", pickled)
    tracemalloc.start()
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        stored_tensors(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20
    assert _saved(tmp_path / "b.pt", {"x": X}).tensors["x"].shape == (2, 3)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    path = torch_zip(tmp_path / "a.pt", b"\x80\x02}.", byteorder=b"big")
    with pytest.raises(ValueError, match="its numbers are not in little-endian order"):
        stored_tensors(path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match="it is no file of a tensor"):
        stored_tensors(path)
    with zipfile.ZipFile(tmp_path / "b.pt", "w") as file:
        file.writestr("x", b"")
    with pytest.raises(ValueError, match="it holds no tensor"):
        stored_tensors(tmp_path / "b.pt")


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    assert [*_saved(path, {"x": X}).tensors] == ["x"]
    assert [*_saved(path, {"x": X, "longer": X}).tensors] == ["x", "longer"]
