"""Indices that a user's own function returns: those of equal elements trade places, and no others do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec import Struct

from pytest_probe.check import Checker, Conditions
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.support.devices import Emulated

Tensor = torch.Tensor
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
COUNT = 12


class Choosing(Struct, frozen=True):
    """A function that chooses: `scores` gives what it chooses from along the last dimension."""

    scores: Callable[[Tensor], Tensor]
    values_too: bool = True

    def reference(self, x: Tensor) -> Any:
        found = torch.topk(self.scores(x), COUNT)
        return (found.values, found.indices) if self.values_too else found.indices

    def last_first(self, x: Tensor) -> Any:
        """Of equal elements the last, where torch's kernel takes another."""
        scores = self.scores(x)
        order = torch.sort(scores.flip(-1), descending=True, stable=True).indices[..., :COUNT]
        indices = scores.shape[-1] - 1 - order
        return (scores.gather(-1, indices), indices) if self.values_too else indices


FUNCTIONS = {
    "a choice among arguments": Choosing(lambda x: x * 1),
    "a choice among computed scores": Choosing(lambda x: (x * 8).sigmoid()),
    "a choice of indices alone": Choosing(lambda x: x.round(), values_too=False),
    "a choice among many zeros": Choosing(lambda x: (x - 2.5).relu()),
    "a choice among maxima": Choosing(lambda x: x.clamp(max=1.0), values_too=False),
    "a choice among squares": Choosing(lambda x: x.square()),
}


def inputs(seed: int, dtype: str) -> Tensor:
    """With few distinct numbers, so that many are equal."""
    generator = torch.Generator().manual_seed(seed)
    return ((torch.randn(24, 256, generator=generator) * 16).round() / 16).to(DTYPES[dtype])


def verdict(function: Callable[..., Any], name: str, dtype: str, device: str, seed: int) -> Verdict:
    registry = Registry.default()
    registry.devices["npu"] = Emulated
    checker = Checker(Conditions(device=device), registry)
    [found] = checker.compare(function, FUNCTIONS[name].reference, [inputs(seed, dtype)], key=f"choice.{seed}")
    return found


def with_indices(change: Callable[[Tensor, Tensor], Tensor], name: str) -> Callable[[Tensor], Any]:
    """The healthy function with other indices; change gets the scores, too."""

    def faulty(x: Tensor) -> Any:
        found, scores = FUNCTIONS[name].last_first(x), FUNCTIONS[name].scores(x)
        return (found[0], change(found[1], scores)) if isinstance(found, tuple) else change(found, scores)

    return faulty


def another_element(indices: Tensor, scores: Tensor) -> Tensor:
    changed = indices.clone()
    changed[7, 0] = scores[7].argmin()
    return changed


def the_same_element_twice(indices: Tensor, scores: Tensor) -> Tensor:
    changed = indices.clone()
    changed[5, 1] = changed[5, 0]
    return changed


def beyond_the_end(indices: Tensor, scores: Tensor) -> Tensor:
    changed = indices.clone()
    changed[2, 0] = scores.shape[-1]
    return changed


FAULTS = {
    "another element": another_element,
    "the same element twice": the_same_element_twice,
    "beyond the end": beyond_the_end,
    "of the next row": lambda indices, scores: indices.roll(1, 0),
    "off by one": lambda indices, scores: (indices + 1) % scores.shape[-1],
}


@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_index_of_an_equal_element_is_right(name: str, dtype: str, device: str) -> None:
    found = {seed: verdict(FUNCTIONS[name].last_first, name, dtype, device, seed) for seed in range(4)}
    assert {seed: each.reason for seed, each in found.items() if each.verdict != "pass"} == {}


@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_other_index_is_an_error(name: str, fault: str, dtype: str, device: str) -> None:
    assert verdict(with_indices(FAULTS[fault], name), name, dtype, device, 0).verdict == "error"
