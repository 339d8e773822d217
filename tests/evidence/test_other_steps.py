"""16-bit kernels of other devices that round between kernels pass, and are no excuse for a fault.

cuDNN's convolutions are rounded before another kernel adds the bias; CUDA's scatter_add adds to the 16-bit tensor
atomically, in any order. What torch runs as one kernel rounds once: steps in its place are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from msgspec import Struct

from pytest_probe.check import Checker, RunRequest
from pytest_probe.registry import Registry
from tests.support.devices import Emulated

pytestmark = pytest.mark.usefixtures("no_causes")

Tensor = torch.Tensor


class Steps(Struct, frozen=True):
    """An API, what a device makes of it in its own steps, and how one is wrong beside them."""

    api: str
    reference: Callable[..., Tensor]
    inputs: Callable[[torch.Generator], list[Any]]
    healthy: Callable[..., Tensor]
    faulty: Callable[..., Tensor]


def one_off(function: Callable[..., Tensor], roundoffs: int) -> Callable[..., Tensor]:
    """Rounds once, but for one element of middle size, that is off by so many roundoffs of the dtype."""

    def faulty(*args: Any) -> Tensor:
        found = function(*args)
        flat = found.view(-1)
        place = flat.abs().argsort()[flat.numel() // 2]
        flat[place] *= 1 + roundoffs * torch.finfo(found.dtype).eps / 2
        return found

    return faulty


def narrowed(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


def convolution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.conv2d(x, weight) + bias.view(-1, 1, 1)


def atomically(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Row after row from the last to the first, each sum rounded."""
    for row, places in zip(source.flip(dim).split(1, dim), index.flip(dim).split(1, dim), strict=True):
        x = x.scatter_add(dim, places, row)
    return x


