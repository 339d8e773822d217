from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.check.large.contractions import Contraction, contraction, contraction_kind, cut, free_indices
from pytest_probe.frameworks.torch.signatures import bind, canonical
from pytest_probe.model.dump import TensorSpec
from tests.support.replaying import normal


def tensor(*shape: int) -> TensorSpec:
    return TensorSpec("float32", shape)


def made(api: str, *args: Any, **kwargs: Any) -> Contraction:
    found = contraction(bind(api, args, kwargs))
    assert found is not None
    return found


# What a call costs


@pytest.mark.parametrize(
    ("api", "args", "kwargs", "flops"),
    [
        ("Functional.linear", [tensor(8, 3, 5), tensor(7, 5), tensor(7)], {}, 2 * 8 * 3 * 5 * 7),
        ("Functional.linear", [tensor(3, 5)], {"weight": tensor(7, 5)}, 2 * 3 * 5 * 7),
        ("Torch.matmul", [tensor(2, 3, 5), tensor(2, 5, 7)], {}, 2 * 2 * 3 * 5 * 7),
        ("Tensor.__matmul__", [tensor(2, 3, 5), tensor(5, 7)], {}, 2 * 2 * 3 * 5 * 7),
        ("Tensor.__rmatmul__", [tensor(5, 7), tensor(3, 5)], {}, 2 * 3 * 5 * 7),
        ("Tensor.mm", [tensor(3, 5)], {"mat2": tensor(5, 7)}, 2 * 3 * 5 * 7),
        ("Torch.bmm", [tensor(2, 3, 5), tensor(2, 5, 7)], {}, 2 * 2 * 3 * 5 * 7),
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


def test_arrays_count_as_tensors_do() -> None:
    assert made("Torch.mm", normal(3, 5), normal(5, 7)) == made("Torch.mm", tensor(3, 5), tensor(5, 7))


# What has no rows of its own, or is no contraction


@pytest.mark.parametrize(
    ("api", "args", "kwargs"),
    [
        ("Torch.exp", [tensor(3)], {}),
        ("Distributed.linear", [tensor(3, 5), tensor(7, 5)], {}),
        ("Tensor.addmm_", [tensor(3, 7), tensor(3, 5), tensor(5, 7)], {}),
        ("Tensor.__imatmul__", [tensor(3, 5), tensor(5, 5)], {}),
        ("Torch.mm", [tensor(3, 5), tensor(5, 7)], {"out": tensor(3, 7)}),
        ("Torch.mm", [tensor(3, 5), tensor(6, 7)], {}),
        ("Torch.mm", [tensor(3, 5)], {}),
        ("Torch.mm", [tensor(3, 5), 2.0], {}),
        ("Torch.matmul", [tensor(5), tensor(5, 7)], {}),
        ("Torch.matmul", [tensor(5), tensor(5)], {}),
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


def test_the_kind_of_contraction_follows_from_the_name() -> None:
    names = ["Functional.linear", "Torch.linalg.norm", "Tensor.__matmul__", "Torch.addbmm", "Torch.conv2d"]
    assert [contraction_kind(canonical(name)) for name in names] == ["linear", "", "matmul", "summed", "convolution"]


# Indices


def test_indices_of_a_linear() -> None:
    found = made("Functional.linear", tensor(8, 3, 5), tensor(7, 5), bias=tensor(7))
    assert found.tensors == {"input.0", "input.1", "kwargs.bias"}
    assert found.indices("input.0") == ("row0", "row1", "in")
    assert found.indices("input.1") == ("out", "in")
    assert found.indices("kwargs.bias") == ("out",)
    assert found.indices("output.0") == ("row0", "row1", "out")
    assert found.extents == {"row0": 8, "row1": 3, "in": 5, "out": 7}


def test_what_is_stretched_has_no_index() -> None:
    found = made("Torch.matmul", tensor(1, 4, 3, 5), tensor(2, 1, 5, 7))
    assert found.indices("input.0") == (None, "batch1", "row", "sum")
    assert found.indices("input.1") == ("batch0", None, "sum", "column")
    assert found.output == ("batch0", "batch1", "row", "column")
    assert made("Torch.matmul", tensor(1, 3, 5), tensor(1, 5, 7)).output == (None, "row", "column")
    assert made("Torch.addmm", tensor(3, 1), tensor(3, 5), tensor(5, 7)).addends == {"input.0": ("row", None)}


def test_a_contraction_fits_outputs_of_its_shape_only() -> None:
    found = made("Functional.conv2d", tensor(2, 3, 9, 9), tensor(7, 3, 3, 3))
    assert [found.fits(shape) for shape in ((2, 7, 4, 4), (2, 6, 4, 4), (2, 7, 4))] == [True, False, False]


@pytest.mark.parametrize(
    ("name", "free"),
    [("output.0", {"row0", "out"}), ("input.0", {"row0", "in"}), ("input.1", {"out", "in"}), ("input.2", set())],
)
def test_free_indices_of_a_linear(name: str, free: set[str]) -> None:
    found = made("Functional.linear", tensor(3, 5), tensor(7, 5), tensor(7))
    # What is added to each row is not a row's alone: folding rows would have to fold it as often.
    assert set(free_indices(found, name)) == free - ({"row0"} if name == "output.0" else set())


def test_free_indices_of_batches() -> None:
    found = made("Torch.bmm", tensor(2, 3, 5), tensor(2, 5, 7))
    assert set(free_indices(found, "output.0")) == {"row", "column"}
    assert set(free_indices(found, "input.0")) == {"row", "sum"}


def test_cut_takes_the_sampled_indices_of_a_dimension() -> None:
    array = np.arange(12).reshape(3, 4)
    places = {"row": np.array([0, 2]), "other": np.array([0])}
    assert cut(array, ("row", None), places).tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert cut(array, (None, None), places) is array
