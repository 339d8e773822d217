"""What the items of a process share: the run of a record, from its forward case to its backward case."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch

from pytest_probe.check import Case
from pytest_probe.model.dump import Direction
from pytest_probe.plugin.session import ProcessSession, make_probe
from pytest_probe.records import read_dump
from tests.support.writing import entries, write_dump

Alive = list["weakref.ref[torch.Tensor]"]


@pytest.fixture
def probe(pytester: pytest.Pytester) -> ProcessSession:
    """Of a run on the CPU, with a dump of two records: exp in both directions, and neg."""
    x = torch.randn(5, generator=torch.Generator().manual_seed(0))
    data = entries("Torch.exp.0", torch.exp, x, backward=True) | entries("Torch.neg.0", torch.neg, x)
    path = write_dump(pytester.path, data)
    return make_probe(pytester.parseconfig("--probe-device=cpu", f"--probe-dump={path}"))


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> Iterator[Alive]:
    """The tensors that exp got on the device; none is freed by a collection of garbage."""
    found: Alive = []
    right = torch.exp

    def exp(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is torch.float32:
            found.append(weakref.ref(x))
        return right(x)

    monkeypatch.setattr(torch, "exp", exp)
    gc.collect()
    gc.disable()
    yield found
    gc.enable()


def check(probe: ProcessSession, record: int = 0, direction: Direction = "forward") -> str:
    (path,) = probe.dumps.paths
    dump = probe.dumps.read(path)
    return probe.check(Case(dump, dump.records[record], direction)).verdict.verdict


def test_the_backward_case_takes_the_forward_cases_run(probe: ProcessSession, alive: Alive) -> None:
    assert [check(probe), check(probe, direction="backward")] == ["pass", "pass"]
    assert len(alive) == 1


def test_release_frees_the_run(probe: ProcessSession, alive: Alive) -> None:
    check(probe)
    assert alive[0]() is not None
    check(probe, direction="backward")
    probe.release()
    assert [item() for item in alive] == [None]


def test_another_record_frees_the_last(probe: ProcessSession, alive: Alive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it runs, lest both be held at once."""
    seen: list[bool] = []
    right = torch.neg

    def watching(x: torch.Tensor) -> torch.Tensor:
        seen.append(alive[0]() is None)
        return right(x)

    monkeypatch.setattr(torch, "neg", watching)
    check(probe)
    assert alive[0]() is not None
    check(probe, record=1)
    assert seen
    assert all(seen)


def test_a_record_of_another_dump_is_another(probe: ProcessSession, alive: Alive) -> None:
    check(probe)
    (path,) = probe.dumps.paths
    dump = read_dump(path)
    assert probe.check(Case(dump, dump.records[0], "backward")).verdict.verdict == "pass"
    assert len(alive) == 2
