"""Indices that a user's own function returns: those of equal elements trade places, and no others do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec import Struct

from pytest_probe.model.verdict import Verdict
from tests.support.comparing import compared
from tests.support.gradients import with_gradient

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
    "a choice among computed scores": Choosing(lambda x: (x * 8).sigmoid()),
    "a choice of indices alone": Choosing(lambda x: x.round(), values_too=False),
    "a choice among many zeros": Choosing(lambda x: (x - 2.5).relu()),
    "a choice among maxima": Choosing(lambda x: x.clamp(max=1.0), values_too=False),
}


def inputs(seed: int, dtype: str) -> Tensor:
    """With few distinct numbers, so that many are equal."""
    generator = torch.Generator().manual_seed(seed)
    return ((torch.randn(24, 256, generator=generator) * 16).round() / 16).to(DTYPES[dtype])


def verdict(function: Callable[..., Any], name: str, dtype: str, device: str, seed: int) -> Verdict:
    how: Any = {"device": device, "key": f"choice.{seed}"}
    return compared(function, FUNCTIONS[name].reference, [inputs(seed, dtype)], **how)[0]


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


PLACES = pytest.mark.parametrize(("dtype", "device"), [("float32", "cpu"), ("bfloat16", "npu"), ("float16", "cpu")])


@PLACES
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_index_of_an_equal_element_is_right(name: str, dtype: str, device: str) -> None:
    found = {seed: verdict(FUNCTIONS[name].last_first, name, dtype, device, seed) for seed in range(4)}
    assert {seed: each.reason for seed, each in found.items() if each.verdict != "pass"} == {}


@PLACES
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_other_index_is_an_error(name: str, fault: str, dtype: str, device: str) -> None:
    assert verdict(with_indices(FAULTS[fault], name), name, dtype, device, 0).verdict == "error"


ROWS = torch.randint(0, 50, (1000, 8), generator=torch.Generator().manual_seed(1))
OF_BAGS: dict[str, Callable[[Tensor], Tensor]] = {
    "of a bag": lambda weight: torch.nn.functional.embedding_bag(ROWS, weight, mode="max"),
    "of gathered rows": lambda weight: weight[ROWS].max(1).values,
}


def of_gradient(name: str, dtype: str, damage: Callable[[Tensor], Tensor] = lambda gradient: gradient) -> Verdict:
    """The verdict on the gradient of largest numbers, which the CPU adds up in 16 bit under another name; of equal
    numbers it goes to one, and any may be it."""
    weight = torch.randn(50, 16, generator=torch.Generator().manual_seed(1)).to(DTYPES[dtype])
    right = OF_BAGS[name]
    how: Any = {"device": "npu", "key": "largest", "backward": True}
    return compared(lambda w: right(with_gradient(w, lambda found: damage(found.clone()))), right, [weight], **how)[1]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", OF_BAGS)
def test_a_gradient_of_chosen_numbers_may_be_added_up_as_on_the_cpu(name: str, dtype: str) -> None:
    found = of_gradient(name, dtype)
    assert found.verdict != "error"
    assert "unstable" not in found.reason


def row_missing(gradient: Tensor) -> Tensor:
    gradient[7] = 0
    return gradient


def half_more(gradient: Tensor) -> Tensor:
    gradient.view(-1)[gradient.abs().argmax()] *= 1.5
    return gradient


@pytest.mark.parametrize("damage", [row_missing, half_more, lambda gradient: gradient * 1.1])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", OF_BAGS)
def test_what_is_wrong_in_such_a_gradient_is_found(name: str, dtype: str, damage: Callable[[Tensor], Tensor]) -> None:
    assert of_gradient(name, dtype, damage).verdict == "error"
