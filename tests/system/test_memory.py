from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_probe.system import machine

GB = 10**9


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    machine.available_memory.cache_clear()
    yield
    machine.available_memory.cache_clear()


def written(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text + "\n")


def test_a_group_of_version_2_and_those_above_it(tmp_path: Path) -> None:
    written(tmp_path / "a/b", "memory.max", "max")
    written(tmp_path / "a", "memory.max", str(4 * GB))
    assert list(machine.group_limits("0::/a/b\n", tmp_path)) == [4 * GB]


def test_a_group_of_version_1(tmp_path: Path) -> None:
    written(tmp_path / "memory/docker/x", "memory.limit_in_bytes", str(2 * GB))
    written(tmp_path / "memory", "memory.limit_in_bytes", str(2**63 - 4096))
    groups = "5:devices:/docker/x\n4:cpu,memory:/docker/x\n0::/\n"
    assert list(machine.group_limits(groups, tmp_path)) == [2 * GB, 2**63 - 4096]


def test_a_group_whose_path_is_that_outside_of_its_container(tmp_path: Path) -> None:
    written(tmp_path, "memory.max", str(GB))
    assert list(machine.group_limits("0::/outside/x", tmp_path)) == [GB]


def test_a_system_without_groups(tmp_path: Path) -> None:
    assert list(machine.group_limits("", tmp_path)) == []
    assert list(machine.group_limits("0::/a\n", tmp_path)) == []


def test_the_least_of_all_limits_is_what_may_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_physical", lambda: 64 * GB)
    monkeypatch.setattr(machine, "group_limits", lambda groups, mounted: iter([16 * GB, 2**63]))
    monkeypatch.setattr(machine, "_address_space_left", lambda: iter(()))
    assert machine.available_memory() == 16 * GB
    # Workers share the machine and its groups; an address space is a process's own.
    assert machine.available_memory(4) == 4 * GB
    monkeypatch.setattr(machine, "_address_space_left", lambda: iter([3 * GB]))
    machine.available_memory.cache_clear()
    assert machine.available_memory(4) == 3 * GB
