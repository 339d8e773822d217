from __future__ import annotations

import itertools

import pytest
import torch

from pytest_probe.standards.facts import _classes, canonical, facts

FORWARD = ("uninitialised", "random", "discrete", "selection", "factorisation", "own_dtype", "exact", "factory")
BACKWARD = ("random", "ties", "factorisation", "exact_backward")
PLACES = (torch, torch.Tensor, torch.nn.functional, torch.linalg, torch.special, torch.fft)
TORCHS = {canonical(name) for place in PLACES for name in dir(place)}


@pytest.mark.parametrize(
    ("api", "name"),
    [
        ("Functional.dropout", "dropout"),
        ("Tensor.add_", "add"),
        ("Tensor.__iadd__", "add"),
        ("Tensor.__radd__", "add"),
        ("Tensor.__add__", "add"),
        ("Tensor.__rsub__", "sub"),
        ("Tensor.__itruediv__", "div"),
        ("Tensor.__rtruediv__", "div"),
        ("Tensor.__rdiv__", "div"),
        ("Tensor.__floordiv__", "floor_divide"),
        ("Tensor.__mod__", "remainder"),
        ("Tensor.__rpow__", "pow"),
        ("Tensor.__matmul__", "matmul"),
        ("Tensor.__ior__", "bitwise_or"),
        ("Tensor.__ror__", "bitwise_or"),
        ("Tensor.__and__", "bitwise_and"),
        ("Tensor.__invert__", "invert"),
        ("Tensor.__rshift__", "rshift"),
        ("Tensor.__neg__", "neg"),
        ("Tensor.__getitem__", "getitem"),
        ("Torch.linalg.svd", "svd"),
        ("Torch._foreach_add_", "add"),
        ("Torch._foreach_sqrt", "sqrt"),
        ("NPU.npu_rms_norm", "npu_rms_norm"),
    ],
)
def test_canonical(api: str, name: str) -> None:
    assert canonical(api) == name


@pytest.mark.parametrize("kind", _classes())
def test_listed_names_are_canonical_and_torch_has_them(kind: str) -> None:
    names = {name.partition("@")[0] for name in _classes()[kind]}
    assert {name for name in names if canonical(name) != name} == set()
    assert names - TORCHS == set()


@pytest.mark.parametrize("judges", [FORWARD, BACKWARD], ids=["forward", "backward"])
def test_no_api_has_two_judges(judges: tuple[str, ...]) -> None:
    """But a histogram: its counts are discrete, its edges a factory's."""
    lists = {kind: names - {"histogram"} for kind, names in _classes().items()}
    assert {pair: lists[pair[0]] & lists[pair[1]] for pair in itertools.combinations(judges, 2)} == {
        pair: frozenset() for pair in itertools.combinations(judges, 2)
    }


def test_no_api_is_elementwise_that_looks_at_its_neighbours() -> None:
    lists = _classes()
    for other in ("selection", "factorisation", "factory", "uninitialised"):
        assert lists["elementwise"] & lists[other] == frozenset()


def test_an_unknown_api_is_in_no_list() -> None:
    assert facts("NPU.npu_rms_norm").classes == frozenset()
    assert not facts("NPU.npu_rms_norm").elementwise


def test_lists_of_an_api() -> None:
    assert facts("Functional.relu").classes == {"exact", "exact_backward", "elementwise"}
    assert "narrow_backward@float16" in facts("Functional.conv2d").classes
    assert "narrow_backward" not in facts("Functional.conv2d").classes
