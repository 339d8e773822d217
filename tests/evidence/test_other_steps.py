"""16-bit kernels of other devices that round between kernels pass, and are no excuse for a fault.

CUDA's scatter_add adds to the 16-bit tensor atomically, in any order. What torch runs as one kernel rounds once: steps
in its place are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.support.comparing import compared, outcomes

pytestmark = pytest.mark.usefixtures("no_causes")

Tensor = torch.Tensor
other = partial(outcomes, device="other", allow="none")


def one_off(function: Callable[..., Tensor], roundoffs: int) -> Callable[..., Tensor]:
    """Rounds once, but for one element of middle size, that is off by so many roundoffs of the dtype."""

    def faulty(*args: Any) -> Tensor:
        found = function(*args)
        flat = found.view(-1)
        place = flat.abs().argsort()[flat.numel() // 2]
        flat[place] *= 1 + roundoffs * torch.finfo(found.dtype).eps / 2
        return found

    return faulty


def atomically(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Row after row from the last to the first, each sum rounded."""
    for row, places in zip(source.flip(dim).split(1, dim), index.flip(dim).split(1, dim), strict=True):
        x = x.scatter_add(dim, places, row)
    return x


def hard_swish(x: Tensor) -> Tensor:
    return x * F.relu6(x + 3) / 6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sums_that_are_made_atomically(dtype: torch.dtype) -> None:
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        index = torch.randint(20, (60, 30), generator=generator)
        x, source = (torch.randn(rows, 30, generator=generator).to(dtype) for rows in (20, 60))
        for lost, verdict in ((0, "pass"), (1, "error")):
            made = atomically(x, 0, index[: 60 - lost], source[: 60 - lost])
            how: Any = {"api": "Torch.scatter_add", "key": str(seed)}
            assert other(lambda *_, made=made: made, torch.scatter_add, [x, 0, index, source], **how) == [verdict]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_an_activation_in_steps_is_no_single_kernel(dtype: torch.dtype) -> None:
    x = torch.randn(37, 69, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert other(hard_swish, F.hardswish, (x,), api="Functional.hardswish") == ["error"]
    assert other(hard_swish, hard_swish, (x,)) == ["pass"]


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

    def once(*args: Tensor) -> Tensor:
        return reference(*(each.float() for each in args)).to(dtype)

    def rounded(*args: Tensor) -> Tensor:
        return otherwise(*args).to(dtype)

    generator = torch.Generator().manual_seed(0)
    args = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    how: Any = {"device": device, "allow": "none", "key": name}
    found = [outcomes(function, reference, args, **how) for function in (once, reference, rounded, one_off(once, 6))]
    assert found == [["pass"], ["pass"], ["pass"], ["error"]]


def large_channel(x: Tensor, weight: Tensor) -> list[Tensor]:
    weight[3] = 3000
    return [x, weight]


def large_element(x: Tensor) -> list[Tensor]:
    x[5, 7], x[5, 55] = 1e3, 10
    return [x]


# A large element or channel, and how many elements are that large.
BESIDE_LARGE: dict[str, tuple[Callable[..., list[Tensor]], int]] = {
    "swiglu": (large_element, 1), "rms_norm": (large_channel, 48)
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", BESIDE_LARGE)
@pytest.mark.parametrize("device", ["cpu", "other"])
def test_what_large_elements_are_off_by_excuses_no_others(device: str, name: str, dtype: torch.dtype) -> None:
    """The largest of the others are next to them by size."""
    function, shapes, _ = COMPOSED[name]
    make, large = BESIDE_LARGE[name]
    generator = torch.Generator().manual_seed(0)
    args = [each.to(dtype) for each in make(*(torch.randn(shape, generator=generator) for shape in shapes))]
    how: Any = {"device": device, "allow": "none", "key": name}
    right = function(*args)
    assert outcomes(function, function, args, **how) != ["error"]
    for rank, factor in ((0, 1.5), (20, 1.2), (40, 1.2)):
        wrong = right.clone()
        wrong.view(-1)[right.float().abs().view(-1).argsort(descending=True)[large + rank]] *= factor
        assert outcomes(lambda *_, wrong=wrong: wrong, function, args, **how) == ["error"]


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
    generator = torch.Generator().manual_seed(1)
    args = [torch.randn(4, 300, 64, generator=generator).bfloat16() for _ in range(3)]
    api = "Functional.scaled_dot_product_attention"
    return other(function, F.scaled_dot_product_attention, args, api=api, backward=backward)


def test_gradients_of_attention_are_rounded_unlike_from_row_to_row() -> None:
    assert attention_verdicts(attention, True) == ["pass", "pass"]
    assert attention_verdicts(one_off(attention, 64), False) == ["error"]


def test_a_tie_that_every_perturbed_run_rounds_the_other_way() -> None:
    """Element [0, 29, 39] of this seed's output is a product that lies between two bfloat16 numbers."""
    angles = torch.arange(32)[:, None] * 10000.0 ** (-torch.arange(32) / 32)
    angles = torch.cat([angles, angles], -1)
    x = torch.randn(4, 32, 64, generator=torch.Generator().manual_seed(166)) * 8
    args = [each.bfloat16() for each in (x, angles.cos(), angles.sin())]
    [found] = compared(rotary, rotary, args, key="kernel.166")
    assert found.verdict == "pass"
    assert float(found.outputs[0].metrics["noise_ratio"]) <= 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("beta", "passes"), [(0.2, True), (0.21, False)])
@pytest.mark.parametrize("shape", [(2, 3), (3,), (1,), ()], ids=str)
def test_a_scalar_beside_16_bit_has_either_reading_in_a_gradient(
    shape: tuple[int, ...], beta: float, passes: bool, dtype: torch.dtype
) -> None:
    """addmm's: kernels take beta in float32 or in 16 bit, and each gradient of one call may ask for another reading."""
    reference = partial(torch.addmm, beta=0.2, alpha=0.6)
    found = []
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        args = [torch.randn(each, generator=generator).to(dtype) for each in (shape, (2, 2), (2, 3))]
        how: Any = {"api": "Torch.addmm", "backward": True, "key": str(seed)}
        found.append(other(partial(torch.addmm, beta=beta, alpha=0.6), reference, args, **how)[-1])
    assert ("error" not in found) if passes else found == ["error"] * 4
