"""torch's own functions, beside what a program has put in their places."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe import frameworks
from pytest_probe.frameworks.torch import own
from pytest_probe.frameworks.torch.state import Fixed, OfUser


def wrong(*args: Any, **kwargs: Any) -> Any:
    return torch.zeros(2)


PLACES: list[tuple[Any, str, str]] = [
    (F, "gelu", "Functional.gelu"),
    (torch, "add", "Torch.add"),
    (torch.linalg, "svd", "Torch.linalg.svd"),
    (torch.special, "erf", "Torch.special.erf"),
    (torch.fft, "rfft", "Torch.fft.rfft"),
    (torch.Tensor, "softmax", "Tensor.softmax"),
    (torch.Tensor, "__add__", "Tensor.__add__"),
    (torch.Tensor, "__rsub__", "Tensor.__rsub__"),
]


@pytest.mark.parametrize(("owner", "name", "record"), PLACES)
@pytest.mark.parametrize("put", [wrong, functools.partial(wrong, 1), torch.no_grad()(wrong), torch.cos])
def test_a_reference_calls_torchs_function_and_the_device_what_the_user_has_put(
    owner: Any, name: str, record: str, put: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    function, before = getattr(owner, name), dict(vars(owner))
    assert own.replaced() == ()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, put)
        assert [(owner, each.name, each.value) for each in own.replaced()] == [(owner, name, put)]
        assert str(own.replaced()[0]).startswith(f"{record} is ")
        with Fixed():
            assert getattr(owner, name) == function
            assert own.known(put) == (record, function)
            with OfUser("recorded"):
                assert getattr(owner, name) == put
            assert getattr(owner, name) == function
        assert getattr(owner, name) == put
    assert dict(vars(owner)) == before


def test_a_function_that_is_replaced_where_references_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    framework = frameworks.load()
    (plain,) = framework.candidates("Functional", "gelu", {})
    assert (plain.replaced, plain.shared, plain.on_device) == ("", "", None)
    monkeypatch.setattr(F, "gelu", wrong)
    with Fixed():
        (found,) = framework.candidates("Functional", "gelu", {})
        assert found.on_device is not None
        assert found.on_device() is wrong
        assert found.lookup() is own.FUNCTIONS["torch.nn.functional"]["gelu"]
    assert found.replaced == f"test_own.py:{wrong.__code__.co_firstlineno}"


def test_methods_of_the_program_are_bound_as_torch_binds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "sum", functools.partialmethod(torch.Tensor.sum, dtype=torch.float64))
    with Fixed():
        (found,) = frameworks.load().candidates("Tensor", "sum", {})
        assert found.on_device is not None
        assert found.on_device()(torch.ones(2)).dtype is torch.float64
        assert torch.ones(2).sum().dtype is torch.float32
    assert torch.ones(2).sum().dtype is torch.float64


@pytest.mark.parametrize(
    ("function", "api"),
    [
        (torch.nextafter, "Torch.nextafter"),
        (F.gelu, "Functional.gelu"),
        (F.max_pool2d, "Functional.max_pool2d"),
        (torch.conv2d, "Functional.conv2d"),
        (torch.linalg.svd, "Torch.linalg.svd"),
        (torch.Tensor.add_, "Tensor.add_"),
        (torch.save, ""),
        (wrong, ""),
        (functools.partial(F.gelu, approximate="tanh"), ""),
        ([], ""),
    ],
)
def test_which_api_a_function_is(function: Any, api: str) -> None:
    assert own.known(function) == (api, function)


def test_what_cannot_be_had_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch's sources; C's functions are there all the same."""
    monkeypatch.setattr(F, "__file__", "/nowhere")
    monkeypatch.setattr(F, "layer_norm", wrong)
    monkeypatch.setattr(torch, "add", wrong)
    own._written.cache_clear()
    assert own._found("torch.nn.functional", "layer_norm") is None
    assert own._found("torch", "add") is own.FUNCTIONS["torch"]["add"]
    monkeypatch.setattr(own, "_MISSING", [("torch.nn.functional", "layer_norm")])
    assert list(own.on_both_sides().values()) == [
        f"Functional.layer_norm is test_own.py:{wrong.__code__.co_firstlineno}'s, on both sides"
    ]
    (found,) = frameworks.load().candidates("Functional", "layer_norm", {})
    assert found.shared.endswith("'s, on both sides")
