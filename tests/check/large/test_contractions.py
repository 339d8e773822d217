from __future__ import annotations

from typing import Any

import pytest

from pytest_probe.check.large.contractions import Contraction, contraction
from pytest_probe.frameworks.torch.signatures import bind
from pytest_probe.model.dump import TensorSpec


def tensor(*shape: int) -> TensorSpec:
    return TensorSpec("float32", shape)


def made(api: str, *args: Any, **kwargs: Any) -> Contraction:
    found = contraction(bind(api, args, kwargs))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("api", "args", "kwargs", "flops"),
    [
        ("Functional.linear", [tensor(8, 3, 5), tensor(7, 5), tensor(7)], {}, 2 * 8 * 3 * 5 * 7),
        ("Functional.linear", [tensor(3, 5)], {"weight": tensor(7, 5)}, 2 * 3 * 5 * 7),
        ("Torch.matmul", [tensor(2, 3, 5), tensor(2, 5, 7)], {}, 2 * 2 * 3 * 5 * 7),
        ("Tensor.__rmatmul__", [tensor(5, 7), tensor(3, 5)], {}, 2 * 3 * 5 * 7),
        ("Tensor.mm", [tensor(3, 5)], {"mat2": tensor(5, 7)}, 2 * 3 * 5 * 7),
        ("Torch.addmm", [tensor(7), tensor(3, 5), tensor(5, 7)], {"beta": 2}, 2 * 3 * 5 * 7),
        ("Torch.addbmm", [tensor(3, 7), tensor(2, 3, 5), tensor(2, 5, 7)], {}, 2 * 2 * 3 * 5 * 7),
        ("Torch.baddbmm", [tensor(2, 3, 7), tensor(2, 3, 5), tensor(2, 5, 7)], {}, 2 * 2 * 3 * 5 * 7),
        ("Torch.einsum", ["bik,jk->bij", tensor(2, 3, 5), tensor(7, 5)], {}, 2 * 2 * 3 * 5 * 7),
        ("Torch.einsum", ["ik,jk->ij", [tensor(3, 5), tensor(7, 5)]], {}, 2 * 3 * 5 * 7),
        ("Functional.conv2d", [tensor(2, 3, 10, 10), tensor(7, 3, 3, 3), tensor(7)], {}, 2 * 2 * 3 * 7 * 9 * 100),
        ("Functional.conv1d", [tensor(3, 10), tensor(7, 3, 3)], {"stride": 2}, 2 * 3 * 7 * 3 * 10 / 2),
        ("Functional.conv_transpose2d", [tensor(2, 3, 4, 4), tensor(3, 7, 2, 2)], {}, 2 * 2 * 3 * 7 * 4 * 16),
    ],
)
def test_operations_of_contractions_are_counted(
    api: str, args: list[Any], kwargs: dict[str, Any], flops: float
) -> None:
    assert made(api, *args, **kwargs).flops == flops


@pytest.mark.parametrize(
    ("api", "args", "kwargs"),
    [
        ("Torch.exp", [tensor(3)], {}),
        ("Torch.linalg.norm", [tensor(3, 5)], {}),
        ("Distributed.linear", [tensor(3, 5), tensor(7, 5)], {}),
        ("Tensor.addmm_", [tensor(3, 7), tensor(3, 5), tensor(5, 7)], {}),
        ("Tensor.__imatmul__", [tensor(3, 5), tensor(5, 5)], {}),
        ("Torch.mm", [tensor(3, 5), tensor(5, 7)], {"out": tensor(3, 7)}),
        ("Torch.mm", [tensor(3, 5), tensor(6, 7)], {}),
        ("Torch.mm", [tensor(3, 5)], {}),
        ("Torch.matmul", [tensor(5), tensor(5, 7)], {}),
        ("Functional.linear", [tensor(5), tensor(5)], {}),
        ("Functional.conv2d", [tensor(2, 4, 9, 9), tensor(4, 1, 3, 3), None, 1, 0, 1, 4], {}),
        ("Functional.conv2d", [tensor(2, 4, 9, 9), tensor(4, 2, 3, 3)], {"groups": 2}),
        ("Torch.einsum", ["ij->ji", tensor(3, 5)], {}),
        ("Torch.einsum", ["ii,ij->j", tensor(3, 3), tensor(3, 5)], {}),
        ("Torch.einsum", ["...i,ij->...j", tensor(3, 3), tensor(3, 5)], {}),
        ("Torch.einsum", ["ij,jk", tensor(3, 3), tensor(3, 5)], {}),
    ],
)
def test_a_call_that_is_no_contraction_has_none(api: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    assert contraction(bind(api, args, kwargs)) is None
