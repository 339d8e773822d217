"""Recordings that several tests compare, made once."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch

from tests.support import forks, tensor_parallel
from tests.support.running import by_case
from tests.support.two_sides import Fault, Gpt, Lstm, record

Results: TypeAlias = dict[str, dict[str, Any]]
# Compares two recordings by their names, with further options: the run, and its results by the names of items.
Compare: TypeAlias = Callable[..., tuple[pytest.RunResult, Results]]


def _parallel(folder: Path, *options: str, world: int = 2) -> Path:
    """A layer on so many ranks, with gloo."""
    script, store = tensor_parallel.__file__, folder.with_suffix(".store")
    forks.in_ranks(world, lambda rank: (script, folder, rank, world, store, *options), folder.parent)
    return folder


PROGRAMS: dict[str, Callable[[Path], Path]] = {
    "gpt": record,
    "again": record,
    "statistics": lambda folder: record(folder, task="statistics"),
    "softmax": lambda folder: record(folder, fault=Fault("_softmax", 1, lambda y: y * (1 + 1e-3))),
    "softmax_statistics": lambda folder: record(
        folder, fault=Fault("_softmax", 1, lambda y: y * (1 + 1e-3)), task="statistics"
    ),
    "gelu_backward": lambda folder: record(folder, fault=Fault("gelu_backward", 1, lambda y: y * (1 - 1e-3))),
    "extra": lambda folder: record(folder, lambda: Gpt(extra=True)),
    "recompute": lambda folder: record(folder, lambda: Gpt(recompute=True)),
    "micro_batches": lambda folder: record(folder, parts=2),
    "modules": lambda folder: record(folder, modules=True),
    "compiled": lambda folder: record(
        folder, wrap=lambda model: torch.compile(model, backend="eager"), modules=True, compiled="eager"
    ),
    "apart": lambda folder: record(folder, lambda: Gpt(fused=False), modules=True),
    "eager": lambda folder: record(folder, lambda: Gpt(4).bfloat16()),
    "sdpa": lambda folder: record(folder, lambda: Gpt(4, sdpa=True).bfloat16()),
    "wrong_sdpa": lambda folder: record(
        folder,
        lambda: Gpt(4, sdpa=True).bfloat16(),
        Fault("_scaled_dot_product_flash_attention_for_cpu", 1, lambda y: (y[0] * 1.25, *y[1:])),
    ),
    "lstm": lambda folder: record(folder, Lstm),
    "lstm_wrong": lambda folder: record(
        folder, Lstm, Fault("mkldnn_rnn_layer", 0, lambda y: (y[0] * (1 + 1e-3), *y[1:]))
    ),
    "one_rank": lambda folder: _parallel(folder, world=1),
    "two_ranks": _parallel,
    "two_ranks_wrong": _parallel,
    "flipped": lambda folder: _parallel(folder, "flip"),
}


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """The folder of a recording."""
    folder = tmp_path_factory.mktemp("recorded")

    def of(name: str) -> Path:
        return folder / name if (folder / name).exists() else PROGRAMS[name](folder / name)

    yield of
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def compare(pytester: pytest.Pytester, recorded: Callable[[str], Path]) -> Compare:
    def run(a: str, b: str, *options: str) -> tuple[pytest.RunResult, Results]:
        paths = f"--probe-dump={recorded(a)}", f"--probe-against={recorded(b)}"
        result = pytester.runpytest(*paths, "--probe-out=out", *options)
        return result, by_case()

    return run


def statuses(results: Results) -> Counter[str]:
    return Counter(found["answers"][0]["pair"]["status"] for found in results.values() if "answers" in found)


def in_order(results: Results) -> list[tuple[str, str]]:
    """Items with what they are: forward in the order of calls, then backward in reverse."""
    place = {name: (found["place"] or 0) for name, found in results.items()}
    forward = sorted((name for name in results if name.endswith(".forward")), key=place.__getitem__)
    backward = sorted((name for name in results if name.endswith(".backward")), key=place.__getitem__, reverse=True)
    return [(name, results[name]["answers"][0]["pair"]["status"]) for name in (*forward, *backward)]
