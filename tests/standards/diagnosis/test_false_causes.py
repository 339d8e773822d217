"""A cause is named for what it did, and not for random errors of its size."""

from __future__ import annotations

import pytest

from benchmarks import false_causes
from pytest_probe.standards.diagnosis import arguments


@pytest.mark.parametrize("call", ["matmul", "gated"])
def test_modes_are_named_where_errors_follow_them(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other arguments take hundreds of runs.
    monkeypatch.setattr(arguments, "_RUNS", 0)
    asked = [each for each in false_causes.faulty(call) if "random" in each[0] or each[0] in false_causes.DEVICES]
    named = {fault: (false_causes.cause(call, kernel), fair) for fault, kernel, fair in asked if fair != "-"}
    # There the size of each element's error is that of a sum's, and nothing tells more.
    named.pop("random errors of 2^-10 of each")
    assert len(named) > 7
    assert {fault: words for fault, (words, fair) in named.items() if not str(words).startswith(fair)} == {}


def test_a_changed_choice_makes_no_mode_of_random_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "_RUNS", 0)
    kernels = {fault: kernel for fault, kernel, _ in false_causes.faulty("experts")}
    named = [str(false_causes.cause("experts", kernels[fault])) for fault in ("random errors of 2^-12", "TF32 cut")]
    assert [words.partition(" of ")[0].partition(": ")[0] for words in named] == ["errors", "behaves as TF32 inputs"]
