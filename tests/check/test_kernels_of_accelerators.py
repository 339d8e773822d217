"""Kernels of an accelerator that round otherwise than the CPU's: what is known of them passes or is a warning; a fault
beside them is an error, and so is a user's function that does the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.check import Checker, RunRequest, judging
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from pytest_probe.standards.noise.explanation import OWN_KERNEL
from tests.check.conftest import Make, normal
from tests.support.cuda_kernels import Formula, Patched, Tensor, batch_norm, by_formula, sigmoid_gradient, tanh_gradient
from tests.support.devices import Replacing
from tests.support.emulated import to_bits

BF16, HALF, SINGLE = torch.bfloat16, torch.float16, torch.float32
DTYPES = pytest.mark.parametrize("dtype", [BF16, HALF], ids=str)
Kernel = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def no_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No verdict hangs on the cause of an error, which takes most of the time."""
    monkeypatch.setattr(judging, "diagnose", lambda *_: None)


def checked(bench: Make, name: str, kernel: Kernel, *args: Any, device: str = "cuda", **more: Any) -> Verdict:
    """The verdict on a call of a device that has this kernel for it."""
    space, api = name.split(".")
    function = getattr(F if space == "Functional" else torch, api)
    calls, recorded = more.pop("calls", {}), more.pop("recorded", function)
    registry = Registry(devices={device: lambda _: Replacing(device, {function: kernel})}, calls=calls)
    return bench(name, recorded, *args, registry=registry, request={"device": device}, **more).check()


def scan(x: Tensor, dim: int) -> Tensor:
    """Partial sums, each in the input's dtype."""
    sums = [x.select(dim, 0)]
    for place in range(1, x.shape[dim]):
        sums.append(sums[-1] + x.select(dim, place))
    return torch.stack(sums, dim)


def wrong_scan(x: Tensor, dim: int) -> Tensor:
    """The last sum lacks one term."""
    sums = scan(x, dim)
    sums[:, -1] -= x[:, 3]
    return sums


def user_scan(x: Tensor, dim: int) -> Tensor:
    return scan(x, dim)


@pytest.mark.parametrize(
    ("kernel", "dtype", "more", "verdict"),
    [
        (scan, BF16, {}, "warning"),
        (scan, HALF, {}, "warning"),
        (scan, BF16, {"device": "other"}, "error"),
        *((wrong_scan, dtype, {}, "error") for dtype in (BF16, HALF, SINGLE)),
        (torch.cumsum, BF16, {"calls": {"Torch.cumsum": user_scan}}, "error"),
    ],
)
def test_a_scan_in_16_bit_is_a_warning_on_the_device_that_has_it(
    bench: Make, kernel: Kernel, dtype: torch.dtype, more: dict[str, Any], verdict: str
) -> None:
    found = checked(bench, "Torch.cumsum", kernel, normal(40, 48, dtype=dtype), 1, **more)
    assert found.verdict == verdict
    assert (f"the framework's {OWN_KERNEL}" in found.outputs[0].reason) == (verdict == "warning")


