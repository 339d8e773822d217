from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import PrecisionDebugger, capture
from pytest_probe.capture.paddle import hooks
from tests.support.capturing import content, entries, forwards
from tests.support.capturing import recorded as recorded_by

F = paddle.nn.functional
softmax = F.softmax
recorded = partial(recorded_by, framework="paddle")


def test_functions_methods_operators_and_indices(tmp_path: Path) -> None:
    def program() -> None:
        x = paddle.ones([2, 3])
        y = (x + 1.0).reshape([3, 2])
        y[0] = 2.0
        paddle.add(y[:1], y.add(y))
        softmax(y)

    assert forwards(recorded(tmp_path, program)) == [
        *("paddle.ones.0", "paddle.Tensor.__add__.0", "paddle.reshape.0", "paddle.Tensor.__setitem__.0"),
        *("paddle.Tensor.__getitem__.0", "paddle.add.0", "paddle.add.1", "paddle.nn.functional.softmax.0"),
    ]
    assert content(tmp_path)["framework"] == "paddle"


def test_operators_without_a_public_function_above(tmp_path: Path) -> None:
    conv, lstm = paddle.nn.Conv2D(1, 2, 3), paddle.nn.LSTM(2, 3)
    parameters = [*conv.parameters(), *lstm.parameters()]
    optimizer = paddle.optimizer.AdamW(0.1, parameters=parameters)

    def program() -> None:
        (conv(paddle.ones([1, 1, 5, 5])).sum() + lstm(paddle.ones([2, 4, 2]))[0].sum()).backward()
        optimizer.step()

    found = forwards(recorded(tmp_path, program))
    assert {"paddle._C_ops.conv2d.0", "paddle._C_ops.rnn.0", "paddle._C_ops.adamw_.0"} <= set(found)
    assert sum(name.startswith("paddle._C_ops.adamw_") for name in found) == len(parameters)


def test_the_outermost_call_counts_in_each_thread(tmp_path: Path) -> None:
    def program() -> None:
        F.cross_entropy(paddle.ones([2, 3]), paddle.zeros([2], "int64"))
        thread = threading.Thread(target=lambda: paddle.tanh(paddle.ones([1])))
        thread.start()
        thread.join()

    expected = ["paddle.ones.0", "paddle.zeros.0", "paddle.nn.functional.cross_entropy.0", "paddle.ones.1"]
    assert forwards(recorded(tmp_path, program)) == [*expected, "paddle.tanh.0"]


def bindings() -> dict[tuple[str, str], int]:
    owners = [(name, module) for name, module in sys.modules.items() if name.partition(".")[0] in ("paddle", "tests")]
    found = {(name, key): id(value) for name, module in owners for key, value in list(vars(module).items())}
    return found | {("Tensor", key): id(value) for key, value in vars(paddle.Tensor).items()}


def test_functions_are_back_after_stop(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=tmp_path, framework="paddle")
    before = bindings()
    for _ in range(2):
        debugger.start()
        assert len([1 for key, value in bindings().items() if before.get(key, value) != value]) > 1500
        debugger.stop()
        assert {key: value for key, value in bindings().items() if key in before} == before
    debugger.close()


def test_what_was_taken_while_recording_is_put_back_and_records_no_longer(tmp_path: Path) -> None:
    module = type(sys)("tests.taken_while_recording")
    with capture(tmp_path, framework="paddle"):
        kept = F.softmax
        module.softmax = F.softmax  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
    assert kept is not F.softmax
    try:
        assert module.softmax is F.softmax
        kept(paddle.ones([2]))
    finally:
        del sys.modules[module.__name__]


def test_recorded_functions_keep_their_signatures(tmp_path: Path) -> None:
    before = inspect.getfullargspec(F.softmax), inspect.signature(paddle.matmul), F.softmax.__name__
    with capture(tmp_path, framework="paddle"):
        assert (inspect.getfullargspec(F.softmax), inspect.signature(paddle.matmul), F.softmax.__name__) == before
        assert F.softmax.__wrapped__.__module__ == F.softmax.__module__


@pytest.mark.parametrize(
    "write",
    [
        lambda x, view: view.scale_(3.0),
        lambda x, view: paddle.assign(paddle.full([3], 6.0), output=view),
        lambda x, view: view.fill_(6.0),
        lambda x, view: paddle.add(paddle.full([3], 2.0), paddle.full([3], 4.0), out=view),
        lambda x, view: x.set_value(np.full([3], 6.0, np.float32)),
        lambda x, view: x.copy_(paddle.full([3], 6.0), True),
        lambda x, view: paddle._C_ops.sgd_(view, paddle.ones([1]), paddle.full([3], -4.0), None, False),
    ],
)
def test_a_write_to_a_tensor_makes_new_statistics(write: Callable[[Any, Any], object], tmp_path: Path) -> None:
    x = paddle.full([3], 2.0)
    view = x.reshape([3])

    def program() -> None:
        paddle.sign(x)
        write(x, view)
        paddle.sign(x)

    found = recorded(tmp_path, program)
    first, second = (found[f"paddle.sign.{number}.forward"]["input_args"][0] for number in (0, 1))
    assert [first["Max"], second["Max"]] == [2.0, 6.0]


