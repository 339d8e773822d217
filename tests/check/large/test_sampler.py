from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

from pytest_probe.check import PreparedCall
from pytest_probe.check.both_sides import BothSides
from pytest_probe.check.large import sampler
from pytest_probe.check.large.contractions import free_indices
from pytest_probe.check.large.sampler import Checksums, Sample, Sampler
from pytest_probe.model.dump import Direction
from pytest_probe.model.run import Run
from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype, widen
from tests.check.conftest import Function, Make, Plant, failed
from tests.check.conftest import normal as normal_tensor
from tests.support.emulated import product, to_bits
from tests.support.replaying import leaf, normal, replay

SIGNS = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
ARRAY = np.arange(10.0, dtype=np.float32).reshape(2, 5)


def test_blocks_are_summed_with_signs() -> None:
    assert Checksums(SIGNS, 2).signed(ARRAY, 1).tolist() == [[-1, 5, -4], [-1, 15, -9]]


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_a_batch_of_one_is_summed_in_chunks_too(axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.random.default_rng(0).standard_normal((1, 4, 32, 16)).astype(np.float32)
    made, sizes = Checksums.of(array.shape[axis], 2, np.random.default_rng(1)), list[int]()
    whole = made.signed(array, axis)

    def noted(part: np.ndarray) -> np.ndarray:
        sizes.append(part.size)
        return widen(part)

    monkeypatch.setattr(sampler, "CHUNK", 128)
    monkeypatch.setattr(sampler, "widen", noted)
    assert np.array_equal(made.signed(array, axis), whole)
    assert max(sizes) <= 128


def test_rounding_of_powers_of_two_is_a_uniform_error_of_one_ulp() -> None:
    array = np.array([[1.0, 2.0]], dtype=numpy_dtype("bfloat16"))
    ulps = np.array([2.0**-7, 2.0**-6])
    assert Checksums(np.ones(2), 2).rounding(array, 1) == pytest.approx(np.sqrt((ulps**2 / 12).sum()))


CALLS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Functional.linear", [normal(9, 3, 8), normal(12, 8, seed=1), normal(12, seed=2)], {}),
    ("Functional.linear", [normal(9, 8), normal(12, 8, seed=1)], {}),
    ("Torch.matmul", [normal(2, 9, 8), normal(8, 12, seed=1)], {}),
    ("Torch.matmul", [normal(1, 4, 9, 8), normal(3, 1, 8, 12, seed=1)], {}),
    ("Torch.mm", [normal(9, 8), normal(8, 12, seed=1)], {}),
    ("Torch.bmm", [normal(3, 9, 8), normal(3, 8, 12, seed=1)], {}),
    ("Torch.addmm", [normal(12), normal(9, 8, seed=1), normal(8, 12, seed=2)], {"beta": 2.0, "alpha": 0.5}),
    ("Torch.addmm", [normal(9, 1), normal(9, 8, seed=1), normal(8, 12, seed=2)], {}),
    ("Torch.addbmm", [normal(9, 12), normal(3, 9, 8, seed=1), normal(3, 8, 12, seed=2)], {}),
    ("Torch.baddbmm", [normal(3, 9, 12), normal(3, 9, 8, seed=1), normal(3, 8, 12, seed=2)], {"alpha": 3.0}),
    ("Torch.einsum", ["bik,jk->bji", normal(3, 9, 8), normal(12, 8, seed=1)], {}),
    ("Functional.conv1d", [normal(9, 6, 20), normal(8, 6, 3, seed=1), normal(8, seed=2)], {"stride": 2}),
    ("Functional.conv2d", [normal(6, 10, 10), normal(8, 6, 3, 3, seed=1)], {"padding": 1}),
    ("Functional.conv_transpose2d", [normal(7, 6, 5, 5), normal(6, 8, 2, 2, seed=1), normal(8, seed=2)], {}),
    ("Tensor.__rmatmul__", [normal(8, 12, seed=1), normal(9, 8)], {}),
]
IDS = [f"{name} {len(args)}" for name, args, _ in CALLS]


