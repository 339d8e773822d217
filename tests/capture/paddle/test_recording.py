"""What a capture asks of Paddle beside the calls: seeds, and the ends of steps."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import PrecisionDebugger, seed_all
from pytest_probe.capture.paddle import recording

FLAGS = ("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    states = random.getstate(), np.random.get_state(), paddle.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    paddle.set_rng_state(states[2])


def drawn() -> list[Any]:
    dropped = paddle.nn.functional.dropout(paddle.ones([32]))
    return [random.random(), np.random.rand(2).tolist(), paddle.rand([3]).tolist(), dropped.tolist()]


def test_one_seed_for_everything_that_draws() -> None:
    seed_all(7, framework="paddle")
    first = drawn()
    other = drawn()
    seed_all(7, framework="paddle")
    assert drawn() == first
    assert all(one != another for one, another in zip(first, other, strict=True))
    seed_all(8, framework="paddle")
    assert all(one != another for one, another in zip(first, drawn(), strict=True))


def test_a_debugger_seeds_where_it_is_asked_to(tmp_path: Path) -> None:
    seed_all(1234, framework="paddle")
    first = drawn()
    PrecisionDebugger(dump_path=tmp_path / "a", framework="paddle", is_deterministic=False)
    assert drawn() == first
    PrecisionDebugger(dump_path=tmp_path / "b", framework="paddle")
    assert drawn() != first
    PrecisionDebugger(dump_path=tmp_path / "c", framework="paddle", seed=1234)
    assert drawn() == first


@pytest.mark.parametrize("known", [["FLAGS_cudnn_deterministic"], sorted(FLAGS), []])
@pytest.mark.parametrize("deterministic", [True, False])
def test_flags_of_deterministic_algorithms(
    deterministic: bool, known: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not every build has each; that of the CPU has none."""
    told: dict[str, bool] = {}
    monkeypatch.setattr(paddle.base.core, "globals", lambda: dict.fromkeys(known, False))
    monkeypatch.setattr(paddle, "set_flags", told.update)
    recording.seed(3, deterministic)
    assert told == dict.fromkeys(known, deterministic)


def test_a_step_ends_with_each_step_of_the_first_optimizer() -> None:
    first, second = (paddle.optimizer.SGD(0.1, parameters=[paddle.create_parameter([2], "float32")]) for _ in range(2))
    steps = []
    with recording.after_optimizer_steps(lambda: steps.append(1)):
        for optimizer in (first, second, first):
            optimizer.step()
    first.step()
    assert len(steps) == 2