def row_by_row(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """The same of rows."""
    for row, place in zip(source.flip(0), index.flip(0), strict=True):
        x = x.index_add(dim, place[None], row[None])
    return x


def hard_swish(x: Tensor) -> Tensor:
    return x * F.relu6(x + 3) / 6


def scattered(generator: torch.Generator) -> list[Any]:
    index = torch.randint(20, (60, 30), generator=generator)
    return [torch.randn(20, 30, generator=generator), 0, index, torch.randn(60, 30, generator=generator)]


def of_rows(generator: torch.Generator) -> list[Any]:
    """Of few terms: in most elements one order rounds nothing, and another does."""
    index = torch.randint(40, (40,), generator=generator)
    return [torch.randn(40, 8, generator=generator), 0, index, torch.randn(40, 8, generator=generator)]


STEPS = {
    "a bias that another kernel adds": Steps(
        "Functional.conv2d",
        F.conv2d,
        lambda generator: [torch.randn(shape, generator=generator) for shape in ((2, 4, 9, 9), (6, 4, 3, 3), (6,))],
        convolution,
        one_off(F.conv2d, 24),
    ),
    "atomic sums": Steps(
        "Torch.scatter_add",
        torch.scatter_add,
        scattered,
        atomically,
        lambda x, dim, index, source: atomically(x, dim, index[:-1], source[:-1]),
    ),
    "atomic sums of rows": Steps(
        "Torch.index_add",
        torch.index_add,
        of_rows,
        row_by_row,
        lambda x, dim, index, source: row_by_row(x, dim, index[:-1], source[:-1]),
    ),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("side", "verdict"), [("healthy", "pass"), ("faulty", "error")])
@pytest.mark.parametrize("name", STEPS)
def test_steps_of_another_device(name: str, side: str, verdict: str, dtype: torch.dtype) -> None:
    steps = STEPS[name]
    registry = Registry.default()
    registry.devices["other"] = Emulated
    checker = Checker(RunRequest(device="other", allow=("none",)), registry)
    found = []
    for seed in range(5):
        args = [narrowed(value, dtype) for value in steps.inputs(torch.Generator().manual_seed(seed))]
        (judged,) = checker.compare(getattr(steps, side), steps.reference, args, api=steps.api, key=str(seed))
        found.append(judged.verdict)
    assert found == [verdict] * 5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_an_activation_in_steps_is_no_single_kernel(dtype: torch.dtype) -> None:
    registry = Registry.default()
    registry.devices["other"] = Emulated
    checker = Checker(RunRequest(device="other", allow=("none",)), registry)
    x = torch.randn(37, 69, generator=torch.Generator().manual_seed(0)).to(dtype)
    (alone,) = checker.compare(hard_swish, F.hardswish, (x,), api="Functional.hardswish")
    (composed,) = checker.compare(hard_swish, hard_swish, (x,))
    assert (alone.verdict, composed.verdict) == ("error", "pass")


def swiglu(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return F.silu(first) * second


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def by_exponents(x: Tensor) -> Tensor:
    """swiglu, which rounds in other places."""
    first, second = x.chunk(2, -1)
    return first * second / (1 + torch.exp(-first.float()))


def only_the_square(x: Tensor, weight: Tensor) -> Tensor:
    """rms_norm that rounds the root and nothing else."""
    root = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
    return x.float() * root.to(x.dtype).float() * weight.float()


COMPOSED: dict[str, tuple[Callable[..., Tensor], Sequence[tuple[int, ...]], Callable[..., Tensor]]] = {
    "swiglu": (swiglu, [(48, 96)], by_exponents),
    "rotary": (rotary, [(48, 64)] * 3, rotary),
    "rms_norm": (rms_norm, [(48, 64), (64,)], only_the_square),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", COMPOSED)
@pytest.mark.parametrize("device", ["cpu", "other"])
def test_a_kernel_that_rounds_once_has_no_inner_rounding_in_one_element(
    device: str, name: str, dtype: torch.dtype
) -> None:
    """Six roundoffs are less than steps between kernels may err. So the other elements tell whether there are steps."""
    reference, shapes, otherwise = COMPOSED[name]
    registry = Registry.default()
    registry.devices["other"] = Emulated
    checker = Checker(RunRequest(device=device, allow=("none",)), registry)

    def once(*args: Tensor) -> Tensor:
        return reference(*(each.float() for each in args)).to(dtype)

    def rounded(*args: Tensor) -> Tensor:
        return otherwise(*args).to(dtype)

    generator = torch.Generator().manual_seed(0)
    args = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    found = [
        judged.verdict
        for function in (once, reference, rounded, one_off(once, 6))
        for judged in checker.compare(function, reference, args, key=name)
    ]
    assert found == ["pass", "pass", "pass", "error"]


class Rounded(torch.autograd.Function):
    """To bfloat16; its gradient passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.bfloat16().float()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """As by blocks: weights are rounded before they meet the values, and divided by their sum afterwards."""
    scores = query.float() @ key.float().mT / query.shape[-1] ** 0.5
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    mixed: Tensor = Rounded.apply(weights) @ value.float()
    return (mixed / weights.sum(-1, keepdim=True)).to(query.dtype)


def attention_verdicts(function: Callable[..., Tensor], backward: bool) -> list[str]:
    """Without a batch torch's CPU computes attention in float32, and is no witness."""
    registry = Registry.default()
    registry.devices["other"] = Emulated
    checker = Checker(RunRequest(device="other", allow=("none",)), registry)
    generator = torch.Generator().manual_seed(1)
    args = [torch.randn(4, 300, 64, generator=generator).bfloat16() for _ in range(3)]
    api = "Functional.scaled_dot_product_attention"
    found = checker.compare(function, F.scaled_dot_product_attention, args, api=api, backward=backward)
    return [verdict.verdict for verdict in found]


def test_gradients_of_attention_are_rounded_unlike_from_row_to_row() -> None:
    assert attention_verdicts(attention, True) == ["pass", "pass"]
    assert attention_verdicts(one_off(attention, 64), False) == ["error"]


def in_blocks(wrong: float, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention as a fused kernel makes it: 16 keys at a time, weights rounded before their product; one row is off."""
    shared = query.shape[1] // key.shape[1]
    q, k, v = query.float(), *(each.float().repeat_interleave(shared, 1) for each in (key, value))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    highest, total, result = torch.full_like(q[..., :1], -torch.inf), torch.zeros_like(q[..., :1]), torch.zeros_like(q)
    for start in range(0, scores.shape[-1], 16):
        block = scores[..., start : start + 16]
        known, highest = highest, torch.maximum(highest, block.amax(-1, keepdim=True))
        weights, kept = torch.exp(block - highest), torch.exp(known - highest)
        total = total * kept + weights.sum(-1, keepdim=True)
        result = result * kept + weights.to(query.dtype).float() @ v[..., start : start + 16, :]
    result = result / total
    result[0, 0, 3] *= wrong
    return result.to(query.dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("wrong", "verdict"), [(1.0, "pass"), (1.5, "error")])
@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("device", ["cpu", "other"])
def test_an_attention_of_the_users_rounds_its_weights(
    device: str, heads: int, wrong: float, verdict: str, dtype: torch.dtype
) -> None:
    """Also where two heads share a key, as in grouped-query attention."""
    registry = Registry.default()
    registry.devices["other"] = Emulated
    checker = Checker(RunRequest(device=device), registry)
    args = tuple(
        torch.randn(2, count, 64, 64, generator=torch.Generator().manual_seed(each)).to(dtype)
        for each, count in enumerate((4, heads, heads))
    )
    reference = partial(F.scaled_dot_product_attention, enable_gqa=True)
    api = "Functional.scaled_dot_product_attention"
    found = checker.compare(partial(in_blocks, wrong), reference, args, api=api)
    assert [each.verdict for each in found] == [verdict]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("beta", "passes"), [(0.2, True), (0.21, False)])
@pytest.mark.parametrize("shape", [(2, 3), (3,), (1,), ()], ids=str)
def test_a_scalar_beside_16_bit_has_either_reading_in_a_gradient(
    shape: tuple[int, ...], beta: float, passes: bool, dtype: torch.dtype
) -> None:
    """addmm's: kernels take beta in float32 or in 16 bit, and each gradient of one call may ask for another reading."""
    registry = Registry.default()
    registry.devices["other"] = Emulated
    checker = Checker(RunRequest(device="other", allow=("none",)), registry)
    reference = partial(torch.addmm, beta=0.2, alpha=0.6)
    found = []
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        args = [torch.randn(each, generator=generator).to(dtype) for each in (shape, (2, 2), (2, 3))]
        judged = checker.compare(
            partial(torch.addmm, beta=beta, alpha=0.6), reference, args, api="Torch.addmm", backward=True, key=str(seed)
        )
        found.append(judged[-1].verdict)
    assert ("error" not in found) if passes else found == ["error"] * 4
