"""What the timing of Paddle's calls sees: each call once, under the name of its record in a dump."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_probe import timing
from tests.capture.torch.test_timing import counts

paddle = pytest.importorskip("paddle")
F = paddle.nn.functional
from paddle import nn
from paddle.nn.functional import relu

a, b = paddle.ones([3]), paddle.ones([3])
square = paddle.ones([3, 3])


def timed(program: Callable[[], Any], **options: Any) -> dict[str, int]:
    with timing(**options) as found:
        program()
    return dict(counts(found, "paddle"))


def in_thread() -> None:
    thread = threading.Thread(target=lambda: paddle.add(a, b))
    thread.start()
    thread.join()


KINDS: dict[str, tuple[Callable[[], Any], dict[str, int]]] = {
    "function": (lambda: paddle.add(a, b), {"paddle.add": 1}),
    "operator": (lambda: a + b, {"paddle.Tensor.__add__": 1}),
    "method": (lambda: a.exp(), {"paddle.exp": 1}),
    "functional": (lambda: F.softmax(a, -1), {"paddle.nn.functional.softmax": 1}),
    "getitem": (lambda: a[0], {"paddle.Tensor.__getitem__": 1}),
    "factory": (lambda: paddle.zeros([3]), {"paddle.zeros": 1}),
    "list of tensors": (lambda: paddle.concat([a, b]), {"paddle.concat": 1}),
    "thread": (in_thread, {"paddle.add": 1}),
    "many": (lambda: [paddle.exp(a) for _ in range(3_000)], {"paddle.exp": 3_000}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_call_is_counted_once(kind: str) -> None:
    program, expected = KINDS[kind]
    assert timed(program) == expected


def test_names_that_were_imported_before_are_seen_and_stay() -> None:
    before = relu
    assert timed(lambda: relu(a)) == {"paddle.nn.functional.relu": 1}
    assert relu is before
    assert timed(lambda: None) == {}


def test_nested_total_is_self_and_children() -> None:
    with timing(nested=True) as found:
        F.layer_norm(square, [3])
        nn.Linear(3, 3)(square)
    rows = {api.name: spent for api, spent in found.rows()}
    assert sum(spent.own for spent in rows.values()) <= sum(spent.total for spent in rows.values())
    assert rows["paddle.nn.functional.linear"].calls == 1
    assert len(rows) > 3


def train() -> list[Any]:
    paddle.seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 3))
    optimizer = paddle.optimizer.AdamW(parameters=model.parameters())
    for _ in range(3):
        optimizer.clear_grad()
        F.cross_entropy(model(square), paddle.arange(3)).backward()
        optimizer.step()
    return [parameter.numpy() for parameter in model.parameters()]


@pytest.mark.parametrize("options", [{}, {"nested": True, "by_shape": True}])
def test_a_program_computes_the_same(options: dict[str, Any]) -> None:
    plain = train()
    with timing(**options) as found:
        watched = train()
    assert all((one == other).all() for one, other in zip(plain, watched, strict=True))
    assert counts(found, "paddle")["paddle.Tensor.backward"] == 3


def test_backward_is_one_row_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    found = timed(train, backward=True)
    assert found["paddle.Tensor.backward"] == 3
    assert "its whole backward is one row" in caplog.text


def test_two_frameworks_are_told_apart() -> None:
    with timing() as found:
        paddle.add(a, b)
        torch.add(torch.ones(3), 1)
    assert counts(found, "paddle") == {"paddle.add": 1}
    assert counts(found)["Torch.add"] == 1
    assert "paddle: paddle.add" in str(found)


def test_one_framework_of_two() -> None:
    with timing(framework="paddle") as found:
        paddle.add(a, b)
        torch.add(torch.ones(3), 1)
    assert (counts(found, "paddle"), counts(found)) == ({"paddle.add": 1}, {})


def test_a_compiled_region_is_one_row(caplog: pytest.LogCaptureFixture) -> None:
    @paddle.jit.to_static  # type: ignore[untyped-decorator]
    def compiled(x: Any) -> Any:
        return x.sin() + 1

    compiled(a)
    found = timed(lambda: [compiled(a) for _ in range(4)] and paddle.exp(a))
    assert found == {"paddle.jit.to_static": 4, "paddle.exp": 1}
    assert caplog.text.count("paddle.jit.to_static is one row") == 1
