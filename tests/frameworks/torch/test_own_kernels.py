from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pytest_probe.check import Checker, RunRequest
from pytest_probe.frameworks.torch.own_rounding import rounding_once
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.support.calls.computing import COMPUTING
from tests.support.calls.making import Call, Maker
from tests.support.devices import Emulated
from tests.support.gradients import with_gradient, with_scaled_gradient

DTYPES = ("bfloat16", "float16")
# Wrong on the CPU.
WRONG = frozenset(["matrix_exp"])
OWN = "torch's own 16-bit kernel here"
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Several threads may cut loops, and so tails of vectors, in other places."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def verdicts(function: Function, call: Call, device: str = "cpu", *, backward: bool = True) -> tuple[Verdict, ...]:
    registry = Registry.default()
    registry.devices["other"] = Emulated
    checker = Checker(RunRequest(device=device, allow=("none",), diagnosed=False), registry)
    return checker.compare(function, call.function, call.args, call.kwargs, api=call.api, backward=backward)


def one_call(name: str, dtype: str) -> Call:
    return COMPUTING[name][0](Maker(dtype, 37, 69, 0))


@pytest.mark.evidence
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(COMPUTING.keys() - WRONG))
def test_no_kernel_is_an_error(name: str, dtype: str) -> None:
    for making in COMPUTING[name]:
        call = making(Maker(dtype, 37, 69, 0))
        for found in verdicts(call.function, call):
            assert found.verdict != "error", found.reason


@pytest.mark.evidence
@pytest.mark.compat
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["addmv", "softmax", "log_softmax", "cross_entropy", "embedding_bag", "huber_loss"])
def test_no_release_has_a_false_error(name: str, dtype: str) -> None:
    """Earlier ones round more kernels inside."""
    for making in COMPUTING[name]:
        for size, seed in (((3, 5), 3), ((3, 5), 7), ((37, 69), 1), ((37, 69), 5)):
            call = making(Maker(dtype, *size, seed))
            assert [found.reason for found in verdicts(call.function, call) if found.verdict == "error"] == []