def sides(
    name: str, args: list[Any], kwargs: dict[str, Any], direction: Direction
) -> tuple[BothSides, dict[str, AnyArray]]:
    """A replay that is to be sampled, and the reference in full."""
    backward = direction == "backward"
    whole = replay(name, *args, backward=backward, **kwargs)
    shape, dtype = list(whole.actual.outputs["output.0"].shape), whole.actual.outputs["output.0"].dtype
    made = replay(name, *args, backward=backward, budget=1.0, outputs=[f"{dtype}{shape}"], **kwargs)
    if not backward:
        return made, dict(whole.reference.run.outputs)
    incoming = {"output.0": normal(*shape, seed=9).array}
    return replace(made, incoming=incoming), whole.reference.gradients(incoming)


def sampler_of(made: BothSides, direction: Direction, share: float) -> Sampler:
    contraction = made.reference.contraction
    assert contraction is not None
    return Sampler(made, contraction, share * contraction.flops, direction, "key", 0)


def reference(sample: Sample, direction: Direction) -> AnyArray:
    if direction == "forward":
        return np.asarray(sample.replay.reference.run.outputs[sample.name])
    return sample.replay.reference.gradients(sample.replay.incoming)[sample.name]


def taken(whole: AnyArray, sample: Sample) -> AnyArray:
    grid = [
        np.arange(extent) if places is None else places
        for extent, places in zip(whole.shape, sample.places, strict=True)
    ]
    return np.asarray(whole[np.ix_(*grid)])


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS, ids=IDS)
def test_a_sample_is_part_of_the_reference_and_so_are_its_checksums(
    name: str, args: list[Any], kwargs: dict[str, Any], direction: Direction
) -> None:
    made, expected = sides(name, args, kwargs, direction)
    sampler = sampler_of(made, direction, 0.2)
    for tensor, whole in expected.items():
        sample = sampler.sample(tensor, whole.astype(np.float32))
        assert 0 < sample.share <= 1
        assert np.array_equal(sample.actual, taken(whole, sample).astype(np.float32))
        assert np.allclose(reference(sample, direction), taken(whole, sample), rtol=1e-12, atol=1e-12)
        assert sample.index((0,) * whole.ndim) == tuple(0 if p is None else p[0] for p in sample.places)
        for along in free_indices(sampler.contraction, tensor):
            checksums = Checksums.of(sampler.contraction.extents[along], 3, np.random.default_rng(0))
            assert sampler._scores(tensor, along, checksums, whole).max() < 1e-3


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS[:6], ids=IDS[:6])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_checksums_point_at_a_wrong_element(
    name: str, args: list[Any], kwargs: dict[str, Any], direction: Direction
) -> None:
    made, expected = sides(name, args, kwargs, direction)
    sampler = sampler_of(made, direction, 0.3)
    for tensor in sorted(expected.keys() - sampler.contraction.addends.keys()):
        wrong = expected[tensor].astype(np.float32)
        place = tuple(extent - 2 for extent in wrong.shape)
        wrong[place] += 0.01
        sample = sampler.sample(tensor, wrong)
        assert all(taken is None or index in taken for index, taken in zip(place, sample.places, strict=True))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_checksums_point_at_what_is_not_finite(value: float) -> None:
    made, expected = sides(*CALLS[4], "forward")
    wrong = expected["output.0"].astype(np.float32)
    wrong[7, 10] = value
    assert not np.isfinite(sampler_of(made, "forward", 0.3).sample("output.0", wrong).actual).all()


def test_a_sample_takes_half_the_budget_and_two_blocks_at_least() -> None:
    made, expected = sides("Torch.mm", [normal(400, 4), normal(4, 100, seed=1)], {}, "forward")
    for share, shape in ((0.5, (100, 100)), (0.04, (100, 8)), (0.125, (50, 50))):
        sample = sampler_of(made, "forward", share).sample("output.0", expected["output.0"])
        assert sample.actual.shape == shape, share
    # Few places of an index leave more to the other.
    made, expected = sides("Torch.mm", [normal(400, 4), normal(4, 6, seed=1)], {}, "forward")
    assert sampler_of(made, "forward", 0.2).sample("output.0", expected["output.0"]).actual.shape == (40, 6)


