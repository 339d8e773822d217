from __future__ import annotations

import sys
from types import CodeType

import pytest

from pytest_probe.capture import frames, kernel
from pytest_probe.capture.frames import CallStacks


def _stacks() -> CallStacks:
    return CallStacks(lambda code: code.co_name == "recomputed", lambda: True)


def _here(stacks: CallStacks) -> int:
    return stacks.number(sys._getframe())


@pytest.mark.parametrize("compiled", [True, False])
def test_the_same_callers_have_the_same_number(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(kernel, "compiled", None)
    stacks = _stacks()
    first, second = [[_here(stacks), _here(stacks)] for _ in range(2)]
    assert first == second
    assert first[0] != first[1]
    assert [stacks.lines()[number][0].split(", ")[-2] for number in first] == ["in _here"] * 2


def test_one_that_is_never_finished_moves_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = _stacks()
    first = _here(stacks)

    class Interrupted(dict[int, list[tuple[CodeType, int]]]):
        def __setitem__(self, number: int, frames: list[tuple[CodeType, int]]) -> None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stacks, "_frames", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            _here(stacks)

    def recomputed() -> int:
        return _here(stacks)

    second = recomputed()
    assert stacks.lines()[first] != stacks.lines()[second]
    assert stacks.lines()[second][1].startswith(
        f"File {__file__}, line {recomputed.__code__.co_firstlineno + 1}, in rec"
    )
    assert [stacks.recomputes(number) for number in (first, second, -1)] == [False, True, False]


def test_frames_of_ours_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_HERE", __file__)
    stacks = CallStacks(lambda code: False, lambda: True)
    number = _here(stacks)
    assert not any(__file__ in line for line in stacks.lines()[number])
    assert not stacks.recomputes(number)