@pytest.mark.parametrize(
    ("name", "granted"),
    [("softmax", OWN), ("grid_sample", OWN), ("xlogy", "rounds each step"), ("entr", "rounds each step")],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_torchs_own_is_granted_its_rounding_on_its_cpu_alone(dtype: str, name: str, granted: str) -> None:
    call = COMPUTING[name][name == "softmax"](Maker(dtype, 37, 69, 0))  # softmax's along another dimension
    here = verdicts(call.function, call)[0]
    assert (here.verdict, granted in here.reason) == ("warning" if granted == OWN else "pass", True)
    (elsewhere,) = verdicts(call.function, call, "other", backward=False)
    # What steps in 16 bit make of its places is off by more than 1 % of the result, and that is said.
    moved = name == "grid_sample"
    assert (elsewhere.verdict, granted in elsewhere.reason) == ("warning" if moved else "pass", False)
    assert ("explained by" in elsewhere.reason) is moved


def with_one_larger(values: torch.Tensor) -> torch.Tensor:
    found = values.clone()
    found.view(-1)[found.abs().argmax()] *= 1.1
    return found


@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize("name", ["xlogy", "entr", "huber_loss"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_function_in_its_place_that_is_wrong_is_an_error(dtype: str, name: str, device: str) -> None:
    """All of it, or one element."""
    call = one_call(name, dtype)

    def scaled(*args: Any, **kwargs: Any) -> Any:
        return call.function(*args, **kwargs) * 1.05

    def one_off(*args: Any, **kwargs: Any) -> Any:
        return with_one_larger(call.function(*args, **kwargs))

    for wrong in (scaled, one_off):
        assert verdicts(wrong, call, device, backward=False)[0].verdict == "error"


@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "kwargs"), [("mse_loss", {}), ("huber_loss", {"delta": 0.3})])
def test_a_mean_of_many_has_a_rounded_factor(name: str, kwargs: dict[str, float], dtype: str, device: str) -> None:
    """2 / N is a subnormal of float16. A gradient that is 10 % too large, or has one such element, is an error."""
    make = Maker(dtype, 1000, 192, 0)
    args, loss = (make.x(), make.x()), getattr(torch.nn.functional, name)
    call = Call(f"Functional.{name}", args, kwargs)

    def changed(change: Callable[[torch.Tensor], torch.Tensor]) -> list[str]:
        found = verdicts(lambda x, y, **kwargs: loss(with_gradient(x, change), y, **kwargs), call, device)
        return [output.verdict for each in found for output in each.outputs]

    assert changed(lambda gradient: gradient) == ["pass"] * 3
    for wrong in (lambda gradient: gradient * 1.1, with_one_larger):
        assert changed(wrong) == ["pass", "error", "pass"]


def in_lists(x: torch.Tensor) -> torch.Tensor:
    torch._foreach_mul_([x], [x])
    return x


@pytest.mark.parametrize(
    "written", [lambda x: x.mul_(x), lambda x: torch.mul(x, x.abs(), out=x), in_lists], ids=["in place", "out", "lists"]
)
def test_rounding_once_leaves_what_a_kernel_reads_and_writes(written: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = Maker("bfloat16", 3, 5, 0).x()
    with rounding_once() as replaced:
        found = written(x.clone())
    assert torch.equal(found, written(x.clone()))
    assert not replaced()


def in_steps(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """xlogy as torch's kernel has it in 16 bit."""
    return x * y.log()


def test_another_function_with_the_same_bits_gets_what_torchs_own_gets() -> None:
    call = one_call("xlogy", "bfloat16")
    assert torch.equal(in_steps(*call.args), torch.xlogy(*call.args))
    assert verdicts(in_steps, call)[0].verdict == "pass"
    assert verdicts(lambda x, y: in_steps(x, y) * 1.03, call, backward=False)[0].verdict == "error"


@pytest.mark.parametrize(("after", "verdict"), [(lambda y: y, "pass"), (lambda y: y * 1.03, "error")])
def test_a_function_that_a_user_patched_is_judged_by_the_kernels_inside(
    after: Callable[[torch.Tensor], torch.Tensor], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's own kernel rounds inside, and what the user does with its result is the user's. The reference is torch's
    own: only what is compared with it can be the patch."""
    call, right = one_call("xlogy", "bfloat16"), torch.xlogy
    monkeypatch.setattr(torch, "xlogy", lambda *args: after(right(*args)))
    assert verdicts(torch.xlogy, call, backward=False)[0].verdict == verdict
    assert verdicts(right, call, backward=False)[0].verdict == "pass"


@pytest.mark.parametrize("seed", range(4))
def test_a_kernel_may_round_a_python_float_and_its_gradient_not(seed: int) -> None:
    """The forward, and the gradients of the factors, are nearest to one reading, the gradient of the summand to the
    other."""
    make = Maker("bfloat16", 2, 3, seed)
    args = (make.x(2, 3), make.x(2, 2), make.x(2, 3))
    checker = Checker(RunRequest(device="cpu", allow=("none",)), Registry.default())
    kwargs = {"alpha": 0.6, "beta": 0.2}
    verdicts = checker.compare(torch.addmm, torch.addmm, args, kwargs, api="Torch.addmm", backward=True)
    assert [verdict.verdict for verdict in verdicts] == ["pass", "pass"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_kernel_that_is_wrong_stays_an_error(dtype: str) -> None:
    """Of numbers below 0.2 the CPU's matrix_exp gives 10^30, or NaN."""
    x = Maker(dtype, 5, 5, 0).between(-0.2, 0.2, 5, 5)
    checker = Checker(RunRequest(device="cpu", allow=("none",)), Registry.default())
    (verdict,) = checker.compare(torch.matrix_exp, torch.matrix_exp, (x,), api="Torch.matrix_exp")
    assert verdict.verdict == "error"


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

    checker = Checker(RunRequest(device="cpu", allow=("none",)), Registry.default())
    api = "Functional.scaled_dot_product_attention"
    found = checker.compare(device, attention, args, api=api, backward=True)
    assert [item.verdict for item in found] == [verdict, verdict]


@pytest.mark.parametrize(("factor", "found"), [(1.0, "pass"), (1 + 2.0**-5, "error")])
def test_convolutions_of_no_library_round_inside(factor: float, found: str) -> None:
    """Without oneDNN, or AVX512, bfloat16 convolutions are torch's own, as float16's are."""
    function = torch.nn.functional.conv2d

    def device(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return function(x, weight, padding=1) * factor

    checker = Checker(RunRequest(device="cpu", allow=("none",)), Registry.default())
    with torch.backends.mkldnn.flags(enabled=False):
        for seed in range(4):
            make = Maker("bfloat16", 3, 5, seed)
            args = (make.x(2, 6, 13, 16), make.x(3, 6, 3, 3))
            reference = functools.partial(function, padding=1)
            verdicts = checker.compare(device, reference, args, api="Functional.conv2d", backward=True)
            assert [verdict.verdict for verdict in verdicts] == [found] * 2


def _normalised(seed: int, dtype: torch.dtype) -> tuple[Any, ...]:
    """16-bit rows with float32 weight and bias near 1 and near 0, as autocast hands them to layer_norm."""
    generator = torch.Generator().manual_seed(seed)
    x, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((30, 8), (8,), (8,)))
    return x.to(dtype), (8,), 1 + 1e-3 * weight, 1e-3 * bias


def _verdict(function: Any, seed: int, dtype: torch.dtype) -> Verdict:
    checker = Checker(RunRequest(device="cpu"), Registry.default())
    layer_norm, args = torch.nn.functional.layer_norm, _normalised(seed, dtype)
    return checker.compare(function, layer_norm, args, api="Functional.layer_norm", backward=True)[1]


@pytest.mark.slow
def test_a_healthy_gradient_of_wide_weights_is_no_error() -> None:
    for seed in range(4):
        assert _verdict(torch.nn.functional.layer_norm, seed, torch.float16).verdict != "error"


@pytest.mark.slow
def test_a_gradient_of_wide_weights_that_is_off_is_an_error() -> None:
    def faulty(x: torch.Tensor, shape: Any, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, shape, with_scaled_gradient(weight, 1.02), bias)

    x, weight, bias = _verdict(faulty, 0, torch.bfloat16).outputs
    assert (x.verdict, weight.verdict) == ("pass", "error")
    # How much of its sums is lost, which is a warning from a hundredth on, is a matter of threads.
    assert bias.verdict != "error"
