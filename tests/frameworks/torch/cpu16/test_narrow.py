"""What stands in for 16-bit kernels gives what torch's own CPU kernels give, bit for bit."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.check import Checker, Conditions
from pytest_probe.frameworks.torch.cpu16 import in_place_twins
from pytest_probe.frameworks.torch.cpu16.sequential import cascade, chain, piled
from pytest_probe.frameworks.torch.rounding import StepsMode
from pytest_probe.frameworks.torch.state import plain_convolutions
from pytest_probe.model.verdict import OutputVerdict, Verdict
from pytest_probe.numerics import kernel
from pytest_probe.numerics.dtypes import AnyArray, round_to, widen
from pytest_probe.numerics.noise_ratio import nearest_run
from pytest_probe.registry import Registry
from pytest_probe.standards import STANDARDS, Comparison
from tests.frameworks.torch.cpu16.rounding import threads
from tests.support.calls.computing import COMPUTING
from tests.support.calls.making import Maker

# Where a kernel's own exponential, a tie of float32, or a Python float rounded in a loop's tail decides otherwise.
LEAST = {
    **dict.fromkeys("addmm baddbmm embedding_bag pow".split(), 0.9),
    "renorm": 0.5,
    "scaled_dot_product_attention": 0.8,
}
# Written as no steps, for no dtype or not for both, and wrong on the CPU.
WRONG = frozenset(["matrix_exp"])
UNWRITTEN = frozenset(
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d addbmm addmv addr avg_pool1d avg_pool2d cdist "
    "cross dist entr fold grid_sample grid_sampler_2d grid_sampler_3d huber_loss i0e interpolate kl_div ldexp "
    "linspace logit logspace mvlgamma pad polygamma smooth_l1_loss unfold xlog1py xlogy".split()
)
NAMES = sorted(COMPUTING.keys() - WRONG - UNWRITTEN)
# Calls of an API whose steps are written: batch_norm's of a batch that lies in order.
WRITTEN = {"batch_norm": 3}
CONVOLUTIONS = frozenset("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d".split())


class Comparing(Struct):
    """Compares outputs with the run that rounds between the steps; judges nothing."""

    name: str = "comparing"
    least: float = 0.99
    wrong: list[str] = field(default_factory=list)

    def judge(self, comparison: Comparison) -> OutputVerdict:
        runs = comparison.evidence.narrow_steps(1)
        if runs and comparison.actual.dtype.itemsize == 2:
            # Some kernels round nothing: as the reference, but for ties.
            center = nearest_run(comparison.actual, [*runs, comparison.expected])
            same = _equal(round_to(center, comparison.actual.dtype), comparison.actual)
            if same.mean() < min(self.least, 1 - 1 / same.size):
                self.wrong.append(
                    f"{comparison.direction} {comparison.name} {comparison.actual.shape}: {same.mean():.3f}"
                )
        return replace(STANDARDS["exact"].judge(comparison), verdict="pass")  # lest a cause be looked for


def _equal(first: AnyArray, second: AnyArray) -> AnyArray:
    one, other = widen(first), widen(second)
    return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Several threads may cut loops, and so tails of vectors, in other places."""
    with threads(1):
        yield


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Each has its own sum of the rows of a gradient."""
    with threads(2):
        yield


@pytest.mark.sampled
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", NAMES)
def test_steps_give_what_the_kernel_gives(name: str, dtype: str) -> None:
    if name in CONVOLUTIONS and (dtype == "float16" or plain_convolutions(dtype)):
        pytest.skip("torch's own convolutions round inside, and not in known steps; oneDNN's need AVX512")
    comparing = Comparing(least=LEAST.get(name, 0.98))
    registry = Registry.default()
    registry.standards[comparing.name] = comparing
    checker = Checker(Conditions(device="cpu", standard=comparing.name, allow=("none",)), registry)
    for making in COMPUTING[name][: WRITTEN.get(name)]:
        for size in ((3, 5), (37, 69)):
            call = making(Maker(dtype, *size, 0))
            found = checker.compare(call.function, call.function, call.args, call.kwargs, api=call.api, backward=True)
            assert {verdict.verdict for verdict in found} <= {"pass", "skip"}
    assert comparing.wrong == []


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="has no longer vectors to do without")
@pytest.mark.parametrize("capability", [pytest.param("default", marks=pytest.mark.exhaustive), "avx2"])
def test_steps_are_those_of_the_vectors_in_use(capability: str) -> None:
    """torch takes kernels of shorter vectors, where it is told to, or the processor has no other."""
    test = f"{__file__}::{test_steps_give_what_the_kernel_gives.__name__}"
    items = [f"{test}[{name}-bfloat16]" for name in ("add", "embedding", "index_add", "prod", "softmax")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *items]
    found = subprocess.run(command, env={**os.environ, "ATEN_CPU_CAPABILITY": capability}, capture_output=True)
    assert (found.returncode, b"5 passed" in found.stdout) == (0, True), found.stdout.decode()


def test_what_writes_in_place_takes_the_same_steps() -> None:
    aten = torch.ops.aten
    assert set(in_place_twins(aten.addr.default)) == {aten.addr_.default}
    assert set(in_place_twins(aten.pow.Tensor_Scalar)) == {aten.pow_.Scalar}
    assert set(in_place_twins(aten.mse_loss.default)) == set()


@pytest.mark.parametrize("seed", range(4))
def test_a_kernel_may_round_a_python_float_and_its_gradient_not(seed: int) -> None:
    """The forward, and the gradients of the factors, are nearest to one reading, the gradient of the summand to the
    other."""
    make = Maker("bfloat16", 2, 3, seed)
    args = (make.x(2, 3), make.x(2, 2), make.x(2, 3))
    checker = Checker(Conditions(device="cpu", allow=("none",)), Registry.default())
    kwargs = {"alpha": 0.6, "beta": 0.2}
    verdicts = checker.compare(torch.addmm, torch.addmm, args, kwargs, api="Torch.addmm", backward=True)
    assert [verdict.verdict for verdict in verdicts] == ["pass", "pass"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_kernel_that_is_wrong_stays_an_error(dtype: str) -> None:
    """Of numbers below 0.2 the CPU's matrix_exp gives 10^30, or NaN."""
    x = Maker(dtype, 5, 5, 0).between(-0.2, 0.2, 5, 5)
    checker = Checker(Conditions(device="cpu", allow=("none",)), Registry.default())
    (verdict,) = checker.compare(torch.matrix_exp, torch.matrix_exp, (x,), api="Torch.matrix_exp")
    assert verdict.verdict == "error"


