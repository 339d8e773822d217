from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

from pytest_probe.check import Case, Checker, RunRequest, floating_dtypes, preview
from pytest_probe.model.run import Arguments
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.check.conftest import Function, Make, Plant, failed, judged, normal
from tests.support.gradients import with_gradient

pytestmark = pytest.mark.compat
Tensor = torch.Tensor


# Outputs, changed arguments and gradients: a healthy call, and one that is wrong on the device


def scaled(x: Tensor) -> Tensor:
    """Itself; its gradient is 1.001 times what came in."""
    return with_gradient(x, lambda gradient: gradient * 1.001)


def constants(*places: int) -> Callable[[dict[str, Any]], None]:
    """Arguments that require no grad: torch itself refuses to change what does."""

    def edit(data: dict[str, Any]) -> None:
        forward = next(body for name, body in data.items() if name.endswith("forward"))
        for place in places:
            forward["input_args"][place]["requires_grad"] = False

    return edit


X, Y, IMAGE = normal(5), normal(5, seed=1), normal(8, 4)
MOMENTS = normal(4), normal(4).abs() + 1, normal(4), normal(4)
HALF = torch.bfloat16
Z = [normal(4, 8, dtype=torch.complex64), normal(8, 3, dtype=torch.complex64, seed=1)]
LINEAR = {"weight": normal(3, 8), "bias": normal(3)}
OWNERS = {"Functional": F, "Torch": torch, "Tensor": torch.Tensor}


class Row(NamedTuple):
    """A call, the outputs that are judged, what the device does in its place, and the outputs that are then wrong."""

    api: str
    args: Sequence[Any]
    judged: list[str]
    wrong: Function
    failed: dict[str, str]
    reason: str = ""
    kwargs: Mapping[str, Any] = MappingProxyType({})
    direction: str = "forward"


def backward(*row: Any, **more: Any) -> Row:
    return Row(*row, **more)._replace(direction="backward")


