from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import pytest_probe
from pytest_probe import PrecisionDebugger, capture
from pytest_probe.capture.folder import TAKEN, check_usable, take
from pytest_probe.errors import SettingsError
from tests.support.capturing import entries

REFUSED = r"dump_path: .* cannot be used; it holds the dump of an earlier run \(step0/proc\d+\); .*overwrite=True"


def check(folder: Path, rank: int | None, ranks: int, free: bool, name: str) -> None:
    if free:
        take(str(folder), rank, ranks, overwrite=False)
        return
    with pytest.raises(SettingsError, match=name):
        take(str(folder), rank, ranks, overwrite=False)
    take(str(folder), rank, ranks, overwrite=True)
    assert not (folder / name).exists()


def earlier(folder: Path, *processes: str) -> None:
    for process in processes:
        path = folder / "step0" / process
        path.mkdir(parents=True)
        (path / "dump.json").write_text("{}")


@pytest.fixture(autouse=True)
def _no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TAKEN, "")


def test_a_second_capture_of_a_script_is_refused_and_the_first_stays(tmp_path: Path) -> None:
    with capture(tmp_path):
        torch.ones(2)
    with pytest.raises(SettingsError, match=REFUSED), capture(tmp_path):
        pytest.fail("the program ran")
    assert list(entries(tmp_path)) == ["Torch.ones.0.forward"]
    with capture(tmp_path, overwrite=True):
        torch.zeros(2)
    assert list(entries(tmp_path)) == ["Torch.zeros.0.forward"]


def test_steps_of_one_capture_are_not_refused(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=tmp_path)
    for _ in range(3):
        debugger.start()
        torch.ones(2)
        debugger.stop()
        debugger.step()
    assert len([*tmp_path.glob("step*/*/dump.json")]) == 3


@pytest.mark.parametrize(
    ("there", "rank", "ranks", "free"),
    [
        (["rank1"], 0, 2, True),
        (["rank0"], 0, 2, False),
        (["rank2"], 0, 2, False),  # of an earlier run of more ranks
        (["rank3"], 0, 2, True),  # which rank 1 takes
        (["proc7"], 0, 2, False),
        (["rank0"], None, 1, False),
        (["proc7"], None, 1, False),
        (["other"], None, 1, True),
        ([], None, 1, True),
    ],
)
def test_a_folder_with_an_earlier_dump_is_refused(
    there: list[str], rank: int | None, ranks: int, free: bool, tmp_path: Path
) -> None:
    earlier(tmp_path, *there)
    check(tmp_path, rank, ranks, free, "step0" if there else "")


@pytest.mark.parametrize(
    ("name", "rank", "ranks", "free"),
    [
        ("rank0_step3", None, 1, False),
        ("rank1_step0", None, 1, False),
        ("rank1_step0", 1, 2, False),
        ("rank1_step0", 0, 2, True),
        ("rank0_steps", None, 1, True),
    ],
)
def test_a_folder_with_paddleapex_files_is_refused(
    name: str, rank: int | None, ranks: int, free: bool, tmp_path: Path
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for file in ("forward_rank0_all.json", "forward_rank0_half.json", "paddle.exp*0.0.pt"):
        (folder / file).write_text("{}")
    check(tmp_path, rank, ranks, free, name)


def test_files_of_paddleapex_hold_no_calls_of_torch(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="PaddleAPEX's files hold calls of Paddle"):
        PrecisionDebugger(dump_path=tmp_path, layout="paddleapex")


def test_processes_of_the_same_run_share_it(tmp_path: Path) -> None:
    take(str(tmp_path), None, 1, overwrite=False)
    earlier(tmp_path, f"proc{os.getpid() + 1}")
    take(str(tmp_path), None, 1, overwrite=False)


def test_a_file_in_the_place_of_the_folder_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SettingsError, match=r"give a folder that can be written: .*file: Not a directory"):
        check_usable("-o", str(tmp_path / "file"))
    take(str(tmp_path / "file"), None, 1, overwrite=True)
    refused = r"dump_path: '.*below' cannot be used; give a folder that can be written: .*file: Not a directory"
    with pytest.raises(SettingsError, match=refused), capture(tmp_path / "file" / "below"):
        pytest.fail("the program ran")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_rank_that_records_nothing_needs_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with capture(tmp_path / "file", rank=[1], rank_folder=0):
        torch.ones(2)


def test_the_package_can_be_called_as_the_function(tmp_path: Path) -> None:
    import_module("pytest_probe.capture.debugger")
    package: Any = import_module("pytest_probe.capture")
    assert pytest_probe.capture is package or pytest_probe.capture is package.debugger.capture
    with pytest_probe.capture(tmp_path / "dumps"):
        torch.ones(2).relu()
    assert "relu" in next((tmp_path / "dumps").rglob("dump.json")).read_text(encoding="utf-8")
    with package(tmp_path / "others"):
        torch.ones(2).relu()
    assert list((tmp_path / "others").rglob("dump.json"))
