from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.standards.classes.tied_gradients import Ties, pooling_windows, tie_groups
from tests.support.asking import comparison

X = np.array([[5.0, 1.0, 5.0], [2.0, 7.0, 7.0]], np.float32)
WANTED = np.array([[0.5, 0, 0], [0, 0.25, 0]])
OTHER = np.array([[0, 0, 0.5], [0, 0, 0.25]])


def judge(actual: Any, expected: Any = WANTED, values: Any = X, **more: Any) -> OutputVerdict:
    asked = {"api": "Torch.amax", "name": "grad.input.0", "direction": "backward", "args": (values, 1), **more}
    return Ties().judge(comparison(actual, expected, dtype=more.pop("dtype", "float32"), **asked))


def test_the_references_choice_passes_by_noise() -> None:
    found = judge(WANTED)
    assert (found.verdict, found.standard) == ("pass", "noise")


def test_another_of_equal_values_may_get_the_gradient() -> None:
    found = judge(OTHER)
    assert (found.verdict, found.standard, found.shape) == ("pass", "ties", (2, 3))


@pytest.mark.parametrize("wrong", [OTHER * 1.001, OTHER + 0.1, OTHER[::-1]], ids=["scaled", "shifted", "swapped"])
def test_a_wrong_gradient_is_an_error(wrong: Any) -> None:
    found = judge(wrong)
    assert (found.verdict, found.standard) == ("error", "noise")


def test_another_value_may_not_get_it() -> None:
    assert judge([[0, 0.5, 0], [0, 0.25, 0]]).verdict == "error"


def test_without_ties_there_is_no_choice() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert judge(OTHER, values=values).verdict == "error"


def test_pooling_chooses_inside_a_window() -> None:
    values = np.array([[[[1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 0.0, 0.0]]]], np.float32)
    wanted = np.array([[[[1.0, 0, 3.0, 0]], [[2.0, 0, 0, 0]]]])
    swapped = np.array([[[[0, 1.0, 0, 3.0]], [[0, 2.0, 0, 0]]]])
    crossed = np.array([[[[3.0, 0, 1.0, 0]], [[2.0, 0, 0, 0]]]])
    for api, size in (("Functional.max_pool2d", (1, 2)), ("Functional.adaptive_max_pool2d", (1, 2))):
        asked = {"values": values, "api": api, "args": (values, size)}
        assert judge(swapped, wanted, **asked).verdict == "pass"
        assert judge(crossed, wanted, **asked).verdict == "error"


def test_a_choice_along_a_dimension_is_made_there() -> None:
    values = np.ones((2, 3), np.float32)
    wanted, crossed = np.array([[1.0, 0, 0], [2.0, 0, 0]]), np.array([[2.0, 0, 0], [0, 1.0, 0]])
    for api, args in (("Torch.amax", (values, 1)), ("Torch.max", (values, -1)), ("Torch.sort", (values,))):
        assert judge(crossed, wanted, values, api=api, args=args).verdict == "error"
    for api, more in (("Torch.amax", ()), ("Torch.max", ()), ("Torch.amax", ((0, 1),))):
        assert judge(crossed, wanted, values, api=api, args=(values, *more)).verdict == "pass"


def test_a_keyword_input_and_another_argument() -> None:
    asked = {"name": "grad.kwargs.input", "args": (), "kwargs": {"input": X}}
    assert judge(OTHER, **asked).verdict == "pass"
    assert judge(OTHER, name="grad.input.1").verdict == "error"


def test_perturbed_runs_are_summed_as_well() -> None:
    runs = {"perturbed": [WANTED + 0.001 * (X == 5)]}
    assert judge(OTHER + 0.01 * (OTHER == 0.5), runs=runs).verdict == "pass"


def test_a_witness_of_the_elements_is_not_asked_about_the_sums() -> None:
    found = judge(OTHER * 1.001, on_cpu=False, cpu_result=lambda: WANTED.astype(np.float32))
    assert found.verdict == "error"


def test_nan_equals_nothing() -> None:
    values = np.full((2, 3), np.nan, np.float32)
    assert judge(OTHER, values=values).verdict == "error"


def asked(api: str, values: Any, *args: Any, **kwargs: Any) -> Any:
    array = np.asarray(values, np.float32)
    return comparison(array, array, api=api, args=(array, *args), kwargs=kwargs), array


def labels(api: str, values: Any, *args: Any, **kwargs: Any) -> list[int]:
    return tie_groups(*asked(api, values, *args, **kwargs)).tolist()


