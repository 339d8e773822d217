"""What the timing of torch's calls sees, beside what test_timing.py asks of each framework."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pytest_probe import timing
from pytest_probe.capture.profiling import track
from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.torch import nodes
from pytest_probe.capture.torch.timing import TorchTiming
from tests.capture.test_timing import counts

a, b = torch.ones(3), torch.ones(3)
square = torch.ones(3, 3)


def timed(program: Callable[[], Any], **options: Any) -> Counter[str]:
    with timing(**options) as found:
        program()
    return counts(found)


def in_place() -> None:
    c = a.clone()
    c += b
    c[0] = 1


KINDS: dict[str, tuple[Callable[[], Any], dict[str, int]]] = {
    "method": (lambda: a.add(b), {"Tensor.add": 1}),
    "reflected operator": (lambda: 2 - a, {"Tensor.__rsub__": 1}),
    "in place": (in_place, {"Tensor.clone": 1, "Tensor.__iadd__": 1, "Tensor.__setitem__": 1}),
    "composed": (lambda: F.cross_entropy(square, torch.arange(3)), {"Functional.cross_entropy": 1, "Torch.arange": 1}),
    "linalg": (lambda: torch.linalg.norm(a), {"Torch.linalg.norm": 1}),
    "operator of aten": (lambda: torch.ops.aten.add.Tensor(a, b), {"Aten.add.Tensor": 1}),
    "out": (lambda: torch.add(a, b, out=torch.empty(3)), {"Torch.add": 1, "Torch.empty": 1}),
    "module": (lambda: nn.Linear(3, 2)(a), {"Functional.linear": 1}),
    "pooling": (lambda: F.max_pool1d(torch.ones(1, 1, 4), 2), {"Functional.max_pool1d": 1, "Torch.ones": 1}),
    "question": (lambda: (a.size(), a.item() if a.numel() == 1 else None), {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_call_is_counted_once(kind: str) -> None:
    program, expected = KINDS[kind]
    found = timed(program)
    # Modules that are made here draw their parameters.
    assert {name: found[name] for name in found if not name.endswith(("uniform_", "empty"))} == {
        name: count for name, count in expected.items() if not name.endswith("empty")
    }
    nested = timed(program, nested=True)
    assert kind in ("module", "out") or {name: nested[name] for name in expected} == expected


def test_an_lstm_is_one_call() -> None:
    model, x = nn.LSTM(3, 2), torch.ones(4, 1, 3)
    assert timed(lambda: model(x))["VF.lstm"] == 1


def test_nested_sees_calls_inside_calls() -> None:
    assert timed(lambda: F.softmax(a, -1), nested=True) == {"Functional.softmax": 1, "Tensor.softmax": 1}
    found = timed(lambda: F.multi_head_attention_forward(*attention()), nested=True)
    assert found["Functional.multi_head_attention_forward"] == 1
    assert found["Functional.linear"] >= 1
    assert found["Functional.scaled_dot_product_attention"] + found["Torch.bmm"] + found["Torch.baddbmm"] >= 1


def attention() -> tuple[Any, ...]:
    x, d = torch.ones(2, 1, 4), 4
    return (x, x, x, d, 2, torch.ones(3 * d, d), torch.ones(3 * d), None, None, False, 0.0, torch.ones(d, d), None)


class Subclass(torch.Tensor):
    pass


class Other(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("nested", [False, True])
def test_subclasses_and_modes_of_the_program_go_on_working(nested: bool) -> None:
    with Other(), timing(nested=nested) as found:
        assert torch.equal(F.relu(a), a)
    assert counts(found)["Functional.relu"] == 1
    with timing(nested=nested) as found, Other():
        assert torch.equal(F.relu(a), a)
    assert counts(found)["Functional.relu"] == 1
    with timing(nested=nested) as found:
        assert type(F.relu(a.as_subclass(Subclass))) is Subclass
    assert counts(found)["Functional.relu"] == 1


def test_backward_has_a_row_for_each_call_with_all_its_nodes() -> None:
    x = torch.ones(3, 3, requires_grad=True)

    def program() -> None:
        loss = F.cross_entropy(torch.exp(x).sin(), torch.arange(3))
        loss.backward()

    with timing(backward=True) as found:
        program()
        with torch.no_grad():
            torch.exp(x)
    rows = {(api.name, api.direction): spent for api, spent in found.rows()}
    # cross_entropy makes two nodes: they are one backward.
    backward = {name: spent for (name, direction), spent in rows.items() if direction == "backward"}
    assert {name: spent.calls for name, spent in backward.items()} == {
        "Functional.cross_entropy": 1,
        "Torch.exp": 1,
        "Tensor.sin": 1,
    }
    engine = rows["Torch.autograd.backward", "forward"]
    assert engine.total == pytest.approx(engine.own + sum(spent.total for spent in backward.values()))


def test_nested_backward_belongs_to_the_innermost_call() -> None:
    x = torch.ones(3, requires_grad=True)
    found = timed(lambda: F.relu(x).sum().backward(), nested=True, backward=True)
    assert found["Torch.relu backward"] == 1
    assert "Functional.relu backward" not in found


def test_a_graph_that_is_kept_counts_each_backward() -> None:
    x = torch.ones(3, requires_grad=True)

    def program() -> None:
        y = x.exp().sum()
        y.backward(retain_graph=True)
        y.backward()

    assert timed(program, backward=True)["Tensor.exp backward"] == 2


def test_a_graph_that_lives_longer_than_the_timing_goes_on_working() -> None:
    x = torch.ones(3, requires_grad=True)
    with timing(backward=True):
        y = x.exp().sum()
    y.backward()
    assert torch.equal(x.grad, x.detach().exp())  # type: ignore[arg-type]


class Unhashable:
    """As a dataclass is that compares by its fields."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *gradients: Any) -> None:
        self.calls += 1


