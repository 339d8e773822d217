"""A call of Paddle's that is made again and again: on which tensors, and what it takes of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import frameworks
from pytest_probe.core.arguments import Arguments, Leaf
from pytest_probe.core.run import MeasuredCall, Wanted, Way

FRAMEWORK = frameworks.load("paddle")
CPU = FRAMEWORK.device("cpu")


def leaf(*shape: int) -> Leaf:
    return Leaf(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def call(function: Any, *args: Any, **options: Any) -> MeasuredCall:
    return MeasuredCall(function, Arguments(args, {}, None), Way(device=CPU), **options)


def make(ready: Any) -> list[Any]:
    return [each() for each in ready]


def test_sets_take_turns() -> None:
    seen: list[Any] = []
    with FRAMEWORK.repeated(call(seen.append, leaf(3), sets=2)) as repeated:
        make(repeated.ready(3))
        assert make(repeated.empty(2)) == [None] * 2
    assert seen[0] is seen[2]
    assert seen[0] is not seen[1]


def test_a_call_in_place_gets_fresh_copies() -> None:
    given = leaf(4)
    with FRAMEWORK.repeated(call(paddle.Tensor.exp_, given, writes=frozenset(["input.0"]))) as repeated:
        found = make(repeated.ready(3)) + make(repeated.ready(1))
    assert all(np.allclose(tensor.numpy(), np.exp(given.array)) for tensor in found)


def test_the_backward_gives_gradients_of_one_forward() -> None:
    x, incoming = leaf(3), {"output.0": np.array([1.0, 2.0, 3.0], np.float32)}
    asked = call(paddle.exp, x, wanted=Wanted(frozenset(["input.0"])), incoming=incoming)
    with FRAMEWORK.repeated(asked) as repeated:
        found = make(repeated.ready(3))
    for (gradient,) in found:
        assert np.allclose(gradient.numpy(), np.exp(x.array) * incoming["output.0"])


@pytest.mark.parametrize("extra", [0, 1 << 22])
def test_memory_is_peak_and_growth_without_inputs(extra: int) -> None:
    def function(x: Any) -> Any:
        buffer = paddle.empty([extra // 4]) if extra else None
        result = x + x
        del buffer
        return result

    with FRAMEWORK.repeated(call(function, leaf(1 << 18))) as repeated:
        found = FRAMEWORK.memory_use(CPU, repeated.ready(1)[0])
    assert found is not None
    assert (found.growth, found.source) == (1 << 20, "allocator")
    assert abs(found.peak - (1 << 20) - extra) <= 4096


def test_the_cpus_clock_is_the_hosts() -> None:
    assert FRAMEWORK.clock(CPU).name == "host"