ROWS = {
    "in place, not written": Row(
        "Tensor.add_", [X, Y], ["output.0"], lambda right, x, y: torch.add(x, y), {"input.0": "noise"}
    ),
    "an argument that should stay": Row(
        *("Torch.add", [X, Y], ["output.0"], lambda right, x, y: (right(x, y), y.mul_(2))[0], {"input.1": "mutated"}),
        "input.1: the device changed this argument; the reference does not change it",
        {"edit": constants(1)},
    ),
    "a tensor of a list": Row(
        *("Torch._foreach_add_", [[normal(5), normal(4, seed=1)], 0.5], ["output.0", "output.1"]),
        lambda right, tensors, number: (right(tensors, number), tensors[1].mul_(1.001))[0],
        {"output.1": "noise"},
    ),
    "out": Row(
        *("Torch.add", [X, Y], ["output.0"], lambda right, x, y, out: right(x, y), {"kwargs.out": "noise"}),
        kwargs={"out": torch.zeros(5)},
    ),
    "running statistics": Row(
        *("Functional.batch_norm", (IMAGE, *MOMENTS, True, 0.1), ["output.0", "input.1", "input.2"]),
        lambda right, *args: right(*args[:-1], 0.2),
        {"input.1": "noise", "input.2": "noise"},
        kwargs={"edit": constants(1, 2)},
    ),
    "another shape": Row(
        *("Torch.max", [normal(3, 3), 1], ["output.0", "output.1"]),
        lambda right, x, dim: (right(x, dim)[0][:, None], right(x, dim)[1]),
        {"output.0": "structure"},
        "output.0: shape [3, 1], the reference has [3]",
    ),
    "an output that is missing": Row(
        *("Torch.max", [normal(3, 3), 1], ["output.0", "output.1"], lambda right, x, dim: right(x, dim)[0]),
        {"output.1": "structure"},
        "output.1: the device does not return this",
    ),
    "Python numbers": Row(
        *("Tensor.tolist", [torch.tensor([0.1, -2.0])], ["output.0", "output.1"]),
        lambda right, x: [1.0001 * value for value in right(x)],
        {"output.0": "exact", "output.1": "exact"},
    ),
    "beside an element that overflows": Row(
        *("Torch.exp", [torch.tensor([1.0, 2.0, 3.0, 500.0])], ["output.0"]),
        lambda right, x: right(x) * 1.5,
        {"output.0": "noise"},
    ),
    # A negative number has no power of 1.9999999: all perturbed runs are NaN.
    "beside runs beyond the domain": Row(
        *("Torch.pow", [-torch.arange(1.0, 9), torch.tensor([3.0, 2, 3, 4, 2, 3, 2, 3])], ["output.0"]),
        lambda right, x, y: right(x, y) * 1.5,
        {"output.0": "noise"},
    ),
    "beside runs of another shape": Row(
        *("Torch.unique", [torch.tensor([1.0, 1, 2, 3])], ["output.0"]),
        lambda right, x: right(x) * 1.01,
        {"output.0": "noise"},
    ),
    "a Python float": Row(
        *("Torch.add", [normal(300, dtype=HALF), 0.1], ["output.0"], lambda right, x, number: right(x, 0.11)),
        {"output.0": "noise"},
    ),
    "a conjugated factor": Row(
        "Torch.matmul", Z, ["output.0"], lambda right, x, y: right(x, y.conj()), {"output.0": "noise"}
    ),
    "a gradient of a keyword argument": backward(
        *("Functional.linear", [normal(4, 8)], ["grad.input.0", "grad.kwargs.weight", "grad.kwargs.bias"]),
        lambda right, x, weight, bias: right(x, scaled(weight), bias),
        {"grad.kwargs.weight": "noise"},
        kwargs=LINEAR,
    ),
    "gradients of a list": backward(
        *("Torch.cat", [[normal(2, 3), normal(1, 3)], 0], ["grad.input.0.0", "grad.input.0.1"]),
        lambda right, tensors, dim: right([tensors[0], scaled(tensors[1])], dim),
        {"grad.input.0.1": "exact"},
    ),
    "a gradient of a call in place": backward(
        *("Tensor.mul_", [X, Y], ["grad.input.0", "grad.input.1"], lambda right, x, y: right(x, scaled(y))),
        {"grad.input.1": "noise"},
    ),
    "no gradient": backward(
        *("Torch.exp", [X], ["grad.input.0"], lambda right, x: right(x).detach(), {}),
        "no output of the device can be differentiated; those of the reference can",
    ),
    "no gradient of one output": backward(
        *("Torch.split", [normal(4), 2], ["grad.input.0"]),
        lambda right, x, size: (right(x, size)[0], right(x, size)[1].detach()),
        {"output.1": "structure"},
    ),
    "no gradient of an argument": backward(
        *("Torch.mul", [X, Y], ["grad.input.0", "grad.input.1"], lambda right, x, y: right(x, y.detach())),
        {"grad.input.1": "structure"},
        "grad.input.1: the device gives no gradient",
    ),
    "beside running statistics without gradients": backward(
        *("Functional.batch_norm", (IMAGE, *MOMENTS, False, 0.1, 1e-5)),
        *(["grad.input.0", "grad.input.3", "grad.input.4"], lambda right, *args: right(*args[:-1], 0.2)),
        {"grad.input.0": "noise", "grad.input.3": "noise"},
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_healthy_call_passes_and_a_wrong_output_is_named(bench: Make, plant: Plant, name: str) -> None:
    row = ROWS[name]
    space, api = row.api.split(".")
    function, is_backward = getattr(OWNERS[space], api), row.direction == "backward"
    made = bench(row.api, function, *row.args, backward=is_backward, **row.kwargs)
    found = made.check(row.direction)
    assert (found.verdict, judged(found)) == ("pass", row.judged)
    made.release()
    plant(OWNERS[space], api, row.wrong)
    found = made.check(row.direction)
    assert (found.verdict, failed(found)) == ("error", row.failed)
    assert row.reason in found.reason


def wrong_mean(x: Tensor, mean: Tensor, *rest: Any) -> Tensor:
    found = F.batch_norm(x, mean, *rest)
    mean.mul_(1.0001)
    return found


@pytest.mark.parametrize(("function", "wrong"), [(F.batch_norm, {}), (wrong_mean, {"input.1": "noise"})])
def test_an_argument_that_the_reference_leaves_as_it_was_by_chance(function: Any, wrong: dict[str, str]) -> None:
    """The running mean is that of the batch: 0.9 m + 0.1 m is m in float64, not in float32."""
    given = torch.full((4, 3, 5), 12.0), torch.full((3,), 12.0), torch.ones(3), None, None, True
    checker = Checker(RunRequest(device="cpu"), Registry.default())
    found = checker.compare(function, F.batch_norm, given, api="Functional.batch_norm")[-1]
    assert judged(found) == ["output.0", "input.1", "input.2"]
    assert failed(found) == wrong


def test_what_has_no_gradient_is_skipped(bench: Make) -> None:
    def edit(data: dict[str, Any]) -> None:
        data["Torch.argmax.0.backward"] = {"input": [], "output": []}

    found = bench("Torch.argmax", torch.argmax, normal(4), edit=edit).check("backward")
    assert (found.verdict, found.kind) == ("skip", "no reference")


def test_a_gradient_that_raises_on_the_device_alone_is_an_error(bench: Make, plant: Plant) -> None:
    def raising(gradient: Tensor) -> Tensor:
        raise ValueError("broken")

    made = bench("Torch.exp", torch.exp, normal(5), backward=True)
    plant(torch, "exp", lambda right, x: right(with_gradient(x, raising)))
    assert made.check().verdict == "pass"
    found = made.check("backward")
    assert (found.verdict, found.reason.splitlines()[0]) == ("error", "cpu raised ValueError: broken")
    assert "test_checker.py" in found.reason


# One forward for both directions


def test_both_directions_share_one_forward_run(bench: Make, plant: Plant) -> None:
    runs: list[Any] = []
    made = bench("Torch.neg", torch.neg, normal(5), backward=True)

    def counted(right: Any, x: torch.Tensor) -> torch.Tensor:
        runs.append(0)
        return right(x)

    plant(torch, "neg", counted)
    assert [made.check("forward").verdict, made.check("backward").verdict] == ["pass", "pass"]
    assert len(runs) == 1
    assert [made.check("backward").verdict, made.check("backward").verdict] == ["pass", "pass"]
    assert len(runs) == 3
    assert made.check("forward", dtype="float16").verdict == "pass"
    assert len(runs) == 4


def test_a_run_saves_its_inputs_outputs_and_gradients(bench: Make, tmp_path: Path) -> None:
    bench("Torch.load", lambda x: x, normal(5)).run().save(tmp_path / "none.pt")
    assert not (tmp_path / "none.pt").exists()
    made = bench("Torch.mul", torch.mul, normal(5), normal(5, seed=1), backward=True)
    made.run("backward").save(tmp_path / "x.pt")
    saved = torch.load(tmp_path / "x.pt", weights_only=True)
    assert {name: str(value.dtype) for name, value in saved.items()} == {
        "input.0": "torch.float32",
        "input.1": "torch.float32",
        "seed.output.0": "torch.float32",
        "actual.grad.input.0": "torch.float32",
        "actual.grad.input.1": "torch.float32",
        "expected.grad.input.0": "torch.float64",
        "expected.grad.input.1": "torch.float64",
    }
    assert torch.equal(saved["actual.grad.input.0"], saved["seed.output.0"] * saved["input.1"])


# Hooks and the registry


def test_calls_and_references_of_the_registry(bench: Make) -> None:
    registry = Registry.default()
    registry.calls["NPU.twice"] = lambda x: x + x
    registry.references["NPU.twice"] = lambda x: 2 * x
    assert bench("NPU.twice", lambda x: x + x, normal(5), registry=registry).check().verdict == "pass"
    registry.calls["NPU.twice"] = lambda x: 2.001 * x if x.dtype is torch.float32 else x + x
    assert bench("NPU.twice", lambda x: x + x, normal(5), registry=registry).check().verdict == "error"
    assert bench("NPU.thrice", lambda x: x + x, normal(5), registry=registry).check().kind == "outside the allow-list"


def test_a_device_that_was_given_as_a_string_is_the_one_under_test(bench: Make) -> None:
    """As recorded on another machine."""

    def elsewhere(data: dict[str, Any]) -> None:
        data["Tensor.to.0.forward"]["input_args"][1]["value"] = "cuda:0"

    assert bench("Tensor.to", torch.Tensor.to, normal(5), "cpu", edit=elsewhere).check().verdict == "pass"


def test_hooks_adjust_inputs_and_verdicts(bench: Make) -> None:
    seen: list[Any] = []

    def inputs(case: Case, arguments: Arguments) -> Arguments | None:
        seen.append(case.id)
        (leaf,) = arguments.args
        return replace(arguments, args=(replace(leaf, array=np.array([7.0], np.float32)[::-1]),))

    def verdict(case: Case, found: Verdict) -> Verdict | None:
        seen.append(found.verdict)
        return replace(found, verdict="warning") if len(seen) == 2 else None

    made = bench(
        "Tensor.item", torch.Tensor.item, torch.ones(1), hooks={"adjust_inputs": inputs, "adjust_verdict": verdict}
    )
    assert [made.check().verdict, made.check().verdict] == ["warning", "pass"]
    # A case that comes again runs again.
    assert seen == ["Tensor.item.0.forward", "pass", "Tensor.item.0.forward", "pass"]


def test_a_named_standard_judges_all_outputs(bench: Make) -> None:
    made = bench("Torch.exp", torch.exp, normal(500), request={"standard": "exact"})
    found = made.check()
    assert {output.standard for output in found.outputs} == {"exact"}
    assert (
        bench("Tensor.view", torch.Tensor.view, normal(6), 2, 3, request={"standard": "noise"}).check().verdict
        == "pass"
    )


# Dtypes


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_case_cast_to_another_dtype(bench: Make, dtype: str, direction: str) -> None:
    made = bench("Functional.linear", F.linear, normal(4, 8), normal(3, 8, seed=1), normal(3, seed=2), backward=True)
    assert made.case(direction, dtype=dtype).id == f"Functional.linear.0.{direction}[{dtype}]"
    found = made.check(direction, dtype=dtype)
    assert (found.verdict, found.dtype) == ("pass", dtype)
    assert {output.dtype for output in found.outputs} == {dtype}


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.complex128])
def test_calls_in_each_recorded_dtype_pass(bench: Make, dtype: torch.dtype) -> None:
    made = bench(
        "Torch.matmul", torch.matmul, normal(4, 8, dtype=dtype), normal(8, 3, dtype=dtype, seed=1), backward=True
    )
    assert {made.check("forward").verdict, made.check("backward").verdict} == {"pass"}