def test_hooks_of_the_program_stand_beside_those_of_the_timing() -> None:
    x = torch.ones(3, requires_grad=True)
    hooks = [Unhashable() for _ in range(4)]
    with timing(backward=True) as found:
        y = x.exp()
        node: Any = y.grad_fn
        handles = [node.register_prehook(hooks[0]), node.register_hook(hooks[1])]
        handles += [node.register_prehook(hooks[2]), node.register_hook(hooks[3])]
        handles[2].remove()
        handles[3].remove()
        y.sum().backward(retain_graph=True)
    # The graph lives on.
    handles.append(node.register_hook(hooks[2]))
    y.sum().backward()
    assert [hook.calls for hook in hooks] == [2, 2, 1, 0]
    assert counts(found)["Tensor.exp backward"] == 1


def test_torch_registers_hooks_and_hands_calls_over_as_before() -> None:
    before = (torch.autograd.Function._register_hook, F.handle_torch_function)  # type: ignore[attr-defined]
    with timing(backward=True), timing(backward=True):
        assert F.handle_torch_function is not before[1]  # type: ignore[attr-defined]
    assert (torch.autograd.Function._register_hook, F.handle_torch_function) == before  # type: ignore[attr-defined]
    assert "_register_hook" not in vars(torch.autograd.Function)


def test_a_module_that_is_imported_meanwhile_goes_on_working() -> None:
    with timing():
        from torch.overrides import handle_torch_function
    with Other():
        assert torch.equal(handle_torch_function(F.relu, (a,), a), a)
    assert type(handle_torch_function(F.relu, (a.as_subclass(Subclass),), a.as_subclass(Subclass))) is Subclass
    with timing() as found:
        assert torch.equal(handle_torch_function(F.relu, (a,), a, inplace=False), a)
    assert counts(found)["Functional.relu"] == 1


@pytest.mark.parametrize("nested", [False, True])
def test_what_a_function_in_python_raises_leaves_the_mode_on(nested: bool) -> None:
    with timing(nested=nested) as found:
        with pytest.raises(IndexError, match="Dimension out of range"):
            F.softmax(a, 7)
        with pytest.raises(TypeError, match="unsupported operand"):
            object() - a  # type: ignore[operator]
        F.softmax(a, 0)
    ((_, spent),) = [row for row in found.rows() if row[0].name == "Functional.softmax"]
    assert (spent.calls, spent.errors) == (1, 1)


def test_shapes_are_told() -> None:
    with timing(by_shape=True) as found:
        torch.cat([a, b])
        torch.add(square, other=a)
        torch.arange(3)
    assert {(api.name, api.shapes) for api, _ in found.rows() if api.shapes} == {
        ("Torch.cat", "float32[3], float32[3]"),
        ("Torch.add", "float32[3, 3], other=float32[3]"),
        ("Torch.arange", "no tensors"),
    }


class Shapeless(torch.Tensor):
    @property
    def shape(self) -> torch.Size:  # type: ignore[override]
        raise AttributeError("no shape")


def test_tensors_that_tell_no_shape_reach_the_program_as_they_are() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    with timing(by_shape=True) as found:
        doubled = nested * 2
        other = torch.ones(2).as_subclass(Shapeless).exp()
    assert [part.sum().item() for part in doubled.unbind()] == [12.0, 24.0]
    assert type(other) is Shapeless
    assert {api.shapes for api, _ in found.rows() if api.name in ("Tensor.__mul__", "Tensor.exp")} == {"", "tensor[?]"}


def test_a_graph_that_cannot_be_walked_is_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, *args: Any) -> Any:
        raise RuntimeError("no nodes")

    monkeypatch.setattr(nodes.Nodes, "_watch", broken)
    x = torch.ones(3, requires_grad=True)
    found = timed(lambda: x.exp().aminmax()[0].sum().backward(), backward=True)
    assert found["Tensor.exp"] == found["Tensor.aminmax"] == found["Tensor.sum"] == 1
    assert x.grad is not None
    # Where Paddle has been imported, its own note about gradients stands beside this one.
    assert [record.message for record in caplog.records if "no nodes" in record.message] == [
        "pytest-probe: the gradients of a call of Tensor.aminmax have no time (RuntimeError: no nodes)"
    ]


class Slow(torch.overrides.TorchFunctionMode):
    """exp takes 1 s more, in all its calls or in the first one only, by a clock that goes forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
        super().__init__()
        self._left = calls
        self._later = 0
        now = track.now
        monkeypatch.setattr(track, "now", lambda: now() + self._later)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.exp and self._left:
            self._left -= 1
            self._later += 10**9
        return function(*args, **(kwargs or {}))


def test_a_mode_that_is_left_on_a_thread_keeps_no_function() -> None:
    mode = TorchTiming(Stopwatch())
    mode.begin()
    mode.end()

    def function() -> int:
        return 7

    assert mode.__torch_function__(function, ()) == 7
    kept = weakref.ref(function)
    del function
    assert kept() is None


@pytest.mark.parametrize("slow", [1, 5])
def test_what_is_slow_shows_in_its_own_row_alone(slow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with Slow(monkeypatch, slow), timing() as found:
        for _ in range(5):
            torch.exp(a)
            F.gelu(a)
    rows = {api.name: spent for api, spent in found.rows()}
    exp, gelu = rows["Torch.exp"], rows["Functional.gelu"]
    assert exp.first is not None
    assert exp.first > 9e5
    assert exp.p50 is not None
    assert (exp.p50 > 9e5) == (slow == 5)
    assert gelu.total < 9e5
