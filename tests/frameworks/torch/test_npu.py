"""torch_npu's operators as formulas: the same numbers and gradients as compositions of other functions of torch, the
parameters of torch_npu, and what is refused."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_probe.errors import BrokenCall, NoKernel, NoReference
from pytest_probe.frameworks.torch.framework import TorchFramework
from pytest_probe.frameworks.torch.npu import OPERATORS, WITHOUT, operator, reference
from pytest_probe.frameworks.torch.signatures import bind
from tests.support.npu_kernels import EXAMPLES, KERNELS, TRIANGLE, Kernel, mapped, normal

SCHEMAS = (Path(__file__).parents[2] / "data/npu/schemas.txt").read_text().splitlines()
# What is written to is one argument of Python's functions.
IN_PLACE = ("var", "m", "v")
QUANTISED = "scale offset antiquant_scale antiquant_offset per_token_scale activation_input".split()


def called(function: Kernel, args: Any, kwargs: Any, *, gradients: bool) -> tuple[list[Any], list[Any]]:
    """What a call gives on copies, and the gradients of its arguments."""
    wanted: list[torch.Tensor] = []

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        copy = tensor.clone().requires_grad_(gradients and tensor.is_floating_point())
        wanted.extend([copy] if copy.requires_grad else [])
        return copy

    args, kwargs = mapped((args, kwargs), copied)
    found = function(*args, **kwargs)
    outputs = list(found) if isinstance(found, (list, tuple)) else [found]
    if not gradients:
        return outputs, []
    differentiable = [each for each in outputs if isinstance(each, torch.Tensor) and each.requires_grad]
    incoming = [normal(*each.shape, seed=5) for each in differentiable]
    return outputs, list(torch.autograd.grad(differentiable, wanted, incoming, allow_unused=True))


@pytest.mark.parametrize("name", EXAMPLES)
def test_numbers_and_gradients_are_those_of_a_composition(name: str) -> None:
    api, args, kwargs = EXAMPLES[name]
    gradients = "out" not in kwargs
    outputs, incoming = called(OPERATORS[api], args, kwargs, gradients=gradients)
    wanted, wanted_incoming = called(KERNELS[api], args, kwargs, gradients=gradients)
    assert len(outputs) == len(wanted)
    assert len(incoming) == len(wanted_incoming)
    for one, other in zip([*outputs, *incoming], [*wanted, *wanted_incoming], strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
        else:
            assert one == other


def parameters(schema: str) -> tuple[str, dict[str, str]]:
    """An operator's name, and the text of each default by parameter, "" without one."""
    name, inside = re.fullmatch(r"([\w.]+)\((.*)\) -> .*", schema).groups()  # type: ignore[union-attr]
    words = [word.rsplit(" ", 1)[-1] for word in re.split(r", (?![^\[(]*[\])])", inside) if word != "*"]
    return name.partition(".")[0], dict(word.partition("=")[::2] for word in words)


DEFAULTS = {"True": True, "False": False, "None": None, "'half'": "half", '""': "", "": None}


def _number(text: str) -> str:
    """A default as Python writes the number; anything else as it is."""
    try:
        return str(float(text))
    except ValueError:
        return text


@pytest.mark.parametrize("schema", SCHEMAS)
def test_parameters_and_defaults_are_those_of_torch_npu(schema: str) -> None:
    name, wanted = parameters(schema)
    found = inspect.signature(OPERATORS[name]).parameters
    own = [each for each in found.values() if each.name != "out"]
    takes_more = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in own)
    # Python's functions call the first tensor `input`.
    wanted = {"input" if each == "self" else each: _number(text) for each, text in wanted.items()}
    theirs = [each for each in wanted if each not in IN_PLACE]
    known = [each.name for each in own if each.kind is not inspect.Parameter.VAR_KEYWORD]
    placed = [each.name for each in own if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert [each for each in theirs if each in placed] == placed
    assert takes_more or [each for each in theirs if each not in known] == []
    assert [each for each in known if each not in theirs] == []
    defaults = {each.name: each.default for each in own if each.default is not inspect.Parameter.empty}
    assert {each: DEFAULTS.get(wanted[each], wanted[each]) for each in defaults} == {
        each: str(float(value)) if type(value) in (int, float) else value for each, value in defaults.items()
    }


def test_every_operator_has_a_schema_and_a_composition_or_exact_numbers() -> None:
    assert {parameters(schema)[0] for schema in SCHEMAS} == OPERATORS.keys()
    plain = "confusion_transpose transpose broadcast dtype_cast one_hot pad slice max sort_v2".split()
    assert OPERATORS.keys() - KERNELS.keys() == {f"npu_{name}" for name in plain} | {"one_"}


X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (("npu_confusion_transpose", X, [1, 0], [6], True), [0.0, 3, 1, 4, 2, 5]),
        (("npu_confusion_transpose", X, [1, 0], [3, 2], False), [[0.0, 2, 4], [1, 3, 5]]),
        (("npu_transpose", X, [1, 0]), [[0.0, 3], [1, 4], [2, 5]]),
        (("npu_broadcast", torch.tensor([[1.0], [2]]), [2, 3]), [[1.0] * 3, [2.0] * 3]),
        (("npu_dtype_cast", torch.tensor([0, 0.5, -1.0]), torch.int32), [0, 0, -1]),
        # The example of torch_npu's document: a class that is none is no class.
        (("npu_one_hot", torch.tensor([5, 3, 1]), -1, 5), [[0.0] * 5, [0.0, 0, 0, 1, 0], [0.0, 1, 0, 0, 0]]),
        (("npu_one_hot", torch.tensor([0, 1]), 0, 2, 7.0, -1.0), [[7.0, -1], [-1, 7.0]]),
        (("npu_pad", torch.tensor([[20.0, 10]]), [1, 0, 0, 2]), [[0.0] * 4, [20.0, 10, 0, 0]]),
        (("npu_slice", X, [0, 1], [2, -1]), [[1.0, 2], [4, 5]]),
        (("npu_sort_v2", torch.tensor([2.0, 3, 1])), [1.0, 2, 3]),
        (("npu_sort_v2", torch.tensor([2.0, 3, 1]), -1, True), [3.0, 2, 1]),
    ],
)
def test_plain_operators_give_these_numbers(call: tuple[Any, ...], wanted: list[Any]) -> None:
    name, *args = call
    found = OPERATORS[name](*args)
    assert found.tolist() == wanted


