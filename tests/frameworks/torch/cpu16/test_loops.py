"""Which elements no vector holds: of loops over eight elements at once."""

from __future__ import annotations

import torch

from pytest_probe.frameworks.torch.cpu16.loops import beyond_vectors


def left(*tensors: torch.Tensor) -> list[int]:
    return beyond_vectors(8, *tensors).reshape(-1).nonzero().reshape(-1).tolist()


def test_the_last_elements_of_what_lies_in_one_piece() -> None:
    assert left(torch.zeros(20)) == [16, 17, 18, 19]
    assert left(torch.zeros(16)) == []
    assert left(torch.zeros(4, 5), torch.zeros(4, 5)) == [16, 17, 18, 19]
    assert left(torch.zeros(5)) == [0, 1, 2, 3, 4]
    assert left(torch.zeros(())) == [0]


def test_in_the_order_of_memory() -> None:
    across = torch.zeros(5, 4).t()
    assert left(across, across) == [4, 9, 14, 19]
    assert left(torch.zeros(1, 3, 3, 3).to(memory_format=torch.channels_last)) == [8, 17, 26]


def test_of_each_row_where_rows_lie_apart() -> None:
    cut = torch.zeros(2, 12)[:, :9]
    assert left(cut, cut) == [8, 17]
    assert left(torch.zeros(2, 9), torch.zeros(9)) == [8, 17]


def test_a_number_beside_the_rest_hinders_nothing() -> None:
    assert left(torch.zeros(20), torch.zeros(())) == [16, 17, 18, 19]
    assert left(torch.zeros(2, 9), torch.zeros(2, 1)) == [8, 17]


def test_all_where_elements_are_apart() -> None:
    assert left(torch.zeros(3, 6)[:, ::2]) == list(range(9))
    assert left(torch.zeros(3, 3), torch.zeros(3, 3).t()) == list(range(9))
