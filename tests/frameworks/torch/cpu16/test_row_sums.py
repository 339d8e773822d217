"""Sums over rows that go on from piece to piece are those of the whole, bit for bit."""

from __future__ import annotations

import pytest
import torch

from pytest_probe.frameworks.torch.cpu16.row_sums import row_sum, rows_in_turn

ROWS = torch.randn(24, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).bfloat16().double()


@pytest.fixture(params=[1, 2, 7])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(torch, "get_num_threads", lambda: request.param)
    return int(request.param)


def by_hand(rows: torch.Tensor, threads: int) -> torch.Tensor:
    share = -(-len(rows) // threads)
    total = torch.zeros(5, dtype=torch.float64)
    for start in range(0, len(rows), share):
        own = torch.zeros(5, dtype=torch.bfloat16)
        for row in rows[start : start + share]:
            own = own + row.bfloat16()
        total += own.double()
    return total


def test_each_thread_adds_up_its_own_rows(threads: int) -> None:
    assert torch.equal(row_sum(torch.bfloat16, ROWS), by_hand(ROWS, threads))


@pytest.mark.parametrize("step", [1, 5, 12])
def test_pieces_go_on_from_one_another(step: int, threads: int) -> None:
    """Of 12 places with two rows each, and of two kernels in each piece."""
    found = []
    with rows_in_turn(12) as turn:
        for start in range(0, 12, step):
            stop = min(start + step, 12)
            turn.begin(slice(start, stop))
            piece = ROWS[2 * start : 2 * stop]
            found.append([row_sum(torch.bfloat16, part) for part in (piece, 2 * piece)])
    for kernel, factor in enumerate((1, 2)):
        *zeros, total = (piece[kernel] for piece in found)
        assert not any(zero.any() for zero in zeros)
        assert torch.equal(total, by_hand(factor * ROWS, threads))
        assert turn.has_given(total.numpy())
    assert not turn.has_given(ROWS[0].numpy())


def test_runs_after_the_pieces_are_whole_again() -> None:
    with rows_in_turn(24) as turn:
        turn.begin(slice(0, 3))
        assert not row_sum(torch.bfloat16, ROWS[:3]).any()
    assert row_sum(torch.bfloat16, ROWS).any()
