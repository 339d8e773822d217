from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.exc import TorchDynamoException

from pytest_probe.errors import CompilerFailed, NotCompilable, SettingsError
from pytest_probe.frameworks.torch.compiled import TorchCompiler, compiler_error, names
from tests.support.compilers import BROKEN

NUMBERS = itertools.count()


def make(call: Any, args: Any, kwargs: Any) -> Any:
    return call(*args, **kwargs)


X = torch.linspace(-2, 2, 12).reshape(3, 4)


def compiler(name: str = "eager", compile: Any = None, dynamic: bool = False) -> TorchCompiler:
    return TorchCompiler(name, compile, dynamic=dynamic)


def test_calls_that_differ_in_values_alone_share_what_was_compiled() -> None:
    made = compiler()
    first = made.of(F.gelu, [X], {"approximate": "tanh"})
    assert made.of(F.gelu, [X + 1], {"approximate": "tanh"}) is first
    others: list[tuple[list[Any], dict[str, Any]]] = [
        ([X], {"approximate": "none"}),
        ([X.double()], {"approximate": "tanh"}),
        ([X.t()], {"approximate": "tanh"}),
        ([X[:2]], {"approximate": "tanh"}),
        ([X.clone().requires_grad_()], {"approximate": "tanh"}),
    ]
    assert all(made.of(F.gelu, args, kwargs) is not first for args, kwargs in others)
    with torch.no_grad():
        assert made.of(F.gelu, [X], {"approximate": "tanh"}) is not first


def test_runs_and_graphs_are_counted() -> None:
    made = compiler("aot_eager")
    before = made.counted()
    gelu = made.of(F.gelu, [X], {})
    assert torch.equal(gelu(X), F.gelu(X))
    gelu(X + 1)
    found = {name: number - before[name] for name, number in made.counted().items()}
    assert found.pop("seconds") > 0
    assert (gelu.runs, found) == (2, {"graphs": 1, "kernels": 0, "external calls": 0})
    size = made.of(torch.Tensor.size, [X], {})
    assert size(X) == X.shape
    assert size.runs == 0


def test_more_kinds_of_calls_than_dynamo_keeps_for_one_function() -> None:
    made = compiler()
    for length in range(2, 14):
        x = torch.ones(length)
        assert made.of(F.gelu, [x], {})(x).shape == (length,)


def test_what_serves_other_sizes_was_compiled_once() -> None:
    made = compiler("aot_eager", dynamic=True)
    before = made.counted()
    found = made.of(F.gelu, [X], {})
    assert torch.equal(found(X), F.gelu(X))
    assert (found.runs, made.counted()["graphs"] - before["graphs"]) == (2, 1)


@pytest.mark.parametrize(
    ("function", "args", "kind"), [(torch.allclose, [X, X], NotCompilable), (torch.Tensor.tolist, [X], NotCompilable)]
)
def test_a_call_that_is_not_taken(function: Any, args: list[Any], kind: type[Exception]) -> None:
    made = compiler("aot_eager")
    with pytest.raises(TorchDynamoException) as raised, made.quiet():
        made.of(function, args, {})(*args)
    assert isinstance(compiler_error(raised.value), kind)


def test_a_compiler_that_breaks() -> None:
    made = compiler("relu_compile_error_TESTING_ONLY")
    with pytest.raises(TorchDynamoException) as raised:
        made.of(torch.relu, [X], {})(X)
    found = compiler_error(raised.value)
    assert isinstance(found, CompilerFailed)
    assert str(found).startswith("the compiler raised ReluCompileError")


def test_errors_of_others_are_none_of_a_compilers() -> None:
    assert compiler_error(ValueError("a shape")) is None


def test_only_what_keeps_something_is_stale() -> None:
    assert compiler("aot_eager").stale(F.gelu, [X], {}, make) == ""
    assert compiler("aot_eager").stale(F.dropout, [X], {}, make) == ""
    assert compiler("aot_eager").stale(torch.Tensor.add_, [X.clone(), X], {}, make) == ""
    assert compiler("aot_eager").stale(torch.zeros_like, [X], {}, make) == ""
    chance = compiler("chance", lambda _: lambda args, kwargs: X + next(NUMBERS))
    assert chance.stale(F.gelu, [X], {}, make) == ""
    bounded = torch.rand(8)
    assert compiler("aot_eager").stale(torch.bernoulli, [bounded], {}, make) == ""
    assert compiler("aot_eager").stale(F.binary_cross_entropy, [bounded, bounded], {}, make) == ""
    of_training = compiler("stale", _kept_where_gradients_are)
    assert "the call before" in of_training.stale(F.gelu, [X.clone().requires_grad_()], {}, make)
    broken = compiler("stale", BROKEN["stale"])
    assert "the call before" in broken.stale(F.gelu, [X], {}, make)


def test_an_unknown_backend() -> None:
    assert {"inductor", "aot_eager", "eager", "cudagraphs"} <= set(names())
    with pytest.raises(SettingsError, match="did you mean aot_eager"):
        compiler("aot_eagre")


def _kept_where_gradients_are(function: Any) -> Any:
    """A compiler whose graphs keep their first result, but for those of inference."""
    kept: list[Any] = []

    def call(args: Any, kwargs: Any) -> Any:
        result = function(args, kwargs)
        if not torch.is_grad_enabled() or not args[0].requires_grad:
            return result
        kept.append(result)
        return kept[0]

    return call