def test_no_grad_and_the_default_dtype_are_recorded(tmp_path: Path) -> None:
    x = paddle.ones([2])
    x.stop_gradient = False

    def program() -> None:
        x * 2.0
        with paddle.no_grad():
            x * 2.0
        paddle.set_default_dtype("float64")
        paddle.rand([2])
        paddle.set_default_dtype("float32")

    first, second, third = recorded(tmp_path, program).values()
    assert second["probe"] == {"grad": False}
    assert third["probe"]["default_dtype"] == "float64"
    assert len(third["probe"]["rng"]) > 20
    assert [first["output"][0]["requires_grad"], second["output"][0]["requires_grad"]] == [True, False]


def test_autocast_is_recorded_where_paddle_casts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on its CPU, so that a tracer says so here that Paddle does not ask."""
    level = paddle.base.core.AmpLevel
    monkeypatch.setattr(hooks, "_AMP", True)
    tracer = SimpleNamespace(_amp_level=level.O1, _amp_dtype="bfloat16")
    monkeypatch.setattr(hooks, "_tracer", lambda: tracer)

    def program() -> None:
        paddle.ones([2])
        tracer._amp_level = level.O0
        paddle.ones([2])

    first, second = recorded(tmp_path, program).values()
    assert first["probe"] == {"autocast": {"cpu": "bfloat16"}}
    assert "probe" not in second


def test_gradients_are_sums_over_all_uses(tmp_path: Path) -> None:
    x = paddle.ones([3])
    x.stop_gradient = False

    def program() -> None:
        y = x * 2.0
        (y * 3.0 + y * 4.0).sum().backward()

    entry = recorded(tmp_path, program)["paddle.Tensor.__mul__.0.backward"]
    assert entry["input"][0]["Max"] == entry["input"][0]["Min"] == 7.0
    assert entry["probe"] == {"outputs": ["output.0"], "inputs": []}
    assert "output" not in entry


def test_outputs_that_nothing_used_have_no_gradient(tmp_path: Path) -> None:
    x = paddle.arange(6, dtype="float32").reshape([2, 3])
    x.stop_gradient = False
    found = recorded(tmp_path, lambda: paddle.split(x, 3, axis=1)[1].sum().backward())
    backward = found["paddle.split.0.backward"]
    assert backward["probe"]["outputs"] == ["output.0", "output.1", "output.2"]
    assert [each["Max"] for each in backward["input"] if each is not None].count(1.0) == 1


def test_leaves_keep_no_hook(tmp_path: Path) -> None:
    made = []

    def program() -> None:
        made.append(paddle.create_parameter([2], "float32"))
        made.append(paddle.to_tensor([1.0, 2.0], stop_gradient=False))
        (made[0] * made[1]).sum().backward()

    found = recorded(tmp_path, program)
    assert [name for name in found if name.endswith("backward")] == [
        "paddle.sum.0.backward",
        "paddle.Tensor.__mul__.0.backward",
    ]


def test_a_hook_that_fails_leaves_the_backward_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_probe.capture.patched_functions import WatchedOutputs

    def fails(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(WatchedOutputs, "on_gradient", fails)
    x = paddle.ones([3])
    x.stop_gradient = False
    found = recorded(tmp_path, lambda: (x * 2.0).sum().backward())
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    assert "ZeroDivisionError" in found["paddle.Tensor.__mul__.0.backward"]["probe"]["failed"]


@pytest.mark.parametrize("full_graph", [True, False])
def test_compiled_regions_are_left_alone(full_graph: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def program(x: Any) -> Any:
        return F.softmax(x * 2.0)

    compiled = paddle.jit.to_static(program, full_graph=full_graph)
    with capture(tmp_path, framework="paddle"):
        found = [compiled(paddle.ones([2])).tolist() for _ in range(2)]
    assert found == [[0.5, 0.5]] * 2
    assert forwards(entries(tmp_path)) == ["paddle.ones.0", "paddle.ones.1"]
    assert sum("to_static" in record.getMessage() for record in caplog.records) == 1


def test_static_graphs_are_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paddle.enable_static()
    try:
        with capture(tmp_path, framework="paddle"), paddle.static.program_guard(paddle.static.Program()):
            F.softmax(paddle.static.data("x", [2, 3], "float32") + 1.0)
    finally:
        paddle.disable_static()
    assert not list(tmp_path.iterdir())
    assert sum("static graph" in record.getMessage() for record in caplog.records) == 1


def test_parameters_that_are_used_twice_have_one_gradient_in_each_backward(tmp_path: Path) -> None:
    linear = paddle.nn.Linear(2, 2, bias_attr=False)
    model = paddle.nn.Sequential(linear)
    sums = []

    def program() -> None:
        for _ in range(2):
            linear(linear(paddle.ones([1, 2]))).sum().backward()
            sums.append(float(linear.weight.grad.sum()))

    found = recorded(tmp_path, program, level="L0", model=model)
    gradients = [name for name in found if "parameters_grad" in name]
    assert gradients == ["Module.0.Linear.parameters_grad.0", "Module.0.Linear.parameters_grad.2"]
    first, second = (found[name]["weight"][0]["Mean"] * 4 for name in gradients)
    assert [first, first + second] == pytest.approx(sums, rel=1e-6)
