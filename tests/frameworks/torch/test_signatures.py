from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pytest_probe.frameworks.python.binding import Signature
from pytest_probe.frameworks.torch.signatures import SIGNATURES, bind, canonical, spelled
from pytest_probe.model.dump import SizeSpec, TensorSpec
from pytest_probe.model.run import BoundCall, Leaf

# Entries that torch does not tell, or tells otherwise, and why.
EXCEPTIONS: Mapping[str, str] = {
    **{name: "torch_npu's" for name in SIGNATURES if name.startswith("npu_")},
    "getitem": "Python's own slot, without a signature",
    "setitem": "Python's own slot, without a signature",
    "chain_matmul": "takes matrices in any number, of which the first is asked for",
    **dict.fromkeys(("scaled_mm", "scaled_grouped_mm"), "their output's dtype is bfloat16 where none is named"),
    "msort": "sorts along a dimension that it does not name",
    "Tensor.where": "a method of what is chosen where the condition holds",
    "Tensor.__rfloordiv__": "reflected: what it is called on comes second",
    "Tensor.__rmod__": "reflected: what it is called on comes second",
    "Tensor.__rmatmul__": "reflected: what it is called on comes second",
}
A, B = np.zeros((2, 3)), np.ones((3, 4))
INTEGERS = TensorSpec("int64", (3,))


class Parameter(NamedTuple):
    """A parameter as torch has it; default is None too where there is none, which `optional` tells."""

    name: str
    default: Any
    optional: bool


Overloads = Sequence[Sequence[Parameter]]


def of_python(function: Any) -> list[Parameter] | None:
    """The parameters of a function that is written in Python; None for any other, and one that takes any number."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD) for item in found):
        return None
    empty = inspect.Parameter.empty
    return [
        Parameter(item.name, None if item.default is empty else item.default, item.default is not empty)
        for item in found
    ]


def of_schema(name: str) -> list[list[Parameter]]:
    packet = getattr(torch.ops.aten, name, None)
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()] if packet is not None else []
    return [
        [Parameter(item.name, _plain(item.default_value), item.has_default_value()) for item in schema.arguments]
        for schema in schemas
    ]


def _plain(default: Any) -> Any:
    """One number that stands for as many, as a stride's; an empty list is none."""
    if not isinstance(default, (list, tuple)):
        return default
    return default[0] if len(set(default)) == 1 else default or None


def functions(key: str) -> Iterator[tuple[str, Overloads]]:
    """The functions of torch's that an entry speaks of, with their parameters."""
    namespace, _, name = key.rpartition(".")
    if namespace == "Functional" or (not namespace and f"Functional.{name}" not in SIGNATURES):
        # What chooses between two functions takes anything; the first of them has the name with an underscore.
        found = of_python(getattr(F, name, None)) or of_python(getattr(F, f"_{name}", None))
        yield from [(f"Functional.{name}", [found])] if found else []
    if not namespace and (found := of_python(getattr(torch, name, None))):
        yield f"Torch.{name}", [found]
    operators = {"": [name, f"linalg_{name}"], "linalg": [f"linalg_{name}"], "Tensor": [f"{name}_", name]}
    schemas = (of_schema(operator) for operator in operators.get(namespace, []))
    first = next((schema for schema in schemas if schema), None)
    if first:
        yield f"Aten.{name}", first


def agree(signature: Signature, count: int, overload: Sequence[Parameter]) -> bool:
    """Are the first `count` parameters an overload's, in order and with its defaults? What torch requires has no
    default to compare."""
    names = signature.parameters
    if len(overload) < count:
        return False
    for wanted, found in zip(names[:count], overload, strict=False):
        own = ("input" if "input" in names else names[0]) if found.name == "self" else found.name
        if signature.aliases.get(own, own) != wanted:
            return False
        if found.optional and found.default != signature.defaults.get(wanted):
            return False
    return True


def disagreements(key: str) -> list[str]:
    """The parameters of an entry that no overload of a function has there."""
    signature = Signature.parsed(SIGNATURES[key])
    found = list(functions(key))
    if not found:
        return ["torch tells nothing"]
    return [
        f"{label}: {name}"
        for label, overloads in found
        for place, name in enumerate(signature.parameters)
        if not any(agree(signature, place + 1, overload) for overload in overloads)
    ]


