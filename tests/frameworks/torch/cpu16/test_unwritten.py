"""16-bit kernels whose steps are not written down: torch's own are a warning, and a fault in their place an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pytest_probe.check import Checker, Conditions
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.frameworks.torch.cpu16.rounding import threads
from tests.frameworks.torch.cpu16.test_narrow import UNWRITTEN, WRITTEN
from tests.support.calls.computing import COMPUTING
from tests.support.calls.making import Call, Maker
from tests.support.devices import Emulated

DTYPES = ("bfloat16", "float16")
FURTHER = pytest.mark.exhaustive
OWN = "torch's own 16-bit kernel here"
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with threads(1):
        yield


def verdicts(function: Function, call: Call, device: str = "cpu", *, backward: bool = True) -> tuple[Verdict, ...]:
    registry = Registry.default()
    registry.devices["other"] = Emulated
    checker = Checker(Conditions(device=device, allow=("none",), diagnosed=False), registry)
    return checker.compare(function, call.function, call.args, call.kwargs, api=call.api, backward=backward)


def one_call(name: str, dtype: str) -> Call:
    return COMPUTING[name][0](Maker(dtype, 37, 69, 0))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*sorted(UNWRITTEN), *WRITTEN])
def test_no_kernel_is_an_error(name: str, dtype: str) -> None:
    for making in COMPUTING[name]:
        call = making(Maker(dtype, 37, 69, 0))
        for found in verdicts(call.function, call):
            assert found.verdict in ("pass", "skip") or (found.verdict == "warning" and OWN in found.reason)


@pytest.mark.sampled(2)
@pytest.mark.compat
@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=FURTHER)])
@pytest.mark.parametrize("name", ["addmv", "softmax", "log_softmax", "cross_entropy", "embedding_bag", "huber_loss"])
def test_no_release_has_a_false_error(name: str, dtype: str) -> None:
    """Earlier ones round more kernels inside."""
    for making in COMPUTING[name]:
        for size, seed in (((3, 5), 3), ((3, 5), 7), ((37, 69), 1), ((37, 69), 5)):
            call = making(Maker(dtype, *size, seed))
            assert [found.reason for found in verdicts(call.function, call) if found.verdict == "error"] == []


@pytest.mark.parametrize("name", ["xlogy", "entr", "grid_sample"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_torchs_own_is_a_warning_on_its_cpu_alone(dtype: str, name: str) -> None:
    call = one_call(name, dtype)
    assert verdicts(call.function, call)[0].verdict == "warning"
    (elsewhere,) = verdicts(call.function, call, "other", backward=False)
    # What steps in 16 bit make of its places is off by more than 1 % of the result, and that is said.
    granted = name == "grid_sample"
    assert (elsewhere.verdict, OWN in elsewhere.reason) == ("warning" if granted else "pass", False)
    assert ("explains it" in elsewhere.reason) is granted


@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize("name", ["xlogy", "entr", "huber_loss"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_function_in_its_place_that_is_wrong_is_an_error(dtype: str, name: str, device: str) -> None:
    """All of it, or one element."""
    call = one_call(name, dtype)

    def scaled(*args: Any, **kwargs: Any) -> Any:
        return call.function(*args, **kwargs) * 1.05

    def one_off(*args: Any, **kwargs: Any) -> Any:
        found = call.function(*args, **kwargs)
        found.view(-1)[found.abs().argmax()] *= 1.1
        return found

    for wrong in (scaled, one_off):
        assert verdicts(wrong, call, device, backward=False)[0].verdict == "error"


def in_steps(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """xlogy as torch's kernel has it in 16 bit."""
    return x * y.log()


def test_another_function_with_the_same_bits_gets_what_torchs_own_gets() -> None:
    call = one_call("xlogy", "bfloat16")
    assert torch.equal(in_steps(*call.args), torch.xlogy(*call.args))
    assert verdicts(in_steps, call)[0].verdict == "warning"


@pytest.mark.parametrize(("after", "verdict"), [(lambda y: y, "warning"), (lambda y: y * 1.03, "error")])
def test_a_function_that_a_user_patched_is_judged_by_the_kernels_inside(
    after: Callable[[torch.Tensor], torch.Tensor], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's own kernel rounds inside, and what the user does with its result is the user's. The reference is torch's
    own: only what is compared with it can be the patch."""
    call, right = one_call("xlogy", "bfloat16"), torch.xlogy
    monkeypatch.setattr(torch, "xlogy", lambda *args: after(right(*args)))
    assert verdicts(torch.xlogy, call, backward=False)[0].verdict == verdict
    assert verdicts(right, call, backward=False)[0].verdict == "warning"
