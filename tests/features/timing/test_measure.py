"""What is measured of a case: which call, on which inputs, and what it moves and computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pytest_probe.features.timing import measure
from pytest_probe.features.timing.blocks import Ceilings
from pytest_probe.features.timing.measure import SETS, CaseCall, TimeAndMemory, input_sets
from pytest_probe.features.timing.subject import Subject, Work, work
from pytest_probe.frameworks.base import looked_up
from pytest_probe.frameworks.torch.framework import TorchFramework
from pytest_probe.model.measurement import CaseTime
from pytest_probe.model.run import Arguments, Leaf, MemoryUse
from pytest_probe.registry import Registry
from tests.check.conftest import Bench, Make, normal
from tests.support.devices import Emulated
from tests.support.fake_clock import Machine
from tests.support.fake_clock import machine as machine

MEGA = 1 << 20
TIMED = {"measuring": TimeAndMemory(0.05)}
ALONE = {**TIMED, "judged": False}
COUNTED = {"measuring": TimeAndMemory(memory=True)}
# Judged as well or not, on the CPU and on a device of a project's own.
HOW: dict[str, dict[str, Any]] = {
    "judged": TIMED,
    "alone": ALONE,
    "judged, on sim": {**TIMED, "device": "sim"},
    "alone, on sim": {**ALONE, "device": "sim"},
}

pytestmark = pytest.mark.usefixtures("machine")


def registry() -> Registry:
    found = Registry.default()
    found.devices["sim"] = Emulated
    return found


def measured(bench: Bench, direction: str = "forward") -> tuple[CaseTime, Subject]:
    found = bench.run(direction)
    assert isinstance(found.subject, CaseCall), found.verdict
    assert found.verdict.time is not None
    return found.verdict.time, found.subject.subject


@pytest.mark.parametrize("how", HOW)
def test_the_call_is_the_recorded_one(bench: Make, how: str) -> None:
    x = normal(6, 5).requires_grad_()
    made = bench("Functional.softmax", F.softmax, x, dim=1, backward=True, request=HOW[how], registry=registry())
    for direction in ("forward", "backward"):
        time, found = measured(made, direction)
        assert time.median_us is not None
        assert found.bound.name == "softmax"
        assert found.call.wanted is not None
        assert (found.call.wanted.names, found.call.wanted.copies) == (frozenset(["input.0"]), False)
        assert (found.call.incoming is not None) == (direction == "backward")
        assert (time.input_shapes, time.output_shapes) == (((6, 5),), ((6, 5),))
        assert found.input_bytes == 120


@pytest.mark.parametrize("how", HOW)
def test_both_ways_measure_the_same_call(bench: Make, how: str) -> None:
    """Of batch_norm the reference asks for gradients on copies, since it writes its statistics."""
    x, weight = normal(4, 3, 2).requires_grad_(), torch.ones(3, requires_grad=True)
    made = bench(
        "Functional.batch_norm", F.batch_norm, x, torch.zeros(3), torch.ones(3), weight, None, True,
        backward=True, request=HOW[how], registry=registry(),
    )  # fmt: skip
    for direction in ("forward", "backward"):
        call = measured(made, direction)[1].call
        assert call.wanted is not None
        assert (call.wanted.names, call.wanted.copies) == (frozenset(["input.0", "input.3"]), False)
        assert direction == "backward" or call.writes == frozenset(["input.1", "input.2"])


@pytest.mark.parametrize("how", HOW)
def test_an_in_place_call_writes_to_copies(bench: Make, how: str) -> None:
    made = bench("Tensor.add_", torch.Tensor.add_, normal(3), normal(3), request=HOW[how], registry=registry())
    assert measured(made)[1].call.writes == frozenset(["input.0"])


def test_a_recorded_autocast_holds(bench: Make) -> None:
    x, weight = normal(4, 8), normal(3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        made = bench("Functional.linear", F.linear, x, weight, request=ALONE)
    found = measured(made)[1]
    assert found.call.way.autocast == "bfloat16"
    assert found.outputs["output.0"] == ((4, 3), 24)


def test_arguments_that_kernels_do_not_check_are_checked_before_a_time_is_asked_for(bench: Make) -> None:
    def out_of_range(data: dict[str, Any]) -> None:
        data["Functional.embedding.0.forward"]["input_args"][0] |= {"Max": 90, "Min": 90}

    index = torch.tensor([1, 2])
    made = bench("Functional.embedding", F.embedding, index, normal(4, 2), edit=out_of_range, request=ALONE)
    assert made.check().verdict in ("skip", "pass")


# Inputs


@pytest.mark.parametrize(
    ("size", "cache", "expected"),
    [
        (0, 32 * MEGA, (1, "warm")),
        (4096, 32 * MEGA, (1, "warm")),
        (4096, 0, (1, "warm")),
        (64 * MEGA // SETS - 1, 32 * MEGA, (1, "warm")),
        (64 * MEGA // SETS, 32 * MEGA, (SETS, "cold")),
        (24 * MEGA, 32 * MEGA, (3, "cold")),
        (65 * MEGA, 32 * MEGA, (1, "cold")),
    ],
)
def test_so_many_sets_as_fill_the_cache_twice(size: int, cache: int, expected: tuple[int, str]) -> None:
    assert input_sets(size, cache) == expected


def test_cold_inputs_take_turns(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TorchFramework, "last_level_cache", lambda self, device: 1024)
    time, _ = measured(bench("Torch.exp", torch.exp, normal(100), request=TIMED))
    assert (time.inputs, time.sets) == ("cold", 6)


def of_arrays(*arrays: Any) -> Subject:
    from pytest_probe import frameworks
    from pytest_probe.model.run import MeasuredCall, Way

    framework = frameworks.load("pytorch")
    device = framework.device("cpu")
    arguments = Arguments(tuple(map(Leaf, arrays)), {}, None)
    bound = frameworks.signatures().bind("Torch.add", arguments.args, {})
    return Subject(framework, device, MeasuredCall(torch.add, arguments, Way(device=device)), bound, {})


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("value", [0.0, 3.0, -2.0])
def test_equal_numbers_are_varied_for_the_time(dtype: str, value: float) -> None:
    (leaf,) = of_arrays(np.full((5, 4), value, dtype)).varied("Torch.add.0", 0).leaves.values()
    assert leaf.array.dtype == dtype
    assert len(np.unique(leaf.array)) > 10
    scale = np.abs(leaf.array / (value or 1.0))
    assert 0.49 < scale.min() < scale.max() < 1.51


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.0, 2.0], np.float32),
        np.array(5.0, np.float32),
        np.array([7, 7, 7]),
        np.array([True, True]),
        np.array([-np.inf, -np.inf], np.float32),
        np.zeros(0, np.float32),
    ],
    ids=str,
)
def test_all_else_stays_as_it_is(array: Any) -> None:
    (leaf,) = of_arrays(array).varied("Torch.add.0", 0).leaves.values()
    assert leaf.array is array


# Throughput


@pytest.mark.parametrize(
    ("name", "function", "args", "forward", "backward"),
    [
        ("Functional.linear", F.linear, (normal(4, 8), normal(3, 8)), Work(272, 192.0, True), Work(496, 384.0, True)),
        ("Torch.mul", torch.mul, (normal(10), normal(10)), Work(120, 10.0, False), Work(120, 10.0, False)),
        ("Torch.sum", torch.sum, (normal(10),), Work(44, 10.0, False), Work(44, 10.0, False)),
        ("Functional.conv2d", F.conv2d, (normal(1, 2, 5, 5), normal(3, 2, 1, 1)), Work(524, 300.0, True), None),
        ("Torch.sort", torch.sort, (normal(10),), None, None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_call_moves_and_computes(
    bench: Make,
    name: str,
    function: Callable[..., Any],
    args: tuple[torch.Tensor, ...],
    forward: Work | None,
    backward: Work | None,
) -> None:
    args = tuple(arg.requires_grad_() for arg in args)
    made = bench(name, function, *args, backward=backward is not None, request=TIMED)
    assert work(measured(made)[1]) == forward
    if backward is not None:
        assert work(measured(made, "backward")[1]) == backward


def test_products_are_told_beside_the_devices_ceilings(
    bench: Make, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.costs |= {"linear": 1.1e-3, "_copy": 2.1e-3, "matmul": 4.1e-3}
    found, _ = measured(bench("Functional.linear", F.linear, normal(40, 80), normal(30, 80), request=TIMED))
    told = found.throughput
    assert told is not None
    assert told.gflop_per_s == pytest.approx(2 * 40 * 80 * 30 / 1e-3 / 1e9, rel=1e-3)
    assert told.product_gflop_per_s == pytest.approx(2 * 512**3 / 4e-3 / 1e9, rel=1e-3)
    assert told.copy_gb_per_s is not None


def test_ceilings_are_measured_once(bench: Make, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    right = Ceilings._seconds

    def seconds(self: Ceilings, *args: Any) -> float | None:
        made.append(args[0])
        return right(self, *args)

    monkeypatch.setattr(Ceilings, "_seconds", seconds)
    found = bench("Functional.linear", F.linear, normal(4, 8), normal(3, 8), request=TIMED)
    measured(found)
    measured(found)
    assert len(made) == 2


# Memory


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("judged", [True, False])
def test_an_extra_buffer_is_seen(bench: Make, device: str, judged: bool) -> None:
    def greedy(x: torch.Tensor) -> torch.Tensor:
        buffer = torch.empty(MEGA) if x.dtype is torch.float32 else None  # 4 MB
        result = torch.exp(x)
        del buffer
        return result

    peaks = []
    for function in (None, greedy):
        mine = registry()
        if function is not None:
            mine.calls["Torch.exp"] = function
        made = bench(
            "Torch.exp", torch.exp, normal(1000), registry=mine,
            request={**COUNTED, "judged": judged, "device": device},
        )  # fmt: skip
        verdict = made.check()
        assert verdict.memory is not None
        assert verdict.time is None
        assert (verdict.memory.growth_bytes, verdict.memory.input_bytes) == (4000, 4000)
        peaks.append(verdict.memory.peak_bytes or 0)
    assert peaks[0] == 4000
    assert abs(peaks[1] - peaks[0] - 4 * MEGA) <= 4096


def test_what_nothing_counts_is_not_zero(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TorchFramework, "memory_use", lambda self, device, call: None)
    memory = bench("Torch.exp", torch.exp, normal(10), request=COUNTED).check().memory
    assert memory is not None
    assert (memory.peak_bytes, memory.growth_bytes, memory.input_bytes) == (None, None, 40)
    assert memory.reason == measure.UNCOUNTED


def test_what_a_first_call_keeps_counts_for_no_case(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(self: Any, device: Any, call: Callable[[], object]) -> MemoryUse:
        made.append(1)
        call()
        return MemoryUse(1, 1, "test")

    calls: list[int] = []
    mine = registry()

    def exp(x: torch.Tensor) -> torch.Tensor:
        calls.append(len(made))
        return torch.exp(x)

    mine.calls["Torch.exp"] = exp
    monkeypatch.setattr(TorchFramework, "memory_use", counted)
    bench("Torch.exp", torch.exp, normal(10), registry=mine, request={**COUNTED, "judged": False}).check()
    # The run that finds the call, one before the counting, and the one that is counted.
    assert calls == [0, 0, 1]


@pytest.mark.parametrize("error", [MemoryError("no room"), RuntimeError("wrong shape")], ids=repr)
def test_what_raises_in_the_measurement_has_a_reason(
    bench: Make, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise error

    monkeypatch.setattr(measure, "times", broken)
    monkeypatch.setattr(TorchFramework, "memory_use", broken)
    verdict = bench("Torch.exp", torch.exp, normal(10), request={"measuring": TimeAndMemory(0.05, memory=True)}).check()
    assert verdict.verdict == "pass"
    assert verdict.time is not None
    assert verdict.memory is not None
    assert str(error) in verdict.time.reason
    assert str(error) in verdict.memory.reason
    assert verdict.time.median_us is None


def test_a_call_without_gradients_on_the_device_is_not_measured(bench: Make) -> None:
    mine = registry()
    mine.calls["Torch.exp"] = lambda x: torch.exp(x.detach())
    made = bench("Torch.exp", torch.exp, normal(10).requires_grad_(), backward=True, registry=mine, request=ALONE)
    verdict = made.check("backward")
    assert (verdict.verdict, verdict.kind) == ("skip", "not measured")
    assert "no output of the device can be differentiated" in verdict.reason


@pytest.mark.parametrize("how", HOW)
def test_incoming_gradients_go_to_their_outputs(bench: Make, how: str) -> None:
    """Of more outputs than ten, whose names in the order of letters are in another one."""
    x = torch.arange(12.0).requires_grad_()
    made = bench("Tensor.unbind", torch.Tensor.unbind, x, backward=True, request=HOW[how], registry=registry())
    _, found = measured(made, "backward")
    assert found.call.incoming is not None
    assert list(found.call.incoming) == [f"output.{number}" for number in range(12)]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotImplementedError('"exp" not implemented for Float'), "unsupported by the device"),
        (ValueError, "not measured"),
    ],
)
def test_a_device_that_raises_is_a_skip(bench: Make, error: Exception, kind: str) -> None:
    def raising(x: torch.Tensor) -> torch.Tensor:
        raise error

    mine = registry()
    mine.calls["Torch.exp"] = raising
    verdict = bench("Torch.exp", torch.exp, normal(10), registry=mine, request=ALONE).check()
    assert (verdict.verdict, verdict.kind) == ("skip", kind)


def test_a_call_near_an_empty_one_has_no_throughput(bench: Make, machine: Machine) -> None:
    machine.costs["exp"] = 1.9e-4
    time, _ = measured(bench("Torch.exp", torch.exp, normal(10), request=TIMED))
    assert (time.note, time.throughput) == ("too short", None)


def test_functions_are_looked_up_before_they_are_timed(bench: Make) -> None:
    _, found = measured(bench("Torch.exp", torch.exp, normal(10), request=TIMED))
    assert found.call.function is torch.exp
    assert looked_up(torch.exp) is torch.exp
