"""Entries that are complete are encoded while the program waits: the dump has the same bytes as without that."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from pytest_probe import capture
from pytest_probe.recording.dump_files import DumpFiles
from pytest_probe.recording.snapshot import EncodedForward, NamedEntry

WHERE = re.compile(rb'"address":\d+')


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch, compiled: ModuleType) -> dict[str, type]:
    """The classes of the bodies that were written, by name."""
    monkeypatch.setattr("pytest_probe.recording.kernel.compiled", compiled)
    found: dict[str, type] = {}
    add = DumpFiles.add

    def seen(self: DumpFiles, entries: Any, save: Any) -> None:
        found.update((entry.name, type(entry.body)) for entry in entries)
        add(self, entries, save)

    monkeypatch.setattr(DumpFiles, "add", seen)
    return found


def program() -> None:
    """Statistics that are there at once, others that are put off, the latter's again and as a view, and tuples."""
    torch.manual_seed(0)
    plain = torch.randn(6, 4)
    often = torch.where(plain > 0, 0.5, plain).clone()
    often * 2
    often.flatten() + 1
    large = torch.randn(200, 100)
    large.sum(dim=(0, 1))
    large[:, :50] = 0.25
    large.t() + 1
    torch.cat((plain, often)).tanh()


def dump(folder: Path, **options: Any) -> bytes:
    with capture(folder, **options):
        program()
    return WHERE.sub(b"", next(folder.glob("step0/*/dump.json")).read_bytes())


@pytest.mark.parametrize("options", [{}, {"summary_mode": "md5"}, {"task": "structure"}, {"task": "tensor"}])
def test_the_bytes_are_the_same(
    options: dict[str, Any], kinds: dict[str, type], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def same(self: DumpFiles, entry: NamedEntry) -> None:
        """Nothing is encoded before the writer does it."""

    at_once = dump(tmp_path / "dump", **options)
    with monkeypatch.context() as patch:
        patch.setattr(DumpFiles, "prepare", same)
        (tmp_path / "dump").rename(tmp_path / "first")
        later = dump(tmp_path / "dump", **options)
    assert at_once == later
    assert len(at_once) > 2000


def test_what_waits_for_statistics_is_encoded_later(kinds: dict[str, type], tmp_path: Path) -> None:
    dump(tmp_path)
    # "Tensor.__mul__" is given what holds one value many times, and "Tensor.__add__.0" a view of it.
    waiting = {name for name, kind in kinds.items() if kind is not EncodedForward}
    assert {"Tensor.__mul__.0.forward", "Tensor.__add__.0.forward"} <= waiting
    assert {"Torch.randn.0.forward", "Tensor.sum.0.forward"} <= kinds.keys() - waiting


def test_entries_whose_tensors_wait_to_be_saved_are_encoded_later(kinds: dict[str, type], tmp_path: Path) -> None:
    dump(tmp_path, task="tensor")
    assert EncodedForward not in kinds.values()
