from __future__ import annotations

from pytest_probe.standards.auto import Auto
from tests.support.asking import comparison


def test_memory_as_it_was_found_passes_whatever_it_holds() -> None:
    found = Auto().judge(comparison([1e30, float("nan")], [0.0, 0.0], api="Torch.empty", dtype="float32"))
    assert (found.verdict, found.standard) == ("pass", "uninitialised")


def test_zeros_are_not_memory_as_it_was_found() -> None:
    assert Auto().judge(comparison([1e-30], [0.0], api="Torch.zeros", dtype="float32")).verdict == "error"