@pytest.mark.parametrize("key", SIGNATURES)
def test_the_table_is_as_torch_has_it(key: str) -> None:
    assert bool(disagreements(key)) == (key in EXCEPTIONS), disagreements(key)


def test_a_method_of_another_order_is_bound_as_torch_calls_it() -> None:
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])
    mask = torch.tensor([True, False])
    chosen = bind("Tensor.where", (x, mask, y), {})
    assert torch.equal(torch.where(*(chosen.given[name] for name in ("condition", "input", "other"))), x.where(mask, y))
    rights: dict[str, Callable[..., torch.Tensor]] = {
        "__rfloordiv__": torch.floor_divide,
        "__rmod__": torch.remainder,
        "__rmatmul__": torch.matmul,
    }
    for name, right in rights.items():
        call = bind(f"Tensor.{name}", (x, y), {})
        assert torch.equal(getattr(x, name)(y), right(call.argument("input"), call.argument("other")))


CANONICAL = {
    "add": "Tensor.add_ Tensor.__iadd__ Tensor.__radd__ Tensor.__add__ Torch._foreach_add_",
    "div": "Tensor.__itruediv__ Tensor.__rtruediv__ Tensor.__rdiv__",
    "bitwise_or": "Tensor.__ior__ Tensor.__ror__",
    **{"sub": "Tensor.__rsub__", "floor_divide": "Tensor.__floordiv__", "remainder": "Tensor.__mod__"},
    **{"pow": "Tensor.__rpow__", "matmul": "Tensor.__matmul__", "bitwise_and": "Tensor.__and__"},
    **{"invert": "Tensor.__invert__", "rshift": "Tensor.__rshift__", "neg": "Tensor.__neg__"},
    **{"getitem": "Tensor.__getitem__", "svd": "Torch.linalg.svd", "npu_rms_norm": "NPU.npu_rms_norm"},
}


@pytest.mark.parametrize("name", CANONICAL)
def test_canonical(name: str) -> None:
    assert {canonical(api) for api in CANONICAL[name].split()} == {name}


SPELLED = {
    "torch.nn.functional.relu*": "Functional.relu*",
    "torch.Tensor.add_": "Tensor.add_",
    "torch.linalg.svd": "Torch.linalg.svd",
    "torch._VF.lstm": "VF.lstm",
    "torch_npu.*": "NPU.*",
    "Functional.relu": "Functional.relu",
}


def test_spelled() -> None:
    assert {glob: spelled(glob) for glob in SPELLED} == SPELLED


def test_positional_and_keyword_arguments_have_one_name() -> None:
    for call, path in (
        (bind("Torch.mm", (A, B), {}), "input.1"),
        (bind("Tensor.mm", (A,), {"mat2": B}), "kwargs.mat2"),
    ):
        assert (call.api.partition(".")[2], call.name, call.native) == ("mm", "mm", True)
        assert call.given == {"input": A, "other": B}
        assert call.paths == {"input": "input.0", "other": path}


def test_what_is_not_given_has_its_default() -> None:
    call = bind("Functional.layer_norm", (A, [3]), {"eps": 1e-3})
    assert call.given.keys() == {"input", "normalized_shape", "eps"}
    assert (call.argument("eps"), call.argument("weight"), call.argument("never")) == (1e-3, None, None)
    assert bind("Functional.layer_norm", (A, [3]), {}).argument("eps") == 1e-5


def test_a_namespace_decides_between_two_functions_of_one_name() -> None:
    assert bind("Functional.embedding", (A, B), {}).given == {"input": A, "weight": B}
    assert bind("Torch.embedding", (A, B), {}).given == {"weight": A, "input": B}
    assert bind("Torch.embedding", (A,), {"indices": B}).given == {"weight": A, "input": B}
    assert bind("Torch.svd", (A, False), {}).argument("some") is False
    assert bind("Torch.linalg.svd", (A, False), {}).argument("full_matrices") is False
    assert bind("Torch.normal", (A, B), {}).given == {"mean": A, "std": B}
    assert bind("Tensor.normal_", (A, 2.0), {}).given == {"input": A, "mean": 2.0}
    assert bind("Torch.bernoulli", (A,), {}).argument("p") is None
    assert bind("Tensor.bernoulli_", (A,), {}).argument("p") == 0.5


