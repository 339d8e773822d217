"""Torch itself takes what the roles make, where the dump said nothing about the values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_probe.model.dump import TensorSpec
from pytest_probe.model.run import Leaf
from tests.inputs.conftest import Build

torch = pytest.importorskip("torch")
functional = torch.nn.functional


def ints(*shape: int) -> TensorSpec:
    return TensorSpec("int64", shape)


def floats(*shape: int) -> TensorSpec:
    return TensorSpec("float64", shape)


BITS = TensorSpec("bool", (6,))
SPINS = TensorSpec("int32", (5,))

CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "Functional.embedding": (functional.embedding, (ints(40), floats(3, 4))),
    "Functional.embedding_bag": (functional.embedding_bag, (ints(40), floats(3, 4), ints(5))),
    "Functional.cross_entropy": (functional.cross_entropy, (floats(9, 3, 4), ints(9, 4))),
    "Functional.nll_loss": (functional.nll_loss, (floats(9, 3), ints(9))),
    "Functional.multi_margin_loss": (functional.multi_margin_loss, (floats(9, 3), ints(9))),
    "Functional.multilabel_margin_loss": (functional.multilabel_margin_loss, (floats(9, 3), ints(9, 3))),
    "Functional.ctc_loss": (functional.ctc_loss, (floats(30, 2, 5), ints(2, 7), ints(2), ints(2))),
    "Functional.binary_cross_entropy": (functional.binary_cross_entropy, (floats(9), floats(9))),
    "Functional.one_hot": (functional.one_hot, (ints(50), 4)),
    "Functional.max_unpool2d": (functional.max_unpool2d, (floats(1, 4, 4), ints(1, 4, 4), 2)),
    "Torch.gather": (torch.gather, (floats(2, 3), 1, ints(2, 30))),
    "Tensor.scatter_": (torch.Tensor.scatter_, (floats(2, 3), 1, ints(2, 3), floats(2, 3))),
    "Torch.index_select": (torch.index_select, (floats(2, 3), -1, ints(30))),
    "Tensor.index_add_": (torch.Tensor.index_add_, (floats(2, 3), 0, ints(30), floats(30, 3))),
    "Tensor.index_copy_": (torch.Tensor.index_copy_, (floats(9, 3), 0, ints(4), floats(4, 3))),
    "Torch.take_along_dim": (torch.take_along_dim, (floats(2, 3), ints(2, 30), 1)),
    "Tensor.put_": (torch.Tensor.put_, (floats(2, 3), ints(4), floats(4))),
    "Tensor.index_put_": (torch.Tensor.index_put_, (floats(6, 3), [BITS], floats(4, 3))),
    "Tensor.__setitem__": (torch.Tensor.__setitem__, (floats(6, 3), BITS, floats(4, 3))),
    "Tensor.__getitem__": (torch.Tensor.__getitem__, (floats(6, 3), (slice(None), ints(30)))),
    "Tensor.masked_scatter_": (torch.Tensor.masked_scatter_, (floats(6), BITS, floats(2))),
    "Tensor.__floordiv__": (torch.Tensor.__floordiv__, (ints(90), ints(90))),
    "Torch.multinomial": (torch.multinomial, (floats(5, 8), 6)),
    "Torch.bernoulli": (torch.bernoulli, (floats(50),)),
    "Torch.normal": (torch.normal, (floats(50), floats(50))),
    "Torch.poisson": (torch.poisson, (floats(50),)),
    "Torch.bincount": (torch.bincount, (ints(50),)),
    "Torch.linalg.cholesky": (torch.linalg.cholesky, (floats(2, 9, 9),)),
    "Torch.cholesky_solve": (torch.cholesky_solve, (floats(5, 2), floats(5, 5))),
    "Torch.linalg.lu_solve": (torch.linalg.lu_solve, (floats(5, 5), SPINS, floats(5, 2))),
    "Torch.lu_solve": (torch.lu_solve, (floats(5, 2), floats(5, 5), SPINS)),
}


@pytest.mark.parametrize("api", CALLS)
def test_torch_takes_it(arguments: Build, api: str) -> None:
    function, call = CALLS[api]
    for seed in range(3):
        made = arguments(*call, api=api, seed=seed)
        result = function(*(tensors(value) for value in made.args))
        if isinstance(result, torch.Tensor) and result.is_floating_point():
            assert torch.isfinite(result).all()


def tensors(value: Any) -> Any:
    if isinstance(value, Leaf):
        return torch.from_numpy(value.array.copy())
    if isinstance(value, (list, tuple)):
        return type(value)(tensors(item) for item in value)
    return value