def rounded_moments(x: Tensor, groups: int, weight: Tensor) -> Tensor:
    """A group_norm that keeps the moments of groups in bfloat16."""
    terms = x.double().reshape(len(x), groups, -1)
    mean = terms.mean(-1, keepdim=True).bfloat16().double()
    scale = (terms.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt().bfloat16().double()
    return (((terms - mean) * scale).view(x.shape) * weight.double().view(1, -1, 1, 1)).to(x.dtype)


@pytest.mark.parametrize(("weight", "verdict"), [(BF16, "pass"), (SINGLE, "warning")], ids=str)
def test_moments_are_rounded_where_the_weight_is_16_bit(bench: Make, weight: torch.dtype, verdict: str) -> None:
    """Elsewhere such a kernel of a GPU is no more than known to add in 16 bit."""
    x = normal(4, 16, 8, 8, dtype=BF16) * 2 + 1
    found = checked(bench, "Functional.group_norm", rounded_moments, x, 4, normal(16, dtype=weight))
    assert found.verdict == verdict


def histogram(x: Tensor, bins: int = 100, min: int = 0, max: int = 0) -> Tensor:
    return torch.histc(x.double(), bins, min, max).to(x.dtype)


def one_off_histogram(*args: Any, **kwargs: Any) -> Tensor:
    return histogram(*args, **kwargs) + torch.tensor([1, *[0] * 7])


# As the router of a mixture of experts counts tokens.
@pytest.mark.parametrize("given", [{"bins": 8, "min": 0, "max": 7}, {"bins": 8}])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
@pytest.mark.parametrize(("kernel", "verdict"), [(histogram, "pass"), (one_off_histogram, "error")])
def test_integers_that_the_cpu_has_no_kernel_for_have_a_reference_in_float64(
    kernel: Kernel, verdict: str, dtype: torch.dtype, given: dict[str, Any], bench: Make
) -> None:
    experts = torch.randint(0, 8, (4, 96, 2), generator=torch.Generator().manual_seed(0)).to(dtype)
    assert checked(bench, "Torch.histc", kernel, experts, recorded=histogram, **given).verdict == verdict


# Kernels that round each step of a gradient

KERNELS: dict[str, tuple[Any, Formula]] = {
    "sigmoid": (torch.sigmoid, sigmoid_gradient),
    "tanh": (torch.tanh, tanh_gradient),
}


def registry(patches: Mapping[Any, Callable[..., Any]]) -> Registry:
    return Registry(devices={"cuda": lambda name: Patched(name, patches)})


def gradients(
    make: Make, name: str, formula: Formula, dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0
) -> Verdict:
    function = KERNELS[name][0]
    x = normal(*shape, seed=seed) * 0.1
    devices = registry({function: by_formula(function, formula)})
    request = {"device": "cuda", "seed": seed}
    found = make(f"Torch.{name}", function, x.to(dtype), backward=True, registry=devices, request=request)
    assert found.check().verdict == "pass"
    return found.check("backward")


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (8, 32, 1, 1), (40, 60)], ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_rounds_each_step_passes(
    bench: Make, name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    found = [gradients(bench, name, KERNELS[name][1], dtype, shape, seed) for seed in range(2)]
    assert [verdict.verdict for verdict in found] == ["pass"] * 2
    if (name, dtype, len(shape)) == ("sigmoid", BF16, 4):
        assert {verdict.outputs[0].reason for verdict in found} == {"rounds each step in bfloat16"}


def one_off(found: Tensor, times: float) -> Tensor:
    found, place = found.clone(), found.abs().flatten().argsort()[found.numel() // 2]
    found.view(-1)[place] *= times
    return found


def exchanged(found: Tensor) -> Tensor:
    return found.flatten().roll(1).view(found.shape)


FAULTS: dict[str, Callable[[Formula], Formula]] = {
    "a factor": lambda right: lambda grad, y: right(grad, y) * 1.01,
    "an element": lambda right: lambda grad, y: one_off(right(grad, y), 1.12),
    "elements exchanged": lambda right: lambda grad, y: exchanged(right(grad, y)),
    "1 + y y": lambda right: lambda grad, y: grad * (1 + y * y),
    "a sign": lambda right: lambda grad, y: -right(grad, y),
    "a factor left out": lambda right: lambda grad, y: grad * (1 - y),
    "of another function": lambda right: lambda grad, y: grad * (1 - y * y) * (1 - y) * y,
}


@DTYPES
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", KERNELS)
def test_a_fault_beside_such_steps_is_an_error(bench: Make, name: str, fault: str, dtype: torch.dtype) -> None:
    assert gradients(bench, name, FAULTS[fault](KERNELS[name][1]), dtype, (8, 32, 1, 1)).verdict == "error"


def test_a_users_function_with_such_steps_is_an_error(bench: Make) -> None:
    """One that is registered, and one that a test compares with torch's."""
    x, mine = (normal(64, 9) * 0.1).bfloat16(), by_formula(torch.sigmoid, sigmoid_gradient)

    def function(x: Tensor) -> Tensor:
        return mine(x) if x.dtype is BF16 else torch.sigmoid(x)

    devices = Registry(devices=registry({}).devices, calls={"Torch.sigmoid": function})
    request = {"device": "cuda"}
    replaced = bench("Torch.sigmoid", torch.sigmoid, x, backward=True, registry=devices, request=request)
    assert replaced.check("backward").verdict == "error"
    checker = Checker(RunRequest(device="cuda"), registry({}))
    compared = checker.compare(function, torch.sigmoid, (x,), backward=True, api="Torch.sigmoid")
    assert [verdict.verdict for verdict in compared] == ["pass", "error"]


def normalised(make: Make, dtype: torch.dtype, shape: tuple[int, ...], fault: Any = None) -> Verdict:
    generator, channels = torch.Generator().manual_seed(0), shape[1]
    x = torch.randn(shape, generator=generator).to(dtype)
    named = {"weight": 1 + 0.3 * torch.randn(channels, generator=generator)}
    named["bias"] = torch.randn(channels, generator=generator)
    settings: dict[str, Any] = {"training": True, "momentum": 0.1, "eps": 1e-5, "backward": True, **named}
    settings |= {"registry": registry({F.batch_norm: batch_norm(fault)}), "request": {"device": "cuda"}}
    moments = torch.zeros(channels), torch.ones(channels)
    found = make("Functional.batch_norm", F.batch_norm, x, *moments, **settings)
    assert found.check().verdict == "pass"
    return found.check("backward")


@DTYPES
@pytest.mark.parametrize("shape", [(8, 32, 12, 12), (4, 3, 7, 5), (2, 2, 48, 48), (16, 8, 30)], ids=str)
def test_sums_that_warps_round_pass(bench: Make, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    found = normalised(bench, dtype, shape)
    note = f"rounds each step in {str(dtype).removeprefix('torch.')}"
    assert (found.verdict, {output.reason for output in found.outputs}) == ("pass", {note})


WRONG_SUMS: dict[str, Callable[..., Any]] = {
    "an element": lambda x, weight, bias, parts: (one_off(x, 1.06), weight, bias),
    "a factor of x": lambda x, weight, bias, parts: (x * 1.01, weight, bias),
    "a factor of the weight": lambda x, weight, bias, parts: (x, weight * 1.01, bias),
    "channels exchanged": lambda x, weight, bias, parts: (x, weight, exchanged(bias)),
    "a sign": lambda x, weight, bias, parts: (x, -weight, bias),
    "no weight": lambda x, weight, bias, parts: ((parts[0] - parts[1] - parts[2]) * parts[3], weight, bias),
    "no mean": lambda x, weight, bias, parts: (x + parts[1] * parts[3], weight, bias),
    "no scale": lambda x, weight, bias, parts: (x + parts[2] * parts[3], weight, bias),
}


@DTYPES
@pytest.mark.parametrize("fault", WRONG_SUMS)
def test_a_fault_beside_such_sums_is_an_error(bench: Make, fault: str, dtype: torch.dtype) -> None:
    assert normalised(bench, dtype, (8, 16, 12, 12), WRONG_SUMS[fault]).verdict == "error"


# Modes


def accumulated(a: Tensor, b: Tensor) -> Tensor:
    """A product whose sum is bfloat16 after each of four pieces."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for left, right in zip(a.chunk(4, 1), b.chunk(4, 0), strict=True):
        total = (total.float() + torch.matmul(left.float(), right.float())).to(a.dtype)
    return total


def with_leftovers(a: Tensor, b: Tensor) -> Tensor:
    """A split sum whose workspace was not zeroed: what an earlier call left in it is small."""
    left = torch.randn(a.shape[0], b.shape[1], generator=torch.Generator().manual_seed(1))
    return (torch.matmul(a.float(), b.float()) + 0.2 * left).to(a.dtype)


NAMED = "within reduced-reduction, which --probe-allow names: the framework's flags say nothing of this function"


@pytest.mark.parametrize(
    ("function", "allow", "verdict", "notes"),
    [
        (accumulated, "auto", "error", None),
        (with_leftovers, "auto", "error", None),
        (torch.matmul, "auto", "pass", ()),
        (accumulated, "reduced-reduction", "pass", (NAMED,)),
    ],
)
def test_flags_count_for_the_frameworks_own_function_and_excuse_no_users(
    function: Kernel, allow: str, verdict: str, notes: tuple[str, ...] | None
) -> None:
    assert torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    devices = Registry(devices={"cuda": lambda name: Replacing(name, {torch.matmul: accumulated})})
    checker = Checker(RunRequest(device="cuda", allow=(allow,)), devices)
    a, b = normal(32, 512, dtype=BF16), normal(512, 24, dtype=BF16, seed=1)
    (found,) = checker.compare(function, torch.matmul, (a, b), api="Torch.matmul")
    assert found.verdict == verdict
    if notes is not None:
        assert (found.outputs[0].metrics["mode"], found.notes) == ("reduced-reduction", notes)


def product(device: Kernel, a: Tensor, b: Tensor) -> str:
    """The verdict on a device's product where TF32 is allowed."""
    devices = Registry(devices={"cuda": lambda name: Replacing(name, {})})
    checker = Checker(RunRequest(device="cuda", allow=("tf32",), diagnosed=False), devices)
    return checker.compare(device, torch.mm, (a, b), api="Torch.mm")[0].verdict


@pytest.mark.parametrize("how", ["even", "away", "zero"])
@pytest.mark.parametrize("terms", [1, 2, 5])
def test_products_of_few_rounded_terms_pass(terms: int, how: str) -> None:
    """Few samples of a mode's rounding say little of one element."""
    rounded = to_bits(11, how)
    for seed in range(6):
        a, b = normal(139, terms, seed=seed), normal(terms, 32, seed=100 + seed)
        assert product(lambda a, b: torch.mm(rounded(a), rounded(b)), a, b) == "pass"


@pytest.mark.parametrize("terms", [1, 5, 13, 200])
@pytest.mark.parametrize("shape", [(19, 34), (16, 1), (1, 40)])
def test_an_element_that_is_off_by_32_times_the_modes_error_is_an_error(shape: tuple[int, int], terms: int) -> None:
    rounded = to_bits(11)

    def device(a: Tensor, b: Tensor) -> Tensor:
        found = torch.mm(rounded(a), rounded(b))
        size = (found.double() - a.double() @ b.double()).square().mean().sqrt().float()
        place = found.abs().flatten().argsort()[found.numel() // 2]
        found.view(-1)[place] += 32 * size
        return found

    assert product(device, normal(shape[0], terms, seed=3), normal(terms, shape[1], seed=4)) == "error"