def test_indices_of_the_largest_are_of_32_bit() -> None:
    values, indices = OPERATORS["npu_max"](X, 1, True)
    assert (values.tolist(), indices.tolist(), indices.dtype) == ([[2.0], [5.0]], [[2], [2]], torch.int32)


def test_the_first_tensor_has_two_names() -> None:
    x = normal(4, 6)
    assert torch.equal(OPERATORS["npu_swiglu"](input=x), OPERATORS["npu_swiglu"](self=x))


def test_an_operator_in_place_returns_its_argument() -> None:
    x = X.clone()
    assert OPERATORS["one_"](x) is x
    assert (x == 1).all()
    state = tuple(normal(3, seed=seed).square() for seed in range(3))
    args = EXAMPLES["adamw"].args
    found = OPERATORS["npu_apply_adam_w"](*args[:7], normal(3, seed=4), None, False, False, out=state)
    assert all(one is other for one, other in zip(found, state, strict=True))
    out = torch.empty(3, 2)
    assert OPERATORS["npu_transpose"](X, [1, 0], out=out) is out
    assert out.tolist() == X.T.tolist()


@pytest.mark.parametrize(
    ("name", "differentiable"),
    [
        ("rms_norm", [True, False]),
        ("add_rms_norm", [True, False, True]),
        ("attention BSND", [True, False, False, False]),
        ("group_norm_silu", [True, False, False]),
        ("gating", [True, False, False]),
    ],
)
def test_only_outputs_that_torch_npu_differentiates_have_a_gradient(name: str, differentiable: list[bool]) -> None:
    api, args, kwargs = EXAMPLES[name]
    outputs, _ = called(OPERATORS[api], args, kwargs, gradients=True)
    assert [each.requires_grad for each in outputs if isinstance(each, torch.Tensor)] == differentiable


def test_state_of_sequences_lies_head_by_head_unless_it_is_asked_for_by_place() -> None:
    api, args, kwargs = EXAMPLES["attention of sequences"]
    _, rows, _, *_ = OPERATORS[api](*args, **kwargs)
    _, by_place, _, *_ = OPERATORS[api](*args, **kwargs, softmax_layout="TND")
    first, heads = 4, 4
    assert torch.equal(rows.flatten()[: first * heads * 8].reshape(heads, first, 8), by_place[:first].transpose(0, 1))


def test_sequences_at_the_end_may_take_no_part() -> None:
    api, args, kwargs = EXAMPLES["attention of sequences"]
    zeros = {**kwargs, "actual_seq_qlen": [4, 9, 0, 0], "actual_seq_kvlen": [5, 12, 0, 0]}
    assert torch.equal(OPERATORS[api](*args, **kwargs)[0], OPERATORS[api](*args, **zeros)[0])


Q, K, V = EXAMPLES["attention BSND"].args[:3]