def test_complex_tensors_have_no_checksums() -> None:
    values = [leaf(np.ones((20, 4)) + 1j, "complex64"), leaf(np.ones((4, 20)) - 1j, "complex64")]
    made, expected = sides("Torch.mm", values, {}, "forward")
    sample = sampler_of(made, "forward", 0.1).sample("output.0", expected["output.0"])
    assert np.allclose(reference(sample, "forward"), sample.actual)


@pytest.mark.parametrize("outputs", [["float32[9, 11]"], ["float32[9, 12]", "float32[1]"]])
def test_a_record_that_is_no_such_contraction_is_run_in_full(outputs: list[str]) -> None:
    with pytest.raises(Exception, match="recorded"):
        replay("Torch.mm", normal(9, 8), normal(8, 12), budget=1.0, outputs=outputs)


SMALL = {"flops": 4e5}
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def linear(dtype: torch.dtype = torch.float32) -> tuple[Any, ...]:
    """A call of 4.2e6 FLOP."""
    return (
        normal_tensor(128, 64, dtype=dtype),
        normal_tensor(256, 64, dtype=dtype, seed=1),
        normal_tensor(256, dtype=dtype, seed=2),
    )


class OneElement:
    """A linear whose largest element is off by a factor."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.places: list[tuple[int, ...]] = []

    def __call__(self, right: Function, *args: Any) -> torch.Tensor:
        result: torch.Tensor = right(*args).clone()
        self.places.append(divmod(int(result.abs().argmax()), result.shape[1]))
        result[self.places[-1]] *= self.factor
        return result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_sampled_outputs_of_healthy_kernels_pass(bench: Make, dtype: torch.dtype, direction: str) -> None:
    found = bench("Functional.linear", F.linear, *linear(dtype), backward=True, request=SMALL).check(direction)
    assert (found.verdict, found.reason) == ("pass", "")
    if direction == "forward":
        share = found.outputs[0].metrics["sampled"]
        assert found.notes[-1:] == (f"sampled: output.0: {share:.2%} of its elements",)
    assert all(0 < float(output.metrics["sampled"]) < 0.5 for output in found.outputs[:2])
    assert [output.shape for output in found.outputs] == (
        [(128, 256)] if direction == "forward" else [(128, 64), (256, 64), (256,)]
    )


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 1.001), (torch.float16, 1.03), (torch.bfloat16, 1.5)])
def test_one_wrong_element_of_a_large_output_is_found(
    bench: Make, plant: Plant, dtype: torch.dtype, factor: float
) -> None:
    made = bench("Functional.linear", F.linear, *linear(dtype), request=SMALL)
    wrong = OneElement(factor)
    plant(F, "linear", wrong)
    found = made.check()
    assert failed(found) == {"output.0": "noise"}
    assert found.outputs[0].worst[0].index == wrong.places[0]


@pytest.mark.parametrize(
    ("wrong", "direction", "names", "reason"),
    [
        (lambda right, x, w, b: right(x, w * 1.01, b), "backward", {"grad.input.0", "grad.input.1"}, ""),
        (lambda right, x, w, b: right(x, w, b * 1.01), "backward", {"grad.input.2"}, ""),
        (lambda right, x, w, b: right(x, w.detach(), b), "backward", {"grad.input.1"}, "gives no gradient"),
        (
            lambda right, *args: right(*args)[:, :-1],
            "forward",
            {"output.0"},
            "shape [128, 255], the reference has [128",
        ),
        (lambda right, *args: right(*args).double(), "forward", set(), "the device gave float64[128, 256]"),
        (lambda right, x, w, b: right(x, w.add_(1), b), "forward", None, "changed this argument"),
    ],
)
def test_a_wrong_gradient_or_structure_of_a_large_call_is_found(
    bench: Make, plant: Plant, wrong: Function, direction: str, names: set[str] | None, reason: str
) -> None:
    made = bench("Functional.linear", F.linear, *linear(), backward=direction == "backward", request=SMALL)
    plant(F, "linear", wrong)
    found = made.check(direction)
    assert found.verdict == "error"
    assert reason in found.reason
    assert names is None or failed(found).keys() == names


@pytest.mark.parametrize("head", range(4))
def test_a_wrong_matrix_of_a_batch_is_found_and_the_output_is_let_go(
    bench: Make, plant: Plant, monkeypatch: pytest.MonkeyPatch, head: int
) -> None:
    """Once the device has given its gradients."""
    x, y = normal_tensor(1, 4, 128, 32), normal_tensor(1, 4, 32, 128)
    made = bench("Torch.matmul", torch.matmul, x, y, backward=True, request=SMALL)
    runs = list[Run]()
    monkeypatch.setattr(Run, "release", lambda run: runs.append(run))
    healthy = made.check("backward")
    assert (healthy.verdict, healthy.reason) == ("pass", "")
    assert ["sampled" in output.metrics for output in healthy.outputs] == [True, True]
    assert [run.outputs["output.0"].strides for run in runs] == [(0, 0, 0, 0)]
    scale = 1 + 0.01 * (torch.arange(4) == head).view(4, 1, 1)
    plant(torch, "matmul", lambda right, x, y: right(x * scale, y))
    assert failed(made.check("backward")).keys() == {"grad.input.0", "grad.input.1"}


def test_under_a_device_mode(bench: Make, plant: Plant) -> None:
    multiply = product(to_bits(11))
    plant(F, "linear", lambda right, x, w, b: multiply(x, w.t()) + b)
    made = {
        allow: bench("Functional.linear", F.linear, *linear(), backward=True, request={**SMALL, "allow": (allow,)})
        for allow in ("none", "tf32")
    }
    for direction in ("forward", "backward"):
        assert made["none"].check(direction).verdict == "error"
        assert made["tf32"].check(direction).verdict == "pass"


def test_python_floats_and_another_dtype_are_sampled_too(bench: Make) -> None:
    args = normal_tensor(256, dtype=torch.bfloat16), *(tensor.t() for tensor in linear(torch.bfloat16)[1::-1])
    base, left, right = args[0], args[2].t(), args[1]
    narrow = bench("Torch.addmm", torch.addmm, base, left, right, beta=0.3, alpha=0.7, request=SMALL)
    wide = bench("Functional.linear", F.linear, *linear(), request=SMALL)
    for found in (narrow.check(), wide.check(dtype="bfloat16")):
        assert (found.verdict, found.dtype, "sampled" in found.outputs[0].metrics) == ("pass", "bfloat16", True)


def test_repeats_look_at_all_elements(bench: Make, plant: Plant) -> None:
    runs, wrong = iter(range(100)), OneElement(1 + 2.0**-22)
    plant(F, "linear", lambda right, *args: right(*args) if next(runs) % 2 else wrong(right, *args))
    made = bench("Functional.linear", F.linear, *linear(), request={**SMALL, "repeat": 3})
    found = made.check()
    assert any("1 of 32,768 elements" in note for note in found.notes)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1.01, "error")])
def test_a_call_that_a_test_makes(bench: Make, factor: float, verdict: str) -> None:
    made = bench("Functional.linear", F.linear, *linear(), backward=True, request=SMALL)
    prepared = made.checker.prepare(made.case(), gradient=True)
    assert isinstance(prepared, PreparedCall)
    result = factor * F.linear(*prepared.bound.args)
    for direction in ("forward", "backward"):
        found = made.checker.judge(prepared, result, direction).verdict
        assert (found.verdict, "sampled" in found.outputs[0].metrics) == (verdict, True)
