"""`.json.gz`, a `.zip` of a dump's folder, and patterns: read as they are, bounded, nothing is left."""

from __future__ import annotations

import gzip
import io
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pytest_probe.cli import main
from tests.acceptance.conftest import DumpMaker, entries, forward, tensor
from tests.support.other_plugins import Ran
from tests.support.running import collected, refusal

RELU, GELU, ARGMAX = "Functional.relu.0.forward", "Functional.gelu.0.forward", "Torch.argmax.0.forward"
STORED = {
    RELU: forward({**tensor(2, 3), "data_name": "x.pt"}, output=tensor(2, 3)),
    GELU: forward({**tensor(2, 3), "data_name": "x.npy"}, output=tensor(2, 3)),
}


OUT = ("--probe-out=out", "--probe-inputs=stored")


@pytest.fixture
def folder(pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch) -> Path:
    """run/ holds a dump with two stored tensors a step; temporary files go to temp/."""
    for step in (0, 1):
        dump = make_dump(f"run/step{step}/proc{4711}/dump.json", STORED, task="tensor", dump_data_dir="/elsewhere")
        (dump.parent / "dump_tensor_data").mkdir()
        torch.save(torch.full((2, 3), 0.5), dump.parent / "dump_tensor_data/x.pt")
        np.save(dump.parent / "dump_tensor_data/x.npy", np.full((2, 3), 0.5, np.float32))
    monkeypatch.setenv("TMPDIR", str(pytester.mkdir("temp")))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return pytester.path / "run"


def packed(folder: Path, *, keep: bool = False) -> Path:
    """The folder as a zip in its place, or beside it."""
    made = Path(shutil.make_archive(str(folder), "zip", folder))
    if not keep:
        shutil.rmtree(folder)
    return made


