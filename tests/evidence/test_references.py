"""References that write dtypes down are judged as those that take them from their arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from msgspec import Struct

from pytest_probe.model.verdict import Verdict
from tests.support.comparing import compared

Tensor = torch.Tensor
F32 = torch.float32
Function = Callable[..., Any]


class Written(Struct, frozen=True):
    """A reference with dtypes written down, the same one without, and the shapes of its arguments."""

    reference: Function
    plain: Function
    shapes: tuple[tuple[int, ...], ...]


def _rms_norm(x: Tensor, w: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * w


def _rms_norm_plain(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    return torch.softmax(scores, -1, dtype=F32).to(q.dtype) @ v


def _attention_plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1]), -1) @ v


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.full((q.shape[-2], k.shape[-2]), float("-inf"), dtype=F32).triu(1)
    return torch.softmax(q.float() @ k.float().transpose(-1, -2) + mask, -1) @ v.float()


def _causal_plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.full((q.shape[-2], k.shape[-2]), float("-inf"), dtype=q.dtype).triu(1)
    return torch.softmax(q @ k.transpose(-1, -2) + mask, -1) @ v


def _rotary(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[-2], dtype=F32), 10000 ** -(torch.arange(half, dtype=F32) / half))
    first, second = x.float().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)


def _rotary_plain(x: Tensor) -> Tensor:
    half, dtype = x.shape[-1] // 2, x.dtype if x.dtype is torch.float64 else F32
    angles = torch.outer(torch.arange(x.shape[-2], dtype=dtype), 10000 ** -(torch.arange(half, dtype=dtype) / half))
    first, second = x.chunk(2, -1)
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


def _routing(x: Tensor) -> Tensor:
    weights = F.softmax(x, dim=-1, dtype=torch.float)
    return (weights / weights.sum(-1, keepdim=True)).to(x.dtype)


def _scan(x: Tensor, decay: Tensor) -> Tensor:
    state, found = torch.zeros(x.shape[1:], dtype=F32), []
    for step in range(x.shape[0]):
        state = state * torch.sigmoid(decay.float()) + x[step].float()
        found.append(state)
    return torch.stack(found)


def _scan_plain(x: Tensor, decay: Tensor) -> Tensor:
    state, found = torch.zeros_like(x[0]), []
    for step in range(x.shape[0]):
        state = state * torch.sigmoid(decay) + x[step]
        found.append(state)
    return torch.stack(found)


def _codes() -> Tensor:
    return (torch.arange(64 * 64) % 15 - 7).to(torch.int8).reshape(64, 64)


X, W, V = (12, 64), (64,), (64, 64)
HEADS = ((2, 16, 32),) * 3
WRITTEN: Mapping[str, Written] = {
    "rms_norm as Llama has it": Written(_rms_norm, _rms_norm_plain, (X, W)),
    "softmax by its dtype": Written(lambda x: F.softmax(x, -1, dtype=F32).to(x.dtype), lambda x: x.softmax(-1), (X,)),
    "attention": Written(_attention, _attention_plain, HEADS),
    "causal attention": Written(_causal, _causal_plain, HEADS),
    "rotary embedding": Written(_rotary, _rotary_plain, ((2, 16, 32),)),
    "routing weights": Written(_routing, lambda x: x.softmax(-1), (X,)),
    "scan": Written(_scan, _scan_plain, ((20, 64), W)),
    "group_norm": Written(
        lambda x: F.group_norm(x.type(F32), 4).type(x.dtype), lambda x: F.group_norm(x, 4), ((3, 8, 6, 6),)
    ),
    "mean by its dtype": Written(lambda x: x.mean(-1, dtype=F32), lambda x: x.mean(-1), (X,)),
    "alibi": Written(
        lambda x: x.float() + torch.arange(64, dtype=F32) * -0.125,
        lambda x: x + torch.arange(64, dtype=x.dtype) * -0.125,
        (X,),
    ),
    "dequantised product": Written(
        lambda x: x.to(F32) @ (_codes().float() * 0.0625), lambda x: x @ (_codes().to(x.dtype) * 0.0625), (X,)
    ),
    "accumulator": Written(lambda x: torch.zeros(X, dtype=F32).add_(x).tanh(), lambda x: x.tanh(), (X,)),
    "empty and copied": Written(lambda x: torch.empty(X, dtype=F32).copy_(x).exp(), lambda x: x.exp(), (X,)),
    "standard deviation": Written(lambda x: x.double().std(-1).float(), lambda x: x.std(-1), (X,)),
}


def inputs(written: Written, dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in written.shapes]


def kernel(written: Written) -> Function:
    """A kernel that computes in float32 and rounds once."""

    def computed(*args: Tensor) -> Tensor:
        found: Tensor = written.plain(*(each.float() for each in args))
        return found.to(args[0].dtype)

    return computed


def _scaled(written: Written) -> Function:
    return lambda *args: (kernel(written)(*(each.float() for each in args)) * 1.02).to(args[0].dtype)


def _element(written: Written) -> Function:
    def computed(*args: Tensor) -> Tensor:
        found = kernel(written)(*(each.float() for each in args)).flatten().clone()
        found[found.numel() // 2] += 0.2 * found.abs().max()
        return found.reshape(written.plain(*args).shape).to(args[0].dtype)

    return computed


FAULTS: Mapping[str, Callable[[Written], Function]] = {"2 % too large": _scaled, "one element": _element}


pytestmark = pytest.mark.usefixtures("causes_once")

PLACES = pytest.mark.parametrize(
    ("dtype", "device"), [("float32", "cpu"), ("bfloat16", "npu"), ("bfloat16", "cpu"), ("float16", "npu")]
)


def verdicts(function: Function, reference: Function, name: str, dtype: str, device: str) -> tuple[Verdict, ...]:
    given = inputs(WRITTEN[name], getattr(torch, dtype))
    return compared(function, reference, given, device=device, backward=True, key=f"reference.{name}")


@PLACES
@pytest.mark.parametrize("name", WRITTEN)
def test_a_kernel_that_rounds_once_passes(name: str, dtype: str, device: str) -> None:
    written = WRITTEN[name]
    found = verdicts(kernel(written), written.reference, name, dtype, device)
    assert [verdict.reason for verdict in found if verdict.verdict != "pass"] == []
    assert any("reference widened at " in note for verdict in found for note in verdict.notes)


@pytest.mark.parametrize("fault", FAULTS)
@PLACES
@pytest.mark.parametrize("name", WRITTEN)
def test_a_fault_is_found_as_with_dtypes_of_the_arguments(name: str, dtype: str, device: str, fault: str) -> None:
    written = WRITTEN[name]
    function = FAULTS[fault](written)
    found, plain = (verdicts(function, each, name, dtype, device)[0] for each in (written.reference, written.plain))
    assert found.verdict == plain.verdict
    assert found.verdict == "error"


def _cut(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """To the next number of the dtype towards zero."""
    near = values.to(dtype)
    return torch.where(near.float().abs() > values.abs(), torch.nextafter(near, torch.zeros_like(near)), near)


@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("expected", ["pass", "error"])
def test_a_product_that_is_cut_inside_is_found_beside_a_function_of_torchs(
    expected: str, dtype: torch.dtype, device: str
) -> None:
    """Where nobody named the API, the spread of like elements of the reference is none of a kernel's."""

    def kernel(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        product = y.float() * z.float()
        return (x.float() + (_cut(product, dtype).float() if expected == "error" else product)).to(dtype)

    drawn = torch.Generator().manual_seed(7)
    given = [torch.randn(4_000, generator=drawn).to(dtype) for _ in range(3)]
    (verdict,) = compared(kernel, torch.addcmul, given, device=device, key="cut")
    assert verdict.verdict == expected
