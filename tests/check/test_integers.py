"""Integers that torch's CPU has no kernel for have a reference: the same numbers in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from pytest_probe.check import Checker, RunRequest
from pytest_probe.frameworks.torch.references import reference_result
from pytest_probe.registry import Registry
from tests.check.conftest import Make
from tests.support.devices import Emulated

Function = Callable[..., torch.Tensor]


def right(x: torch.Tensor, bins: int = 100, min: int = 0, max: int = 0) -> torch.Tensor:
    return torch.histc(x.double(), bins, min, max).to(x.dtype)


def one_off(*args: Any, **kwargs: Any) -> torch.Tensor:
    return right(*args, **kwargs) + torch.tensor([1, *[0] * 7])


class Accelerator(Emulated):
    """Counts integers, as NVIDIA's do."""

    def __init__(self, kernel: Function) -> None:
        super().__init__("other")
        self.kernel = kernel

    def call(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self.kernel(*args, **kwargs)


# As the router of a mixture of experts counts tokens.
@pytest.mark.parametrize("given", [{"bins": 8, "min": 0, "max": 7}, {"bins": 8}])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
@pytest.mark.parametrize(("kernel", "verdict"), [(right, "pass"), (one_off, "error")])
def test_a_histogram_reference_result(
    kernel: Function, verdict: str, dtype: torch.dtype, given: dict[str, int], bench: Make
) -> None:
    registry = Registry.default()
    registry.devices["other"] = lambda _: Accelerator(kernel)
    experts = torch.randint(0, 8, (4, 96, 2), generator=torch.Generator().manual_seed(0)).to(dtype)
    made = bench("Torch.histc", right, experts, registry=registry, request={"device": "other"}, **given)
    assert made.check().verdict == verdict


def test_the_cpu_itself_has_none(bench: Make) -> None:
    found = bench("Torch.histc", right, torch.arange(4)).check()
    assert (found.verdict, found.kind) == ("skip", "unsupported by the device")


def test_floats_and_other_errors_stay() -> None:
    x = torch.arange(4.0)
    assert torch.equal(reference_result(torch.add, [x, x], {}), x + x)
    with pytest.raises(RuntimeError, match="size of tensor"):
        reference_result(torch.add, [x, torch.arange(3)], {})


def test_a_number_that_float64_does_not_have_is_not_guessed() -> None:
    with pytest.raises(NotImplementedError):
        reference_result(torch.histc, [torch.tensor([2**53 + 1])], {})


def test_where_float64_does_not_help_the_first_error_counts() -> None:
    def refusing(x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError(f"not implemented for '{x.dtype}'")

    with pytest.raises(NotImplementedError, match=r"'torch\.int64'"):
        reference_result(refusing, [torch.arange(3)], {})


@pytest.mark.parametrize(("more", "verdict"), [(0, "pass"), (2, "error")])
def test_integers_of_the_users_function_with_16_bit_arguments(more: int, verdict: str) -> None:
    def floors(x: torch.Tensor) -> torch.Tensor:
        return (x * 3).floor().long()

    x = torch.rand(50, generator=torch.Generator().manual_seed(0)).bfloat16()
    found = Checker(RunRequest(device="cpu"), Registry.default()).compare(lambda x: floors(x) + more, floors, (x,))
    assert [each.verdict for each in found] == [verdict]
