from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.frameworks.base import LookedUp
from pytest_probe.frameworks.torch.references import EPS, as_single, runs_plain

SMALL = torch.linspace(1e-4, 1e-3, 8, dtype=torch.float64)
LARGEST = torch.finfo(torch.float16).max
LOW = torch.arange(6.0).outer(torch.ones(4)).double() + torch.eye(6, 4).double() * 1e-8


def single(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return as_single(function, LARGEST, *args, **kwargs)


@pytest.mark.parametrize("norm", [F.rms_norm, torch.rms_norm])
@pytest.mark.parametrize("more", [(), (None, None)])
def test_the_eps_of_rms_norm(norm: Callable[..., Any], more: tuple[Any, ...]) -> None:
    wanted = SMALL / (SMALL.square().mean() + EPS).sqrt()
    torch.testing.assert_close(single(norm, SMALL, (8,), *more), wanted, rtol=1e-12, atol=0)
    torch.testing.assert_close(single(torch.nn.RMSNorm(8).double(), SMALL), wanted, rtol=1e-12, atol=0)


@pytest.mark.parametrize("eps", [1e-3, 0.0])
def test_an_eps_that_is_given_stays(eps: float) -> None:
    assert single(F.rms_norm, SMALL, (8,), None, eps).equal(F.rms_norm(SMALL, (8,), None, eps))
    assert single(F.rms_norm, SMALL, (8,), eps=eps).equal(F.rms_norm(SMALL, (8,), eps=eps))


def test_singular_values_that_count_as_zero() -> None:
    right, given = torch.ones(6, 1, dtype=torch.float64), {"rtol": 1e-12}
    assert (torch.linalg.matrix_rank(LOW), single(torch.linalg.matrix_rank, LOW)) == (4, 1)
    assert single(torch.linalg.matrix_rank, input=LOW) == 1
    assert single(torch.linalg.matrix_rank, LOW, 1e-12) == 4
    assert single(torch.linalg.matrix_rank, LOW, **given) == 4
    assert single(torch.linalg.pinv, LOW).abs().max() < 1
    assert single(torch.linalg.pinv, LOW, **given).abs().max() > 1e6
    assert single(torch.linalg.lstsq, LOW, right, driver="gelsd").rank == 1
    assert single(torch.linalg.lstsq, LOW, right, 1e-12, driver="gelsd").rank == 4
    assert single(torch.linalg.lstsq, LOW, right, rcond=1e-12, driver="gelsd").rank == 4


@pytest.mark.parametrize("function", [torch.nan_to_num, torch.Tensor.nan_to_num, torch.Tensor.nan_to_num_])
def test_what_stands_for_inf(function: Callable[..., Any]) -> None:
    def ends(*args: Any, **kwargs: Any) -> list[float]:
        infinite = torch.tensor([torch.inf, -torch.inf, torch.nan], dtype=torch.float64)
        found: list[float] = single(function, infinite, *args, **kwargs).tolist()
        return found

    assert ends() == [LARGEST, -LARGEST, 0.0]
    assert ends(2.0, None, -3.0) == [LARGEST, -3.0, 2.0]
    assert ends(nan=1.0, posinf=4.0) == [4.0, -LARGEST, 1.0]


def test_other_calls_stay() -> None:
    assert single(torch.add, SMALL, SMALL, alpha=2).equal(torch.add(SMALL, SMALL, alpha=2))


@pytest.mark.parametrize(
    "function",
    [torch.rms_norm, torch.nan_to_num, torch.Tensor.nan_to_num_, torch.linalg.pinv, F.layer_norm, torch.norm, len],
)
def test_other_functions_run_under_a_mode(function: Callable[..., Any]) -> None:
    assert not runs_plain(function)


def test_a_function_is_looked_up_at_every_call() -> None:
    calls: list[Callable[..., Any]] = [torch.exp, torch.log]
    looked = LookedUp(lambda: calls.pop())
    assert single(looked, SMALL).equal(SMALL.log())
    assert single(looked, SMALL).equal(SMALL.exp())