def test_a_number_that_the_dtype_cannot_hold_is_no_fault(bench: Make) -> None:
    made = bench("Torch.masked_fill", torch.masked_fill, normal(4), torch.tensor([True, False, True, False]), -1e9)
    assert made.check().verdict == "pass"
    assert made.check(dtype="bfloat16").verdict == "pass"
    assert made.check(dtype="float16").kind == "unsupported by the device"


def test_a_dtype_that_numpy_has_not_is_no_fault(bench: Make) -> None:
    made = bench("Torch.view_as_complex", torch.view_as_complex, normal(3, 2))
    assert made.check(dtype="float16").kind == "dtype not supported"


@pytest.mark.parametrize(
    ("name", "args", "backward"),
    [
        ("add", (0.1,), True),
        ("gt", (0.1,), False),
        ("fmod", (0.3,), True),
        ("pow", (0.3,), True),
        ("mul", (0.3,), True),
        ("div", (0.3,), True),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_python_floats_beside_16_bit_tensors(
    bench: Make, name: str, args: tuple[Any, ...], backward: bool, dtype: torch.dtype
) -> None:
    """The CPU rounds some to the tensor's dtype first, others not, and not alike in both directions."""
    x = normal(300).abs() + 0.05
    x[:20] = 0.1
    made = bench(f"Torch.{name}", getattr(torch, name), x.to(dtype), *args, backward=backward)
    directions = ("forward", "backward") if backward else ("forward",)
    assert {direction: made.check(direction).reason for direction in directions} == dict.fromkeys(directions, "")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_dropout_in_every_dtype(bench: Make, dtype: torch.dtype) -> None:
    made = bench("Functional.dropout", F.dropout, normal(30, 30, dtype=dtype), 0.1, True, backward=True)
    assert {made.check("forward").reason, made.check("backward").reason} == {""}


# What the noise rule must not let through


@pytest.mark.parametrize("mode", ["reduced", "r"])
def test_factors_of_other_signs(bench: Make, plant: Plant, mode: str) -> None:
    made = bench("Torch.linalg.qr", torch.linalg.qr, normal(6, 4), mode=mode)
    plant(torch.linalg, "qr", lambda right, x, mode: tuple(-factor for factor in right(x, mode=mode)))
    assert made.check().verdict == "pass"


# Skips and reports


def test_a_broken_record_is_skipped_with_its_field(bench: Make) -> None:
    def edit(data: dict[str, Any]) -> None:
        data["Torch.exp.0.forward"]["input_args"][0]["shape"] = "many"

    found = bench("Torch.exp", torch.exp, normal(5), edit=edit).check()
    assert (found.verdict, found.kind) == ("skip", "broken record")
    assert "input_args.0.shape" in found.reason


def test_a_skip_names_the_dump_and_the_case(bench: Make) -> None:
    made = bench("Torch.load", lambda x: x, normal(5))
    found = made.check()
    told = preview(made.case(), Registry.default())
    assert told is not None
    assert told.kind == found.kind == "outside the allow-list"
    assert preview(bench("Torch.exp", torch.exp, normal(5)).case(), Registry.default()) is None
    assert found.reason == (
        f"{made.dump.path}: Torch.load.0.forward: Torch.load: torch.load is not among what torch lists as public and "
        "overridable"
    )


def test_a_failing_case_shows_its_arguments(bench: Make, plant: Plant) -> None:
    values = torch.tensor([1.0, -2.5, float("inf")])
    made = bench("Torch.masked_fill", torch.masked_fill, values, torch.tensor([True, False, False]), 3)
    assert made.check().arguments == ()
    made.release()
    plant(torch, "masked_fill", lambda right, x, mask, value: right(x, mask, value + 1))
    rows = made.check().arguments
    assert [(row.name, row.shape, row.dtype) for row in rows] == [
        ("input.0", (3,), "float32"),
        ("input.1", (3,), "bool"),
        ("input.2", None, "int"),
    ]
    assert rows[0].value.endswith(", 1 not finite")
    assert (rows[1].value, rows[2].value) == ("0 .. 1", "3")


def test_floating_dtypes_of_a_record_are_listed(bench: Make) -> None:
    made = bench("Torch.where", torch.where, torch.tensor([True]), normal(1), normal(1, dtype=torch.complex64))
    assert floating_dtypes(made.dump.decode(made.dump.records[0])) == ("complex64", "float32")
