"""torch's own kernels on an accelerator that add in 16 bit: a warning where that explains the error, else an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from pytest_probe.standards.noise.explanation import OWN_KERNEL
from tests.check.conftest import Make, normal
from tests.support.devices import Emulated

Kernel = Callable[[torch.Tensor, int], torch.Tensor]


def scan(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Partial sums, each in the input's dtype."""
    sums = [x.select(dim, 0)]
    for place in range(1, x.shape[dim]):
        sums.append(sums[-1] + x.select(dim, place))
    return torch.stack(sums, dim)


def wrong_scan(x: torch.Tensor, dim: int) -> torch.Tensor:
    """The last sum lacks one term."""
    sums = scan(x, dim)
    sums[:, -1] -= x[:, 3]
    return sums


class Scanning(Emulated):
    """A device with a kernel of its own for cumsum."""

    def __init__(self, name: str, kernel: Kernel) -> None:
        super().__init__(name)
        self.kernel = kernel

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self.kernel(*args) if function is torch.cumsum else function(*args, **kwargs)


def verdict(bench: Make, device: str, kernel: Kernel, dtype: torch.dtype, **calls: Any) -> Verdict:
    registry = Registry(devices={device: lambda name: Scanning(name, kernel)}, calls=calls)
    request = {"device": device}
    x = normal(40, 48, dtype=dtype)
    return bench("Torch.cumsum", torch.cumsum, x, 1, registry=registry, request=request).check()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_scan_in_16_bit_is_a_warning_on_the_device_that_has_it(bench: Make, dtype: torch.dtype) -> None:
    found = verdict(bench, "cuda", scan, dtype)
    assert found.verdict == "warning"
    assert f"the framework's {OWN_KERNEL}" in found.outputs[0].reason
    assert verdict(bench, "other", scan, dtype).verdict == "error"


class RoundedMoments(Emulated):
    """A device whose group_norm keeps the moments of groups in bfloat16."""

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        x, groups, weight = args
        terms = x.double().reshape(len(x), groups, -1)
        mean = terms.mean(-1, keepdim=True).bfloat16().double()
        scale = (terms.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt().bfloat16().double()
        return (((terms - mean) * scale).view(x.shape) * weight.double().view(1, -1, 1, 1)).to(x.dtype)


@pytest.mark.parametrize(("weight", "verdict"), [(torch.bfloat16, "pass"), (torch.float32, "warning")], ids=str)
def test_moments_are_rounded_where_the_weight_is_16_bit(bench: Make, weight: torch.dtype, verdict: str) -> None:
    """Elsewhere such a kernel of a GPU is no more than known to add in 16 bit."""
    x = normal(4, 16, 8, 8, dtype=torch.bfloat16) * 2 + 1
    function = torch.nn.functional.group_norm
    arguments = x, 4, normal(16, dtype=weight)
    registry = Registry(devices={"cuda": RoundedMoments})
    found = bench("Functional.group_norm", function, *arguments, registry=registry, request={"device": "cuda"}).check()
    assert found.verdict == verdict


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_a_lost_term_is_an_error_there(bench: Make, dtype: torch.dtype) -> None:
    assert verdict(bench, "cuda", wrong_scan, dtype).verdict == "error"


def test_a_function_of_a_users_gets_no_warning(bench: Make) -> None:
    def cumsum(x: torch.Tensor, dim: int) -> torch.Tensor:
        return scan(x, dim)

    assert verdict(bench, "cuda", torch.cumsum, torch.bfloat16, **{"Torch.cumsum": cumsum}).verdict == "error"
