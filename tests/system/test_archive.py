from __future__ import annotations

import gzip
import shutil
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest

from pytest_probe.system import archive


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("dump.json", "step0/dump.json", "step0/deep/x.npy"):
        file = tmp_path / "run" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return tmp_path / "run"


@pytest.mark.parametrize("kind", ["gztar", "tar"])
def test_a_tar_says_what_to_do(folder: Path, kind: str) -> None:
    path = Path(shutil.make_archive(str(folder), kind, folder))
    for read in (archive.names, archive.list_folder, lambda path: archive.open_file(path / "dump.json")):
        with pytest.raises(
            OSError, match="it is a tar, and of archives only zips are read; unpack it and give the folder"
        ):
            read(path)


def test_files_of_an_archive_have_paths(folder: Path) -> None:
    path = Path(shutil.make_archive(str(folder), "zip", folder))
    assert archive.is_archive(path)
    assert sorted(archive.names(path)) == ["dump.json", "step0/deep/x.npy", "step0/dump.json"]
    assert sorted(archive.list_folder(path)) == ["dump.json", "step0"]
    assert sorted(archive.list_folder(path / "step0")) == ["deep", "dump.json"]
    assert archive.split(path / "step0/dump.json") == (path, "step0/dump.json")
    assert archive.split(path) is None
    assert archive.open_file(path / "step0/deep/x.npy").read() == b"step0/deep/x.npy"
    assert archive.head(path / "dump.json", 4) == b"dump"
    assert archive.size(path / "dump.json") == 9
    assert archive.is_file(path / "dump.json")
    assert archive.is_folder(path / "step0/deep")
    assert not archive.is_file(path / "step0")
    assert not archive.is_folder(path / "dump.json")
    with pytest.raises(FileNotFoundError):
        archive.open_file(path / "step1/dump.json")


def test_files_on_the_disk_stay_what_they_are(folder: Path) -> None:
    file = folder / "dump.json"
    with archive.open_file(file) as opened:
        assert opened.read() == archive.head(file, 99) == b"dump.json"
    assert archive.split(file) is None
    assert archive.split(file / "x") is None
    assert not archive.is_archive(file)
    assert not archive.is_archive(folder)
    assert archive.list_folder(folder / "none") == []
    with pytest.raises(FileNotFoundError):
        archive.open_file(folder / "none")


def test_gzip_is_unpacked_as_far_as_it_goes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4000
    file = tmp_path / "dump.json.gz"
    file.write_bytes(gzip.compress(content))
    assert archive.open_file(file).read() == content
    assert archive.head(file, 300) == content[:300]
    assert not archive.is_archive(file)
    file.write_bytes(file.read_bytes()[:3000])
    cut = archive.open_file(file).read()
    assert cut
    assert content.startswith(cut)
    file.write_bytes(b"\x1f\x8b and no gzip")
    for read in (archive.open_file, lambda path: archive.head(path, 99)):
        with pytest.raises(OSError, match="the gzip file is damaged"):
            read(file)


def test_an_archive_that_changed_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    for name in ("first.json", "the_second.json"):
        with zipfile.ZipFile(path, "w") as written:
            written.writestr(name, "{}")
        assert archive.names(path) == [name]


def test_a_member_that_holds_more_than_it_says_is_not_unpacked(tmp_path: Path) -> None:
    """Its size and its CRC are those of its first byte."""
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x", bytes(2**27))
    member = zipfile.ZipFile(path).getinfo("x")
    right = struct.pack("<III", member.CRC, member.compress_size, member.file_size)
    assert path.read_bytes().count(right) == 2
    wrong = struct.pack("<III", zlib.crc32(b"\0"), member.compress_size, 1)
    path.write_bytes(path.read_bytes().replace(right, wrong))
    tracemalloc.start()
    try:
        assert archive.open_file(path / "x").read() == b"\0"
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_is_packed_without_a_limit_is_refused(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w", kind) as file:
        file.writestr("x", b"x")
    with pytest.raises(OSError, match="packed in another way than by deflate; unpack it and give the folder"):
        archive.open_file(path / "x")
