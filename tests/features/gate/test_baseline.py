"""A baseline's file: read, brought up to date, by several at once."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_probe.errors import SettingsError
from pytest_probe.features.gate.baseline import (
    SCHEMA,
    Baseline,
    BaselineWriteError,
    Header,
    UpdateCounts,
    signature,
    write,
)
from pytest_probe.model.baseline import KeptCase, KeptOutput
from pytest_probe.model.case import Case
from pytest_probe.model.dump import Call, DeviceSpec, Dump, Record, TensorSpec

HEADER = Header(SCHEMA, 0, "auto", "auto", 1, {"numpy": "2"}, ({"device": "cpu"},), {"dump.json": "sha256:0"})


def case(id: str, rmse: float = 1e-7) -> KeptCase:
    output = KeptOutput("output.0", rmse, 1.0, 0.25, 0.5, 1, "0123abcd", 100, 90)
    return KeptCase(f"dump.json::{id}", "89abcdef", "pass", (output,))


def cases(*ids: str) -> dict[str, KeptCase | None]:
    return {f"dump.json::{id}": case(id) for id in ids}


def test_lines_are_sorted_and_whole_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "base.jsonl"
    assert write(path, HEADER, cases("b", "a"), whole=True) == UpdateCounts(2, 0, 0, 2)
    header, *lines = path.read_text().splitlines()
    assert json.loads(header)["seed"] == 0
    assert lines == [
        '{"id":"dump.json::a","signature":"89abcdef","verdict":"pass","outputs":[["output.0",1e-7,1.0,0.25,0.5,1,'
        '"0123abcd",100,90]]}',
        lines[0].replace("::a", "::b"),
    ]
    found = Baseline.read(path)
    assert (found.header, dict(found.cases)) == (HEADER, cases("a", "b"))
    assert found.encoded() == path.read_bytes()


def test_what_does_not_change_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "base.jsonl"
    write(path, HEADER, cases("a", "b"), whole=True)
    before = path.stat()
    assert write(path, HEADER, {}, whole=True) == UpdateCounts(0, 0, 0, 2)
    assert path.stat().st_ino == before.st_ino
    assert [file.name for file in tmp_path.iterdir()] == ["base.jsonl"]


def test_cases_go_and_the_mode_and_a_link_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "base.jsonl", tmp_path / "link.jsonl"
    write(path, HEADER, cases("a", "b"), whole=True)
    path.chmod(0o664)
    link.symlink_to(path)
    assert write(link, HEADER, {"dump.json::a": None, "dump.json::c": None}, whole=True) == UpdateCounts(0, 0, 1, 1)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o664
    assert dict(Baseline.read(path).cases) == cases("b")


def test_updates_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "base.jsonl"
    names = [f"case{number}" for number in range(12)]
    threads = [
        threading.Thread(target=write, args=(path, HEADER, cases(name)), kwargs={"whole": False}) for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert dict(Baseline.read(path).cases) == cases(*names)


def test_dumps_that_did_not_run_keep_their_digest(tmp_path: Path) -> None:
    path = tmp_path / "base.jsonl"
    write(path, HEADER, cases("a"), whole=True)
    other = msgspec.structs.replace(HEADER, dumps={"dump.json": "sha256:1", "more.json": "sha256:2"})
    write(path, other, cases("b"), whole=False)
    assert Baseline.read(path).header.dumps == {"dump.json": "sha256:0", "more.json": "sha256:2"}
    write(path, other, cases("a"), whole=True)
    assert Baseline.read(path).header.dumps == other.dumps


@pytest.mark.parametrize(
    ("change", "words"),
    [({"seed": 1}, "it has seed 0 now"), ({"versions": {"numpy": "3"}}, "it is of another environment, and this run")],
)
def test_a_file_that_became_another_is_not_written(tmp_path: Path, change: dict[str, object], words: str) -> None:
    path = tmp_path / "base.jsonl"
    write(path, HEADER, cases("a"), whole=True)
    with pytest.raises(BaselineWriteError, match=words):
        write(path, msgspec.structs.replace(HEADER, **change), cases("b"), whole=False)
    other = msgspec.structs.replace(HEADER, versions={"numpy": "4"})
    write(path, other, cases("a"), whole=True)
    assert Baseline.read(path).header == other
    path.write_text("broken\n")
    with pytest.raises(BaselineWriteError, match=r"somebody changed it meanwhile: .*base\.jsonl:1"):
        write(path, HEADER, cases("b"), whole=True)


def test_places_that_take_no_file(tmp_path: Path) -> None:
    with pytest.raises(BaselineWriteError, match="Is a directory"):
        write(tmp_path, HEADER, cases("a"), whole=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(BaselineWriteError, match=r"File exists|Not a directory"):
        write(tmp_path / "file" / "base.jsonl", HEADER, cases("a"), whole=True)


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SettingsError, match="it is a FIFO"):
        Baseline.read(tmp_path / "fifo")


X = TensorSpec("float32", (2, 3), max=1.0)


def of(*args: Any, api: str = "gelu", **kwargs: Any) -> str:
    record = Record(f"Functional.{api}.0", "Functional", api, 0, b"", None)
    dump = Dump(Path(), "torch", "", "", (record,), lambda _: Call(args, kwargs, None, None), lambda _: ())
    return signature(Case(dump, record, "forward"))


@pytest.mark.parametrize(
    "other",
    [
        of(TensorSpec("float32", (3, 2))),
        of(TensorSpec("bfloat16", (2, 3))),
        of(X, X),
        of(X, approximate="tanh"),
        of(X, 1.0),
        of([X]),
        of(X, api="relu"),
    ],
)
def test_another_call_has_another_fingerprint(other: str) -> None:
    assert other != of(X)
    assert len(other) == 8


def test_statistics_devices_and_the_order_of_keywords_are_no_part_of_it() -> None:
    assert of(X) == of(TensorSpec("float32", (2, 3), max=7.0, data_name="x.pt"))
    assert of(X, device=DeviceSpec("cuda:0")) == of(X, device=DeviceSpec("npu:3"))
    assert of(X, a=1, b=2) == of(X, b=2, a=1)
    assert of(X, object()) == of(X, object())


def test_it_is_the_same_in_every_process() -> None:
    assert of(X, 0.5, dim=-1, keep=True, nothing=None) == "48fdd63c"
