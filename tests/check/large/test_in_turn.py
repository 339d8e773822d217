"""16-bit sums over all rows are made of pieces where these give what the whole gives, bit for bit, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

from pytest_probe.check import replay
from pytest_probe.check.large.in_turn import gradients_in_turn
from pytest_probe.check.replay import Reference
from pytest_probe.model.run import Leaf, Way
from pytest_probe.numerics.dtypes import AnyArray
from tests.support.large_calls import cut_small_calls, outputs

Tensor = torch.Tensor
Found = dict[str, AnyArray] | None


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Found, dict[str, AnyArray]]]:
    """What runs of 16-bit steps in pieces give, beside the same in full."""
    cut_small_calls(monkeypatch)
    found: list[tuple[Found, dict[str, AnyArray]]] = []

    def noting(reference: Reference, leaves: Mapping[str, Leaf], way: Way, incoming: Mapping[str, AnyArray]) -> Found:
        pieces = gradients_in_turn(reference, leaves, way, incoming)
        if way.steps is not None and way.steps.dtype == "bfloat16" and not way.steps.computed:
            found.append((pieces, replace(reference, corner=None).gradients_of(leaves, way, incoming)))
        return pieces

    monkeypatch.setattr(replay, "gradients_in_turn", noting)
    return found


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def twice(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return norm(norm(x, weight, bias), bias, weight)


def apart(x: Tensor, one: Tensor, other: Tensor) -> Tensor:
    return F.layer_norm(F.layer_norm(x, x.shape[-1:], one), x.shape[-1:], other)


ALIKE: dict[str, tuple[Callable[..., Tensor], tuple[int, ...]]] = {
    "rows": (norm, (512, 64)),
    "rows of a batch": (norm, (256, 2, 64)),
    "two norms": (apart, (512, 64)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_pieces_give_what_the_whole_gives(name: str, made: list[tuple[Found, dict[str, AnyArray]]]) -> None:
    function, shape = ALIKE[name]
    given = [numbers(*shape), numbers(64, seed=1), numbers(64, seed=2)]
    found = outputs(function, function, given, backward=True)
    # The CPU's running sums in bfloat16 may lose more than a hundredth, which is a warning.
    assert {output.verdict for output in found.values()} <= {"pass", "warning"}
    assert made
    for pieces, whole in made:
        assert pieces is not None
        assert pieces.keys() == {"input.1", "input.2"}
        assert all(np.array_equal(array, whole[name]) for name, array in pieces.items())


def other_order(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return norm(x.transpose(0, 1).contiguous(), weight, bias).transpose(0, 1)


def scaled(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return norm(x, weight * 3, bias * 3)


def by_hand(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x * weight + bias


UNLIKE: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "rows in another order": (other_order, (256, 2, 64)),
    "a step after the sums": (scaled, (512, 64)),
    "sums of another kernel": (by_hand, (512, 64)),
    "sums that meet": (twice, (512, 64)),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_what_is_not_certain_of_pieces_runs_in_full(name: str, made: list[tuple[Found, dict[str, AnyArray]]]) -> None:
    function, shape = UNLIKE[name]
    given = [numbers(*shape), numbers(64, seed=1), numbers(64, seed=2)]
    outputs(function, function, given, backward=True)
    assert made
    assert all(pieces is None for pieces, _ in made)
