from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as functional

from pytest_probe.check.both_sides import FLOAT64
from pytest_probe.frameworks.torch import sizes
from pytest_probe.model.run import Arguments, Leaf
from tests.support.replaying import leaf, normal

LIMIT = 1 << 30
LONG, WIDE, TALL = normal(20_000), normal(1, 20_000), normal(20_000, 1)
ONES = leaf([1, 1, 1], "int64")
TERA = 10**12
INDEX = leaf(np.zeros((20_000, 1)), "int64"), leaf(np.zeros((1, 20_000)), "int64")

# API, function, arguments, keyword arguments, GB that it makes at least.
LARGE: Sequence[tuple[Callable[..., Any], list[Any], dict[str, Any], float]] = (
    (torch.ones, [400_000_000], {}, 3.2),
    (torch.ones, [10**10, 10**10], {}, 1e9),
    (torch.randn, [20_000, 20_000], {}, 3.2),
    (torch.arange, [TERA], {}, 8000),
    (torch.arange, [0, 1, 1e-12], {}, 8000),
    (torch.arange, [leaf(TERA, "int64")], {}, 8000),
    (torch.add, [TALL, WIDE], {}, 3.2),
    (torch.where, [leaf(np.ones((2000, 1, 1)), "bool"), normal(2000, 1), normal(2000)], {}, 64),
    (torch.outer, [LONG, LONG], {}, 3.2),
    (torch.kron, [LONG, LONG], {}, 3.2),
    (torch.cdist, [TALL, TALL], {}, 3.2),
    (torch.diag_embed, [LONG], {}, 3.2),
    (torch.linalg.svd, [TALL], {}, 3.2),
    (torch.cov, [TALL], {}, 3.2),
    (torch.einsum, ["i,j,k->ijk", normal(2000), normal(2000), normal(2000)], {}, 64),
    (torch.cartesian_prod, [LONG, LONG], {}, 6.4),
    (torch.meshgrid, [LONG, LONG], {"indexing": "ij"}, 6.4),
    (torch.combinations, [LONG, 3], {}, 1000),
    (torch.masked_select, [TALL, leaf(np.ones((1, 20_000)), "bool")], {}, 3.2),
    (torch.bincount, [ONES, None, TERA], {}, 8000),
    (torch.bincount, [leaf([TERA], "int64")], {}, 8000),
    (torch.repeat_interleave, [LONG, 10**6], {}, 160),
    (torch.repeat_interleave, [normal(3), leaf([TERA, 1, 1], "int64")], {}, 8000),
    (torch.histogram, [normal(3), TERA], {}, 8000),
    (torch.Tensor.expand, [normal(1), TERA], {}, 8000),
    (torch.Tensor.resize_, [normal(1), TERA], {}, 8000),
    (torch.Tensor.repeat, [normal(3), 10**6, 10**6], {}, 20_000),
    (torch.Tensor.__getitem__, [normal(3, 3), INDEX], {}, 3.2),
    (functional.one_hot, [ONES, TERA], {}, 20_000),
    (functional.one_hot, [leaf([TERA], "int64")], {}, 8000),
    (functional.pad, [normal(3), [TERA, 0]], {}, 8000),
    (functional.interpolate, [normal(1, 1, 4, 4)], {"scale_factor": 1e5}, 1000),
    (functional.adaptive_avg_pool2d, [normal(1, 1, 4, 4), 10**6], {}, 8000),
    (functional.ctc_loss, [normal(50, 16, 20), leaf(np.ones((16, 30)), "int64"), *2 * [leaf([TERA] * 16, "int64")]], {},
     8000),
)  # fmt: skip


def inside(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], limit: int = LIMIT) -> int:
    name = function.__name__.strip("_")
    return sizes.bytes_inside(name, function, Arguments(tuple(args), kwargs, None), FLOAT64, limit)


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "least"), LARGE, ids=[f"{row[0].__name__}-{row[3]}" for row in LARGE]
)
def test_what_is_too_large_is_known(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], least: float
) -> None:
    assert inside(function, args, kwargs) >= least * 1e9


SMALL: Sequence[tuple[Callable[..., Any], list[Any]]] = (
    (functional.linear, [normal(64, 32), normal(128, 32), normal(128)]),
    (functional.layer_norm, [normal(8, 16, 32), [32], normal(32), normal(32)]),
    (functional.embedding, [leaf(np.zeros((8, 16)), "int64"), normal(64, 32), 3]),
    (functional.cross_entropy, [normal(32, 64), leaf(np.zeros(32), "int64")]),
    (torch.add, [normal(10_000), normal(10_000)]),
    (torch.Tensor.view, [normal(4096), 64, 64]),
    (torch.Tensor.reshape, [normal(4096), [2, 2, 1024]]),
    (torch.Tensor.transpose, [normal(64, 64), 0, 1]),
    (torch.softmax, [normal(64, 64), -1]),
    (torch.arange, [1000]),
    (torch.arange, [0, 10, 0.01]),
    (torch.randn, [8, 64, 64, 64]),
    (torch.zeros, [[64, 64, 64]]),
)


@pytest.mark.parametrize(("function", "args"), SMALL, ids=[row[0].__name__ for row in SMALL])
def test_no_less_than_the_results_and_what_is_small_is_passed_unseen(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], args: list[Any]
) -> None:
    result = function(*(torch.from_numpy(value.array) if isinstance(value, Leaf) else value for value in args))
    assert inside(function, args, {}, limit=-1) >= result.element_size() * result.numel()
    monkeypatch.delattr(sizes, "FakeTensorMode")
    assert inside(function, args, {}) == 0


def test_tensors_that_are_gone_do_not_count() -> None:
    def one_after_another(x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            x = x + 1
        return x

    held = inside(one_after_another, [normal(1000, 1000)], {}, limit=-1)
    assert 2 * 8e6 <= held <= 3 * 8e6


def test_a_fake_run_leaves_no_trace(caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder) -> None:
    state = torch.get_rng_state()
    inside(torch.Tensor.repeat, [normal(3), 10**9, 10**9, 10**9], {})
    inside(functional.dropout, [normal(10**5), 0.5], {}, limit=-1)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_default_dtype() is torch.float32
    assert not caplog.records
    assert not recwarn.list


def test_a_call_that_raises_is_left_to_its_run() -> None:
    assert inside(torch.matmul, [normal(20_000, 3), normal(4, 20_000)], {}) == 0


def test_a_number_whose_square_is_beyond_float64_is_no_error() -> None:
    arguments = [leaf(np.array(1.7e308), "float64")]
    assert sizes.bytes_inside("exp", torch.exp, Arguments(tuple(arguments), {}, None), FLOAT64, LIMIT) <= LIMIT
