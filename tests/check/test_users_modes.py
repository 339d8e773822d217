"""The framework's flags count for its own calls: a user's function has no modes but those that are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from pytest_probe.check import Checker, RunRequest
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.support.devices import Emulated

GENERATOR = torch.Generator().manual_seed(0)
A, B = (torch.randn(shape, generator=GENERATOR).bfloat16() for shape in ((32, 512), (512, 24)))


def accumulated(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A product whose sum is bfloat16 after each of four pieces."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for left, right in zip(a.chunk(4, 1), b.chunk(4, 0), strict=True):
        total = (total.float() + torch.matmul(left.float(), right.float())).to(a.dtype)
    return total


def with_leftovers(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A split sum whose workspace was not zeroed: what an earlier call left in it is small."""
    left = torch.randn(a.shape[0], b.shape[1], generator=torch.Generator().manual_seed(1))
    return (torch.matmul(a.float(), b.float()) + 0.2 * left).to(a.dtype)


class Reducing(Emulated):
    """A device whose own product accumulates in bfloat16."""

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return accumulated(*args) if function is torch.matmul else function(*args, **kwargs)


def verdict(function: Callable[..., Any], allow: str) -> Verdict:
    registry = Registry.default()
    registry.devices["cuda"] = Reducing
    checker = Checker(RunRequest(device="cuda", allow=(allow,)), registry)
    return checker.compare(function, torch.matmul, (A, B), api="Torch.matmul")[0]


@pytest.mark.parametrize("function", [accumulated, with_leftovers])
def test_flags_excuse_nothing_in_a_function_of_the_users(function: Callable[..., Any]) -> None:
    assert torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    assert verdict(function, "auto").verdict == "error"


def test_flags_count_for_the_frameworks_own_function() -> None:
    found = verdict(torch.matmul, "auto")
    assert (found.verdict, found.outputs[0].metrics["mode"], found.notes) == ("pass", "reduced-reduction", ())


def test_a_mode_that_is_named_counts_and_a_note_says_so() -> None:
    found = verdict(accumulated, "reduced-reduction")
    assert found.verdict == "pass"
    assert found.notes == (
        "within reduced-reduction, which --probe-allow names: the framework's flags say nothing of this function",
    )