@pytest.mark.usefixtures("one_thread")
def test_running_statistics_are_rounded_before_they_are_averaged() -> None:
    checker = Checker(Conditions(device="cpu", allow=("none",)), Registry.default())
    function, passed = torch.nn.functional.instance_norm, []
    for seed in range(8):
        make = Maker("float16", 4, 24, seed)
        args = (make.x(3, 24, 5, 7), make.x(24), make.positive(24))
        (verdict,) = checker.compare(function, function, args, api="Functional.instance_norm")
        passed.append(verdict.verdict)
    assert passed == ["pass"] * 8


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1 + 2.0**-6, "error")])
def test_one_rounding_may_move_a_row_of_attention(factor: float, verdict: str) -> None:
    """In this seed's third row, of three keys, a weight's gradient is rounded to the other side."""
    generator = torch.Generator().manual_seed(1)
    args = tuple(torch.randn(2, 4, 128, 64, generator=generator).half() for _ in range(3))
    attention = functools.partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)

    def device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        found = attention(query, key, value)
        factors = torch.ones_like(found)
        factors.view(-1)[found.abs().argmax()] = factor
        return found * factors

    checker = Checker(Conditions(device="cpu", allow=("none",)), Registry.default())
    api = "Functional.scaled_dot_product_attention"
    found = checker.compare(device, attention, args, api=api, backward=True)
    assert [item.verdict for item in found] == [verdict, verdict]


