from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pytest_probe import timing
from pytest_probe.capture.timing import Timed


def counts(timed: Timed, framework: str = "pytorch") -> Counter[str]:
    rows = ((api, spent) for api, spent in timed.rows() if api.framework == framework)
    return Counter({f"{api.name}{' backward' * (api.direction == 'backward')}": spent.calls for api, spent in rows})


def counted(kit: Any, program: Callable[[], Any], **options: Any) -> Counter[str]:
    with timing(**options) as found:
        program()
    return counts(found, kit.FRAMEWORK)


def in_thread(program: Callable[[], Any]) -> None:
    thread = threading.Thread(target=program)
    thread.start()
    thread.join()


# The call, and its name in a dump: {top}, {tensor} and {functional} are the places of the framework.
KINDS: dict[str, tuple[Callable[[Any, Any], Any], str, int]] = {
    "function": (lambda P, a: P.add(a, a), "{top}.add", 1),
    "operator": (lambda P, a: a + a, "{tensor}.__add__", 1),
    "getitem": (lambda P, a: a[0], "{tensor}.__getitem__", 1),
    "functional": (lambda P, a: P.nn.functional.softmax(a, -1), "{functional}.softmax", 1),
    "factory": (lambda P, a: P.zeros([3]), "{top}.zeros", 1),
    "list of tensors": (lambda P, a: P.concat([a, a]), "{top}.concat", 1),
    "thread": (lambda P, a: in_thread(lambda: P.add(a, a)), "{top}.add", 1),
    "many": (lambda P, a: [P.exp(a) for _ in range(3_000)], "{top}.exp", 3_000),
    "without gradients": (lambda P, a: P.no_grad()(lambda: P.exp(a))(), "{top}.exp", 1),
    "attribute": (lambda P, a: (a.shape, a.dtype), "", 0),
}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_call_is_counted_once(kit: Any, kind: str, nested: bool) -> None:
    program, text, calls = KINDS[kind]
    a = kit.P.ones([3])
    found = counted(kit, lambda: program(kit.P, a), nested=nested)
    name = text.format(top=kit.TOP, tensor=kit.TENSOR, functional=kit.FUNCTIONAL)
    assert found[name] == calls
    assert nested or set(found) <= {name}


def test_names_that_were_imported_before_are_seen_and_stay(kit: Any) -> None:
    before, a = kit.relu, kit.P.ones([3])
    assert counted(kit, lambda: kit.relu(a)) == {f"{kit.FUNCTIONAL}.relu": 1}
    assert kit.relu is before is kit.F.relu
    assert counted(kit, lambda: None) == {}


def test_nested_total_is_self_and_children(kit: Any) -> None:
    square = kit.P.ones([3, 3])
    with timing(nested=True) as found:
        kit.F.layer_norm(square, [3])
        kit.P.nn.Linear(3, 3)(square)
    rows = {api.name: spent for api, spent in found.rows()}
    assert sum(spent.own for spent in rows.values()) <= sum(spent.total for spent in rows.values())
    assert rows[f"{kit.FUNCTIONAL}.linear"].calls == 1
    assert len(rows) > 3


def train(kit: Any) -> list[Any]:
    P, nn = kit.P, kit.P.nn
    P.seed(0) if kit.FRAMEWORK == "paddle" else P.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 3)), P.ones([3, 3])
    optimizer = kit.sgd(model.parameters())
    for _ in range(3):
        loss = kit.F.cross_entropy(kit.RECOMPUTING[-1](model, x), P.arange(3))
        loss.backward()
        optimizer.step()
    return [parameter.tolist() for parameter in model.parameters()]


@pytest.mark.parametrize(
    "options", [{}, {"nested": True}, {"backward": True}, {"nested": True, "backward": True, "by_shape": True}]
)
def test_a_program_computes_the_same(kit: Any, options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    plain = train(kit)
    with timing(**options) as found:
        watched = train(kit)
    assert watched == plain
    whole = {"pytorch": "Torch.autograd.backward", "paddle": "paddle.Tensor.backward"}[kit.FRAMEWORK]
    assert counts(found, kit.FRAMEWORK)[whole] == 3
    assert kit.FRAMEWORK == "pytorch" or ("its whole backward is one row" in caplog.text) == ("backward" in options)


def test_a_compiled_region_is_one_row(kit: Any, caplog: pytest.LogCaptureFixture) -> None:
    a, compiled = kit.P.ones([3]), kit.compiled(lambda x: x.sin() + 1)
    compiled(a)
    found = counted(kit, lambda: [compiled(a) for _ in range(4)] and kit.P.exp(a))
    assert sorted(found.values()) == [1, 4]
    assert found[f"{kit.TOP}.exp"] == 1
    assert max(found, key=lambda name: found[name]).endswith(kit.COMPILER)
    assert caplog.text.count("is one row") == 1


def test_paddle_and_torch_are_told_apart() -> None:
    paddle, torch = pytest.importorskip("paddle"), pytest.importorskip("torch")
    a, b = paddle.ones([3]), torch.ones(3)
    for framework, expected in ((None, {"Torch.add": 1}), ("paddle", {})):
        with timing(framework=framework) as found:
            paddle.add(a, a)
            torch.add(b, b)
        assert (counts(found, "paddle"), counts(found)) == ({"paddle.add": 1}, expected)
    assert "paddle.add" in str(found)
