"""The times of calls on an accelerator, which goes on while the host does."""

from __future__ import annotations

import pytest

from tests.device.conftest import Train
from tests.device.train import MODELS


@pytest.mark.parametrize("model", MODELS)
def test_the_device_is_waited_for_before_and_after_each_first_level_call(train: Train, model: str) -> None:
    timed = train(model, "timed")
    calls = sum(count for name, count in timed.calls.items() if name.endswith(" forward"))
    assert calls > 20
    # The question how often is the last call, between whose two waits it is answered.
    assert timed.waits == [[2 * calls - 1, 1]]
    assert timed.losses == train(model, "nothing").losses[:1]


@pytest.mark.parametrize("model", MODELS)
def test_asynchronously_it_is_waited_for_at_the_end_alone(train: Train, model: str) -> None:
    timed = train(model, "timed asynchronously")
    assert timed.waits == [[0, 1]]
    assert timed.calls == train(model, "timed").calls


@pytest.mark.parametrize("model", MODELS)
def test_gradients_that_a_thread_of_the_device_computes_are_seen(train: Train, model: str) -> None:
    assert sum(count for name, count in train(model, "timed").calls.items() if name.endswith(" backward")) > 5