def test_an_archive_gives_the_results_of_its_folder(pytester: pytest.Pytester, folder: Path) -> None:
    """With the same tensors, numbers and digests, and unpacking nothing. What would unpack to too much is skipped."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)})
    for step, content in ((2, bytes(8 << 20)), (3, header.getvalue())):
        copy = shutil.copytree(folder / "step1", folder / f"step{step}")
        (copy / "proc4711/dump_tensor_data/x.npy").write_bytes(content)
    packed(folder, keep=True)
    before = sorted(pytester.path.rglob("*"))
    dumps = ("--probe-dump=run", "--probe-dump=run.zip")
    found = Ran(pytester.runpytest(*dumps, *OUT, "-vv", "-rs", "-p", "no:cacheprovider"), pytester.path)
    found.result.assert_outcomes(passed=12, skipped=4)
    results = [(row["verdict"], row["outputs"]) for row in found.rows]
    assert results[:8] == results[8:]
    digests = [dump["digest"] for dump in found.run["dumps"]]
    assert digests[:4] == digests[4:]
    names = [f"run.zip::step{step}/rank0/dump.json::{call} *PASSED*" for step in (0, 1) for call in STORED]
    too_large = ["*a file of 8388608 bytes*", "*x.npy, which cannot be read (*"]
    found.result.stdout.fnmatch_lines_random([*names, *too_large])
    shutil.rmtree("out")
    assert sorted(pytester.path.rglob("*")) == before


@pytest.mark.usefixtures("planted")
def test_ids_select_and_reproduce_where_a_worker_dies(pytester: pytest.Pytester, folder: Path) -> None:
    with (pytester.path / "conftest.py").open("a") as conftest:
        conftest.write("\ndef pytest_runtest_call(item):\n    import os\n")
        conftest.write("    'step1' in item.nodeid and 'gelu' in item.name and os._exit(1)\n")
    packed(folder)
    found = Ran(pytester.runpytest("--probe-dump=run.zip", "-n1", *OUT, "-vv"), pytester.path)
    found.result.assert_outcomes(passed=1, failed=3)
    name = f"run.zip::step1/rank0/dump.json::{RELU}"
    lines = [f"to reproduce: pytest '{name}' --probe-inputs=stored", f"FAILED {name}*", "*the process died with exit *"]
    found.result.stdout.fnmatch_lines_random(lines)
    failed = [f"step{step}/rank0/dump.json::{RELU}" for step in (0, 1)]
    died = f"step1/rank0/dump.json::{GELU}"
    assert sorted(row["id"] for row in found.rows if row["verdict"] == "error") == sorted((*failed, died))
    assert list((pytester.path / "temp").iterdir()) == []
    again = [f"run.zip::{each}" for each in (*failed, died)]
    assert sorted(collected(pytester, "--probe-dump=run.zip", "--lf")) == sorted(again)
    assert collected(pytester, name) == [name]
    assert len(collected(pytester, "run.zip")) == 4
    assert len(collected(pytester, "--probe-dump=run.zip/step1")) == 2


def test_gzip_of_a_dump_also_where_it_was_cut_and_files_that_are_not_read(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_probe.system.archive._SMALL", 1 << 20)
    content = gzip.compress(make_dump(data={name: entries()[name] for name in (RELU, ARGMAX)}).read_bytes())
    (pytester.path / "dump.json").unlink()
    file = pytester.path / "dump.json.gz"
    file.write_bytes(content)
    assert len(collected(pytester, "--probe-dump=.")) == 2
    file.with_name("cut.json.gz").write_bytes(content[: len(content) - 40])
    file.with_name("damaged.json.gz").write_bytes(content[:-8] + b"\0" * 8)
    pytester.makeconftest(READER)
    for name, (make, _) in BAD_FILES.items():
        make(pytester.path / name)
    dumps = (file.name, "cut.json.gz", "damaged.json.gz", *BAD_FILES)
    result = pytester.runpytest(*(f"--probe-dump={name}" for name in dumps), "-v")
    assert result.parseoutcomes()["failed"] == 2 + len(BAD_FILES)
    result.stdout.fnmatch_lines_random(
        [
            f"dump.json.gz::{RELU} PASSED*",
            "*cut.json.gz: is damaged or cut off at byte *",
            "*damaged.json.gz: cannot be read (the gzip file is damaged: *",
            *(f"*{name}*{message}*" for name, (_, message) in BAD_FILES.items()),
        ]
    )


def test_a_pattern_selects_the_dumps_it_matches(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    for rank in (0, 2, 10):
        make_dump(f"run/rank{rank}/dump.json", {ARGMAX: entries()[ARGMAX]})
    (pytester.path / "run/notes.txt").write_text("no dump")
    (pytester.path / "run/empty").mkdir()
    for pattern in ("run/*/dump.json", "run/*/*", "run/*", "run/**/*.json", "r?n/rank[012]*"):
        found = [name.partition("::")[0] for name in collected(pytester, f"--probe-dump={pattern}")]
        assert found == [f"run/rank{rank}/dump.json" for rank in (0, 2, 10)], pattern
    said = refusal(pytester, "--probe-dump=run/*.zip")
    said.fnmatch_lines(["--probe-dump: '*/run/[*].zip' cannot be used; it matches no dump"])


def test_show_takes_archives(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = packed(folder)
    assert main(["show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "step0/rank0/dump.json: " in shown
    assert "4 cases would run" in shown
    assert main(["show", str(path.parent / "run.*")]) == 0


def zipped(path: Path, name: str, content: bytes, mode: int = 0) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr, info.compress_type = mode << 16, zipfile.ZIP_DEFLATED
        archive.writestr(info, content)


LEADS_OUT = "the archive holds the name '*', which leads out of it or cannot be shown"
UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "up.zip": (lambda path: zipped(path, "../dump.json", b"{}"), LEADS_OUT),
    "escape.zip": (lambda path: zipped(path, "\x1b[31m/dump.json", b"{}"), LEADS_OUT),
    "back.zip": (lambda path: zipped(path, "..\\dump.json", b"{}"), LEADS_OUT),
    "none.zip": (
        lambda path: zipped(path, "x.txt", b"{}"),
        "the archive holds no dump; give one that holds a dump.json",
    ),
    "cut.zip": (lambda path: path.write_bytes(b"PK\x03\x04and no more"), "the archive is damaged: *"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_archive_that_cannot_be_used(pytester: pytest.Pytester, name: str) -> None:
    make, message = UNUSABLE[name]
    make(pytester.path / name)
    refusal(pytester, f"--probe-dump={name}").fnmatch_lines([f"--probe-dump: '*{name}' cannot be used; *{message}*"])


READER = """
    class Mine:
        name = "mine"
        def sniff(self, path, head): return head.startswith(b"MINE")
        def read(self, path): raise AssertionError("it would read a path that does not exist")

    def pytest_probe_register(registry):
        registry.readers.append(Mine())
"""
BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "link.zip": (
        lambda path: zipped(path, "dump.json", b"/etc/passwd", 0o120777),
        "cannot be read (it is a link, and links * not followed",
    ),
    "bomb.zip": (
        lambda path: zipped(path, "dump.json", bytes(60 << 20)),
        "cannot be read (it unpacks to 62,914,560 bytes, more than *",
    ),
    "mine.zip": (
        lambda path: zipped(path, "dump.json", b"MINE"),
        "dump.json: the reader mine reads no archives; unpack it and give the folder",
    ),
    "bomb.json.gz": (
        lambda path: path.write_bytes(gzip.compress(b'{"task": "x", "level": "", "data": {}' + bytes(60 << 20))),
        "cannot be read (it unpacks to more than * bytes; unpack it and give the folder",
    ),
}
