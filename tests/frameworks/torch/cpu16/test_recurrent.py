"""What stands in for oneDNN's LSTM gives what it gives, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_probe.frameworks.torch.cpu16.recurrent import LayersMode
from tests.frameworks.torch.cpu16.rounding import different, threads

supported = torch.ops.mkldnn._is_mkldnn_bf16_supported()
STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 6, 4


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return (0.5 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).bfloat16()


def arguments(layers: int, ways: int, biased: bool) -> list[torch.Tensor]:
    """The input, both states, and the weights."""
    states = [drawn(layers * ways, BATCH, HIDDEN, seed=seed) for seed in (1, 2)]
    weights = []
    for place in range(layers * ways):
        width = INPUTS if place < ways else HIDDEN * ways
        shapes = [(4 * HIDDEN, width), (4 * HIDDEN, HIDDEN), *[(4 * HIDDEN,)] * (2 * biased)]
        weights += [drawn(*shape, seed=10 * place + index) for index, shape in enumerate(shapes)]
    return [drawn(STEPS, BATCH, INPUTS, seed=0), *states, *weights]


@pytest.mark.skipif(not supported, reason="torch runs no bfloat16 LSTM through oneDNN on this processor")
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("layers", "ways"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_layers_are_the_kernels(layers: int, ways: int, biased: bool) -> None:
    def results(x: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        found = torch.lstm(x, (hidden, cell), weights, biased, layers, 0.0, True, ways == 2, False)
        return torch.cat([part.reshape(-1) for part in found])

    args = arguments(layers, ways, biased)
    with threads(1):
        assert different(results, args, torch.bfloat16) == [0] * (1 + len(args))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_other_dtypes_stay(dtype: torch.dtype) -> None:
    assert not LayersMode(dtype).known


@pytest.mark.parametrize("changed", [{"dropout": 0.5}, {"states": "projected"}])
def test_other_calls_stay(changed: dict[str, Any]) -> None:
    x, hidden, cell, *weights = (value.double() for value in arguments(1, 1, True))
    if "states" in changed:
        hidden, weights = hidden[..., :2], [weights[0], weights[1][:, :2], *weights[2:], cell[0, :2, :]]
    mode = LayersMode(torch.bfloat16)
    mode.known = True
    given = (x, (hidden, cell), weights, True, 1, changed.get("dropout", 0.0), False, False, False)
    wanted = torch.lstm(*given)
    with mode:
        found = torch.lstm(*given)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_the_batch_may_come_first() -> None:
    x, hidden, cell, *weights = (value.double() for value in arguments(1, 1, True))
    mode = LayersMode(torch.bfloat16)
    mode.known = True
    with mode:
        last = torch.lstm(x, (hidden, cell), weights, True, 1, 0.0, True, False, False)
        first = torch.lstm(x.transpose(0, 1), (hidden, cell), weights, True, 1, 0.0, True, False, True)
    assert torch.equal(first[0].transpose(0, 1), last[0])
    assert torch.equal(first[2], last[2])
    assert not torch.equal(last[0], torch.lstm(x, (hidden, cell), weights, True, 1, 0.0, True, False, False)[0])