ATTENTION = ("npu_fusion_attention", Q, K, V, 4)
# A call that the reference does not know, or that contradicts the operator, and what is said.
UNKNOWN: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    *(
        (ATTENTION, {"input_layout": "BSND", **change}, message)
        for change, message in (
            ({"input_layout": "BNDS"}, "input_layout='BNDS': the reference knows 'BSH', 'SBH', 'BSND', 'BNSD', 'TND'"),
            ({"sparse_mode": 6}, "sparse_mode=6: the reference knows 0, 1, 2, 3, 4"),
            ({"keep_prob": 0.9}, "keep_prob=0.9: the reference knows 1.0"),
            ({"prefix": [2, 2]}, "prefix is [2, 2]: the reference knows calls without it"),
            ({"sink": torch.ones(4)}, "sink is a tensor of shape [4]"),
            ({"atten_mask": torch.ones(6, 6, dtype=torch.bool)}, "the mask hides all keys of a query"),
            ({"atten_mask": ~TRIANGLE, "sparse_mode": 3}, "sparse_mode=3 with an atten_mask that is not the upper tri"),
            ({"atten_mask": TRIANGLE[:6, :6], "sparse_mode": 2}, "not the upper triangle of [2048, 2048]"),
            (
                {"atten_mask": torch.zeros(6, 6, dtype=torch.bool), "next_tockens": 0},
                "atten_mask shows keys outside of pre_tockens=2147483647 and next_tockens=0",
            ),
            ({"pse": torch.zeros(1, 4, 5, 6)}, "pse of shape [1, 4, 5, 6]"),
        )
    ),
    (("npu_rotary_mul", X, X, X, "quarter"), {}, "rotary_mode='quarter': the reference knows 'half', 'interleave'"),
    (("npu_giou", X, X), {}, "trans=False: the reference knows True"),
    (("npu_diou", X, X, True, False, 1), {}, "mode=1: the reference knows 0"),
    *(
        (
            ("npu_grouped_matmul", [X], [X.T]),
            {name: [X]},
            f"{name} is [a tensor of shape [2, 3]]: the reference knows calls without it",
        )
        for name in QUANTISED
    ),
]
BROKEN: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (("npu_rms_norm", X, torch.ones(2)), {}, "found x of shape [2, 3] and a weight of shape [2], expected a weight"),
    (("npu_add_rms_norm", X, X.T, torch.ones(3)), {}, "shapes [2, 3] and [3, 2], expected two tensors of one shape"),
    (("npu_swiglu", X), {}, "an even number of places along dim"),
    (("npu_rotary_mul", X, X, X), {}, "an even last dimension"),
    (("npu_scaled_masked_softmax", X, torch.ones(4, 3) > 0), {}, "a mask that is broadcast to x"),
    (("npu_group_norm_silu", X, None, None, 2), {}, "as many channels in each group"),
    (("npu_moe_gating_top_k_softmax", X, None, 4), {}, "k of E experts"),
    (("npu_grouped_matmul", [X], [X.T, X.T]), {}, "1 groups of x, 2 of weight"),
    (("npu_grouped_matmul", [X], [X]), {}, "(..., K) and (K, N)"),
    (
        ("npu_grouped_matmul", [X], [torch.ones(2, 3, 4)]),
        {"group_list": [2, 3], "split_item": 3},
        "groups of [2, 1] places, expected groups of 2 places together",
    ),
    (("npu_fusion_attention", Q, K, V, 3, "BSND"), {}, "BSND with that many heads"),
    (("npu_fusion_attention", Q, K[:, :, :3], V[:, :, :3], 4, "BSND"), {}, "where M divides N"),
    (("npu_fusion_attention", Q[0], K[0], V[0], 5, "BSH"), {}, "as many places for each head"),
    (("npu_fusion_attention", Q[0], K[0], V[0], 4, "TND"), {}, "TND with the ends of all sequences"),
    (("npu_giou", X, X, True), {}, "(4, n) and (4, m)"),
]


@pytest.mark.parametrize(
    ("kind", "call", "kwargs", "message"),
    [*((NoReference, *row) for row in UNKNOWN), *((BrokenCall, *row) for row in BROKEN)],
)
def test_what_is_not_known_is_no_reference_and_what_contradicts_the_operator_is_broken(
    kind: type[Exception], call: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(kind) as raised:
        OPERATORS[call[0]](*call[1:], **kwargs)
    assert message in str(raised.value)


def test_groups_of_columns_are_products_of_their_own() -> None:
    x, weight = normal(3, 9), normal(9, 4, seed=1)
    ends = torch.tensor([2, 9])
    [found] = OPERATORS["npu_grouped_matmul"]([x], [weight], group_list=ends, group_type=2, split_item=3)
    torch.testing.assert_close(found, torch.stack([x[:, :2] @ weight[:2], x[:, 2:] @ weight[2:]]))


@pytest.mark.parametrize("name", WITHOUT)
def test_what_has_no_reference_says_why(name: str) -> None:
    with pytest.raises(NoReference, match=re.escape(WITHOUT[name])):
        reference(name)


def test_only_names_of_the_prefix_are_looked_up() -> None:
    assert reference("npu_swiglu") is OPERATORS["npu_swiglu"]
    assert reference("npu_unheard_of") is None
    assert TorchFramework().reference("Torch.npu_swiglu", bind("Torch.npu_swiglu", (), {})) is None


def test_the_operator_itself_is_that_of_torch_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoKernel, match="torch_npu is not imported here; --probe-device=recorded judges"):
        operator("npu_swiglu")
    module = type("module", (), {"npu_swiglu": staticmethod(len)})
    monkeypatch.setitem(__import__("sys").modules, "torch_npu", module)
    assert operator("npu_swiglu") is len
    with pytest.raises(NoKernel, match="this release of torch_npu has no npu_mish"):
        operator("npu_mish")
