from __future__ import annotations

import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe.capture.paddle import recording

FLAGS = ("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic")


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
