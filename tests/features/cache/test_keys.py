"""What the numbers depend on has one digest, and nothing else has it."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pytest_probe import frameworks
from pytest_probe.features.cache.keys import Unkeyed, digest, digest_of_array
from pytest_probe.model.device_modes import Mode
from pytest_probe.model.dump import DtypeSpec
from pytest_probe.model.run import Leaf, Wanted, Way

NAMES = frozenset({"input.0", "input.1", "kwargs.weight"})
DIFFERENT: tuple[Any, ...] = (
    1,
    1.0,
    True,
    "1",
    None,
    0.0,
    -0.0,
    [1],
    (1,),
    [[1], 2],
    [1, [2]],
    {"a": 1},
    {"a": 1.0},
    ["a", 1],
    slice(1, None),
    DtypeSpec("float32"),
    np.zeros(2),
    np.zeros(2, np.float32),
    np.zeros((1, 2)),
    np.array([0.0, -0.0]),
    Leaf(np.zeros(2)),
    Leaf(np.zeros(2), requires_grad=True),
    Leaf(np.zeros(2), strides=(2,)),
    Way(dtype="float64"),
    Way(dtype="float64", mode=Mode(bits=10)),
    Way(dtype="float64", mode=Mode(bits=10, cut="first")),
    Wanted(NAMES),
    Wanted(NAMES, grad=False),
)


def made(value: Any) -> str:
    return digest(value, digest_of_array).hex()


def test_different_values_have_different_digests() -> None:
    for one, other in itertools.combinations(DIFFERENT, 2):
        assert made(one) != made(other), (one, other)


def test_digests_are_the_same_in_each_process() -> None:
    code = "from tests.features.cache.test_keys import *; print(made(list(DIFFERENT)))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    assert found.stdout.strip() == made(list(DIFFERENT))


def test_where_elements_lie_does_not_count() -> None:
    array = np.arange(12.0).reshape(3, 4)
    assert made(np.asfortranarray(array)) == made(array)
    assert made(np.repeat(array, 2, axis=0)[::2]) == made(array)


def test_an_object_of_the_users_has_none() -> None:
    with pytest.raises(Unkeyed):
        made([1, object()])


@pytest.mark.parametrize("function", [F.gelu, F.softmax, torch.tanh, torch.Tensor.add_, torch.einsum, F.max_pool2d])
def test_functions_of_the_frameworks(function: Any) -> None:
    assert frameworks.belongs_to(function, "torch")
    assert not frameworks.belongs_to(function, "paddle")


@pytest.mark.parametrize("function", [lambda x: x, torch.no_grad()(lambda x: x), np.sum, len, torch.nn.GELU()])
def test_functions_that_are_not(function: Any) -> None:
    assert not frameworks.belongs_to(function, "torch")