@pytest.mark.parametrize(
    ("api", "args", "kwargs", "wanted"),
    [
        ("Torch.amax", (), {}, [0, 1, 1, 1]),
        ("Torch.amax", (1,), {}, [0, 1, 2, 2]),
        ("Torch.amax", (), {"dim": [0]}, [0, 2, 1, 2]),
        ("Torch.amax", ((0, 1),), {}, [0, 1, 1, 1]),
        ("Torch.sort", (), {}, [0, 1, 2, 2]),
        ("Torch.sort", (0,), {}, [0, 2, 1, 2]),
        ("Torch.topk", (1, -2), {}, [0, 2, 1, 2]),
        ("Torch.median", (), {}, [0, 1, 1, 1]),
        ("Torch.msort", (), {}, [0, 2, 1, 2]),
        ("Torch.max", (np.ones((2, 2), np.float32),), {}, [0, 1, 1, 1]),
    ],
)
def test_equal_values_of_a_row(api: str, args: Any, kwargs: Any, wanted: list[int]) -> None:
    assert labels(api, [[0, 1], [1, 1]], *args, **kwargs) == wanted


def test_windows_of_their_own() -> None:
    assert labels("Functional.max_pool1d", [[1, 1, 1, 1]], 2) == [0, 0, 1, 1]
    assert labels("Functional.max_pool1d", [[1, 1, 0, 0], [1, 2, 3, 3]], 2) == [0, 0, 1, 1, 2, 3, 4, 4]


def test_windows_that_overlap_in_a_tie_share_it() -> None:
    assert labels("Functional.max_pool1d", [[1, 1, 1, 1]], 2, 1) == [0, 0, 0, 0]
    assert labels("Functional.max_pool1d", [[1, 1, 2, 1, 1]], 2, 1) == [0, 0, 1, 2, 2]


def test_only_the_largest_of_a_window_are_chosen() -> None:
    assert labels("Functional.max_pool1d", [[0, 0, 1, 0, 0, 1]], 3) == [0, 1, 2, 3, 4, 5]


CALLS: list[tuple[str, Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]]] = [
    ("max_pool1d", F.max_pool1d, (2, 3, 11), (3,), {}),
    ("max_pool1d", F.max_pool1d, (3, 11), (3, 2), {"padding": 1, "dilation": 2}),
    ("max_pool2d", F.max_pool2d, (2, 3, 7, 9), (2,), {"ceil_mode": True}),
    ("max_pool2d", F.max_pool2d, (2, 3, 7, 9), ((3, 2), (2, 1), (1, 0)), {}),
    ("max_pool3d", F.max_pool3d, (2, 4, 5, 6), ((2, 1, 3),), {"stride": 2}),
    ("adaptive_max_pool2d", F.adaptive_max_pool2d, (2, 7, 9), ((3, 4),), {}),
    ("adaptive_max_pool2d", F.adaptive_max_pool2d, (2, 7, 9), ((None, 4),), {}),
    ("adaptive_max_pool1d", F.adaptive_max_pool1d, (2, 7), (3,), {}),
]


@pytest.mark.parametrize(("name", "function", "shape", "args", "kwargs"), CALLS)
def test_windows_are_those_that_torch_pools(
    name: str, function: Any, shape: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    members = pooling_windows(asked(f"Functional.{name}", values.numpy(), *args, **kwargs)[0], shape)
    rank = int(name[-2])
    planes = values.numpy().reshape(-1, int(np.prod(shape[-rank:])))
    padded: AnyArray = np.concatenate([planes, np.full((len(planes), 1), -np.inf)], axis=1)
    pooled = padded[:, members].max(axis=-1).ravel()
    assert pooled.tolist() == function(values, *args, **kwargs).ravel().tolist()


@pytest.mark.parametrize(("name", "function", "shape", "args", "kwargs"), CALLS)
def test_any_choice_of_the_largest_stays_in_its_group(
    name: str, function: Any, shape: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(0, 2, shape, generator=generator).double()
    gradients = []
    for nudge in (1e-9, -1e-9):  # makes torch choose otherwise among equals
        moved = (values + nudge * torch.rand(shape, generator=generator).double()).requires_grad_()
        pooled = function(moved, *args, **kwargs)
        seed = torch.arange(1.0, pooled.numel() + 1, dtype=torch.float64).view(pooled.shape)
        gradients.append(torch.autograd.grad(pooled, moved, seed)[0].numpy().ravel())
    made = tie_groups(*asked(f"Functional.{name}", values.numpy(), *args, **kwargs))
    sums = [np.bincount(made, weights=gradient) for gradient in gradients]
    assert not np.array_equal(gradients[0], gradients[1])
    assert np.array_equal(sums[0], sums[1])