def test_more_arguments_than_parameters_are_kept_by_their_place() -> None:
    call = bind("Torch.mm", (A, B, 7), {"out": A})
    assert call.given == {"input": A, "other": B, "input.2": 7, "out": A}
    assert (call.at("input.2"), call.at("kwargs.out") is A) == (7, True)


def test_an_unknown_api_has_an_input_and_no_more() -> None:
    call = bind("NPU.npu_unheard_of", (A, -1), {"dim": 2})
    assert (call.name, call.in_place, call.native, call.defaults) == ("npu_unheard_of", False, False, {})
    assert call.given == {"input": A, "input.1": -1, "dim": 2}
    unnamed = bind("", (A, B), {})
    assert (unnamed.api, unnamed.name, unnamed.native) == ("", "", False)
    assert unnamed.given == {"input": A, "input.1": B}


def packed(batch_sizes: Any) -> BoundCall:
    return bind("VF.lstm", (A, batch_sizes, [B], [B], True, 2, 0.5), {})


@pytest.mark.parametrize("batch_sizes", [INTEGERS, Leaf(np.array([2, 1])), np.array([2, 1])])
def test_a_packed_batch_is_told_by_its_integers(batch_sizes: Any) -> None:
    call = packed(batch_sizes)
    assert (call.argument("data") is A, call.argument("batch_sizes") is batch_sizes) == (True, True)
    assert (call.argument("hx"), call.argument("num_layers")) == ([B], 2)


@pytest.mark.parametrize("hidden", [TensorSpec("float32", (1, 2, 3)), Leaf(A), A, [A, B]])
def test_a_batch_that_is_not_packed(hidden: Any) -> None:
    call = bind("VF.gru", (A, hidden, [B], True, 2, 0.5), {})
    assert (call.argument("input") is A, call.argument("hx") is hidden) == (True, True)
    assert (call.argument("num_layers"), call.argument("dropout")) == (2, 0.5)


@pytest.mark.parametrize("end", [9, Leaf(np.array(9)), np.array(9), TensorSpec("int64", ())])
@pytest.mark.parametrize("size", [(3,), [3], SizeSpec((3,))])
def test_integers_are_drawn_from_one_end_or_two(end: Any, size: Any) -> None:
    one, two = bind("Torch.randint", (end, size), {}), bind("Torch.randint", (0, end, size), {})
    assert [(call.argument("high"), call.argument("size")) for call in (one, two)] == [(end, size)] * 2
    assert (one.argument("low"), two.argument("low")) == (None, 0)
    assert bind("Torch.randint", (end,), {"size": size}).given == {"high": end, "size": size}
    named = bind("Torch.randint", (), {"high": end, "size": size})
    assert (named.argument("low"), named.argument("high")) == (0, end)
    assert bind("Torch.randint", (2,), {"high": end, "size": size}).given == {"low": 2, "high": end, "size": size}


def test_integers_like_a_tensors_are_drawn_from_one_end_or_two() -> None:
    assert bind("Torch.randint_like", (A, 9), {}).given == {"input": A, "high": 9}
    assert bind("Torch.randint_like", (A, 2, 9), {}).given == {"input": A, "low": 2, "high": 9}
    assert bind("Torch.randint_like", (A, 2), {"high": 9}).given == {"input": A, "low": 2, "high": 9}


@pytest.mark.parametrize(
    ("args", "paths"),
    [
        (("ij,jk->ik", A, B), {"operands.0": "input.1", "operands.1": "input.2"}),
        (("ij,jk->ik", [A, B]), {"operands.0": "input.1.0", "operands.1": "input.1.1"}),
    ],
)
def test_operands_come_one_by_one_or_in_a_list(args: tuple[Any, ...], paths: dict[str, str]) -> None:
    call = bind("Torch.einsum", args, {})
    assert call.given == {"equation": "ij,jk->ik", "operands": (A, B)}
    assert call.paths == {"equation": "input.0", **paths}
    assert [array is wanted for array, wanted in zip(call.arrays, (A, B), strict=True)] == [True, True]