@pytest.mark.parametrize(("factor", "found"), [(1.0, "pass"), (1 + 2.0**-5, "error")])
def test_convolutions_of_no_library_round_inside(factor: float, found: str) -> None:
    """Without oneDNN, or AVX512, bfloat16 convolutions are torch's own, as float16's are."""
    function = torch.nn.functional.conv2d

    def device(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return function(x, weight, padding=1) * factor

    checker = Checker(Conditions(device="cpu", allow=("none",)), Registry.default())
    with torch.backends.mkldnn.flags(enabled=False):
        for seed in range(4):
            make = Maker("bfloat16", 3, 5, seed)
            args = (make.x(2, 6, 13, 16), make.x(3, 6, 3, 3))
            reference = functools.partial(function, padding=1)
            verdicts = checker.compare(device, reference, args, api="Functional.conv2d", backward=True)
            assert [verdict.verdict for verdict in verdicts] == [found] * 2


HALF = torch.float16


def doubles(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_terms_are_added_in_order_and_every_sum_is_rounded() -> None:
    """2,048 and 1 is 2,048 in float16, so that the order shows."""
    index = torch.tensor([0, 1, 0, 1, 0])
    found = piled(HALF, torch.zeros(2, dtype=torch.float64), index, doubles(2048, 1, 1, 1, 1))
    assert found.tolist() == [2048, 2]
    assert piled(HALF, torch.zeros(2, dtype=torch.float64), index, doubles(1, 1, 1, 1, 2048)).tolist() == [2050, 2]


@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16], ids=str)
@pytest.mark.parametrize("join", [torch.add, torch.mul])
def test_terms_are_joined_alike_without_the_kernel(
    join: Any, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of terms, in any layout and dtype of places."""
    generator = torch.Generator().manual_seed(0)
    terms = 1 + torch.randn(6, 300, generator=generator, dtype=torch.float64).t() / 8
    places, start = torch.randint(4, (300,), generator=generator, dtype=torch.int32), torch.ones(5, 6).double()
    found = piled(dtype, start, places, terms, join), chain(dtype, terms, start[0, 0].expand(300))
    monkeypatch.setattr(kernel, "compiled", None)
    without = piled(dtype, start, places, terms, join), chain(dtype, terms, start[0, 0].expand(300))
    assert all(map(torch.equal, found, without))


def test_a_chain_stagnates_and_a_cascade_does_not() -> None:
    ones = torch.ones(5000, dtype=torch.float64)
    assert chain(HALF, ones).item() == 2048
    assert abs(cascade(HALF, ones, torch.arange(5000), 5000).item() - 5000) < 10


def test_nothing_is_added_where_there_is_nothing() -> None:
    empty: Any = torch.zeros(0, dtype=torch.float64)
    assert piled(HALF, doubles(1, 2), torch.zeros(0, dtype=torch.long), empty).tolist() == [1, 2]
    assert cascade(HALF, empty, torch.zeros(0, dtype=torch.long), 0).item() == 0


def _normalised(seed: int, dtype: torch.dtype) -> tuple[Any, ...]:
    """16-bit rows with float32 weight and bias near 1 and near 0, as autocast hands them to layer_norm."""
    generator = torch.Generator().manual_seed(seed)
    x, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((30, 8), (8,), (8,)))
    return x.to(dtype), (8,), 1 + 1e-3 * weight, 1e-3 * bias


def _verdict(function: Any, seed: int, dtype: torch.dtype) -> Verdict:
    checker = Checker(Conditions(device="cpu"), Registry.default())
    layer_norm, args = torch.nn.functional.layer_norm, _normalised(seed, dtype)
    return checker.compare(function, layer_norm, args, api="Functional.layer_norm", backward=True)[1]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_statistics_are_kept_in_the_dtype_of_the_weights(dtype: torch.dtype, seed: int) -> None:
    """The kernel adds up 16-bit sums of float32 quotients."""
    x, shape, weight, bias = _normalised(seed, dtype)
    gradient = torch.randn(30, 8, generator=torch.Generator().manual_seed(seed)).to(dtype)
    found = []
    for wide in (False, True):
        inputs = [(value.double() if wide else value).requires_grad_() for value in (x, weight, bias)]
        with StepsMode(dtype, fine=False, wide=inputs[1:]) if wide else nullcontext():
            output = torch.nn.functional.layer_norm(inputs[0], shape, *inputs[1:])
            found.append(torch.autograd.grad(output, inputs[1:], gradient.to(output.dtype)))
    kernel, steps = found
    assert [torch.equal(mine.double(), other) for mine, other in zip(kernel, steps, strict=True)] == [True, True]


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads")
def test_a_healthy_gradient_of_wide_weights_passes() -> None:
    for seed in range(4):
        assert _verdict(torch.nn.functional.layer_norm, seed, torch.float16).verdict == "pass"


class Off(torch.autograd.Function):
    """The gradient is 2 % off."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 1.02 * gradient


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads")
def test_a_gradient_of_wide_weights_that_is_off_is_an_error() -> None:
    def faulty(x: torch.Tensor, shape: Any, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, shape, Off.apply(weight), bias)

    found = _verdict(faulty, 0, torch.bfloat16)
    assert [output.verdict for output in found.outputs] == ["pass", "error", "pass"]
