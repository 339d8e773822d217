"""Stacks keep their numbers, also where a signal's handler raises in between."""

from __future__ import annotations

import sys

import pytest

from pytest_probe.frameworks.torch.recording import stacks as stacks_module
from pytest_probe.frameworks.torch.recording.stacks import CallStacks


def _here(stacks: CallStacks) -> int:
    return stacks.number(sys._getframe())


def test_the_same_callers_have_the_same_number() -> None:
    stacks = CallStacks()
    first, second = [[_here(stacks), _here(stacks)] for _ in range(2)]
    assert first == second
    assert first[0] != first[1]
    assert [stacks.lines()[number][0].split(", ")[-2] for number in first] == ["in _here"] * 2


def test_one_that_is_never_finished_moves_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = CallStacks()
    first = _here(stacks)

    def interrupted(*args: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stacks_module, "any", interrupted, raising=False)
        with pytest.raises(KeyboardInterrupt):
            _here(stacks)

    def recomputed() -> int:
        return _here(stacks)

    monkeypatch.setattr(stacks_module, "_CHECKPOINT", (__file__,))
    second = recomputed()
    assert stacks.lines()[first] != stacks.lines()[second]
    assert stacks.lines()[second][1].startswith(
        f"File {__file__}, line {recomputed.__code__.co_firstlineno + 1}, in rec"
    )
    assert stacks._checkpoints == {second}
