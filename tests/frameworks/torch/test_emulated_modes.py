from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.frameworks.torch import attention
from pytest_probe.frameworks.torch.emulated_modes import emulated, flushed, rounded_to_bits
from pytest_probe.model.device_modes import Cut, Mode, Rounding, behaviour
from pytest_probe.model.run import Jitter

TF32 = Mode(bits=11)
STEP = 2.0**-10  # of TF32 at 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rounding", "wanted"), [("even", [0.0, 2.0, 1.0, -2.0]), ("zero", [0.0, 1.0, 0.0, -1.0])])
def test_rounding_to_11_bits(dtype: torch.dtype, rounding: Rounding, wanted: list[float]) -> None:
    steps = torch.tensor([0.5, 1.5, 0.75, -1.75], dtype=torch.float64)
    values = (steps.sign() + steps * STEP).to(dtype)
    assert ((rounded_to_bits(values, 11, rounding).double() - steps.sign()) / STEP).tolist() == wanted


def test_rounding_leaves_inf_nan_and_integers_and_takes_complex_numbers_apart() -> None:
    special = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0])
    assert torch.equal(rounded_to_bits(special, 11, "even").nan_to_num(7.0), special.nan_to_num(7.0))
    assert rounded_to_bits(torch.tensor([3]), 11, "even").tolist() == [3]
    assert rounded_to_bits(torch.tensor([1 + STEP / 4 + 1j]), 11, "even").tolist() == [1 + 1j]


def test_operands_of_products_are_rounded_and_the_bias_is_not() -> None:
    fine = 1 + STEP / 4
    a, bias = torch.full((1, 1), fine, dtype=torch.float64), torch.full((1,), fine, dtype=torch.float64)
    with emulated(TF32, None):
        assert torch.mm(a, a).item() == 1.0
        assert F.linear(a, a, bias).item() == 1.0 + fine
        assert (a * a).item() == fine * fine


def test_a_convolution_rounds_forward_and_backward_but_for_its_bias() -> None:
    fine = 1 + STEP / 4
    x, weight = (torch.full((1, 1, 3, 3), fine, dtype=torch.float64, requires_grad=True) for _ in range(2))
    bias = torch.full((1,), fine, dtype=torch.float64, requires_grad=True)
    with emulated(TF32, None):
        out = F.conv2d(x, weight, bias)
        gradients = torch.autograd.grad(out, [x, weight, bias], torch.full_like(out, fine))
    assert out.item() == 9.0 + fine
    assert [gradient.max().item() for gradient in gradients] == [1.0, 1.0, fine]


def test_a_flag_for_convolutions_does_not_reach_matmul() -> None:
    a = torch.full((1, 1), 1 + STEP / 4, dtype=torch.float64)
    (mode, *_) = behaviour("tf32 in convolution").variants
    with emulated(mode, None):
        assert torch.mm(a, a).item() != 1.0
        assert F.conv2d(a.view(1, 1, 1, 1), a.view(1, 1, 1, 1)).item() == 1.0


def test_two_bfloat16_numbers_keep_16_bits() -> None:
    a = torch.tensor([[1 + 2.0**-8 + 2.0**-9 + 2.0**-20]], dtype=torch.float64)
    with emulated(Mode(bits=8), None):
        assert torch.mm(a, torch.ones_like(a)).item() == 1 + 2.0**-7
    with emulated(Mode(bits=8, split=True), None):
        assert torch.mm(a, torch.ones_like(a)).item() == pytest.approx(a.item(), rel=2.0**-16)


@pytest.mark.parametrize(
    ("cut", "wanted"), [("", 1.0625**2), ("both", 1.0), ("first", 1.0625), ("second", 1.0625), ("sums", 1.0625**2)]
)
def test_one_operand_is_cut_or_both(cut: Cut, wanted: float) -> None:
    a = torch.tensor([[1 + 2.0**-4 - 2.0**-6]], dtype=torch.float64)
    with emulated(Mode(bits=5, cut=cut), None):
        assert torch.mm(a, a).item() == pytest.approx(wanted, rel=2.0**-20)


def test_partial_sums_are_rounded() -> None:
    a = torch.tensor([[2048.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    for chunks, wanted in ((4, 2048.0), (2, 2050.0)):
        with emulated(Mode(sums="float16", chunks=chunks), None):
            assert torch.mm(a, torch.ones(4, 1, dtype=torch.float64)).item() == wanted


def test_the_one_sum_of_a_grouped_convolution_is_rounded_before_its_bias() -> None:
    x, weight, bias = torch.full((1, 2, 1), 1 + 2.0**-9), torch.ones(2, 1, 1), torch.full((2,), 2.0**-9)
    with emulated(Mode(sums="bfloat16", chunks=2), None):
        found = F.conv1d(x.double(), weight.double(), bias.double(), groups=2)
    assert found.tolist() == [[[1 + 2.0**-9], [1 + 2.0**-9]]]


def test_subnormal_numbers_are_zero() -> None:
    small = torch.tensor([2.0**-127, 2.0**-126, -(2.0**-130), 1.0], dtype=torch.float64)
    assert flushed(small).tolist() == [0.0, 2.0**-126, 0.0, 1.0]
    with emulated(Mode(flush=True), None):
        assert (small * 2).tolist() == [0.0, 2.0**-125, 0.0, 2.0]
        assert (small[1:2] / 2).tolist() == [0.0]
        assert small.clone().mul_(0.5).tolist() == [0.0, 0.0, 0.0, 0.5]


def test_running_statistics_that_begin_at_zero_are_written_to_under_flush_to_zero() -> None:
    mean, variance = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    x = torch.tensor([[1.0, 3.0], [3.0, 5.0]], dtype=torch.float64)
    with emulated(Mode(flush=True), None):
        F.batch_norm(x, mean, variance, training=True, momentum=0.5)
    assert mean.tolist() == [1.0, 2.0]
    assert variance.tolist() == [1.5, 1.5]


@pytest.mark.parametrize("heads", [4, 2, 1])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_that_rounds_nothing_is_torchs_own(causal: bool, heads: int) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, count, 6, 4) for count in (4, heads, heads)]
    operands = [torch.randn(shape, generator=generator).double().requires_grad_() for shape in shapes]
    query, key, value = operands

    def results() -> list[torch.Tensor]:
        out = F.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True)
        return [out, *torch.autograd.grad(out, operands, torch.ones_like(out))]

    plain = results()
    for bits, same in ((52, True), (11, False)):
        with emulated(Mode(bits=bits), None):
            pairs = zip(results(), plain, strict=True)
            assert all(torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12) == same for ours, theirs in pairs)


def test_attention_gives_the_logarithm_of_the_sum_that_its_backward_takes() -> None:
    query = torch.eye(4, dtype=torch.float64).view(1, 1, 4, 4)
    ours, theirs = attention.flash_forward(query, query, query), attention.FLASH_FORWARD(query, query, query)
    assert all(torch.allclose(mine, other) for mine, other in zip(ours, theirs, strict=True))


def test_a_sample_is_as_far_off_as_rounding_and_alike_for_equal_numbers() -> None:
    a = torch.tensor([[1 + STEP / 4, 2.0, 1 + STEP / 4, -1 - STEP / 4]], dtype=torch.float64)

    def sample(seed: int) -> torch.Tensor:
        with emulated(TF32, Jitter(0.0, seed)):
            return torch.stack([torch.mm(part, part.new_ones(1, 1)) for part in a.split(1, 1)]).flatten()

    found = [sample(seed) - a.flatten() for seed in range(16)]
    assert all(torch.equal(sample(seed) - a.flatten(), each) for seed, each in enumerate(found))
    assert {float(each[0] / STEP) for each in found} == {0.25, -0.25}
    assert all(each.tolist() == [each[0], 0, each[0], -each[0]] for each in found)


@pytest.mark.parametrize(
    ("taps", "padding", "tiles", "shape"),
    [(3, 1, 2, (9, 10)), (3, 0, 4, (7, 12)), (5, 2, 2, (11, 8)), (5, 4, 4, (12, 9)), (3, 2, 2, (1, 1))],
)
def test_winograd_that_rounds_nothing_is_a_convolution(
    taps: int, padding: int, tiles: int, shape: tuple[int, int]
) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 6, *shape), (4, 6, taps, taps), (4,))
    operands = [torch.randn(each, generator=generator).double().requires_grad_() for each in shapes]

    def results() -> list[torch.Tensor]:
        x, weight, bias = operands
        out = F.conv2d(x, weight, bias, padding=padding)
        return [out, *torch.autograd.grad(out, operands, torch.arange(out.numel()).view_as(out).double())]

    plain = results()
    for bits, same in ((52, True), (11, False)):
        with emulated(Mode(bits=bits, tiles=tiles), None):
            pairs = list(zip(results()[:3], plain, strict=False))
            assert all(torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9) == same for ours, theirs in pairs)


def test_what_is_no_convolution_of_tiles_is_computed_as_one() -> None:
    x, weight = (torch.randn(4, 4, 5, 5, generator=torch.Generator().manual_seed(1)).double() for _ in range(2))
    ways: list[dict[str, Any]] = [{"stride": 2}, {"groups": 2}, {"dilation": 2, "padding": 4}]
    for how in ways:
        weights = weight[:, : 4 // how.get("groups", 1), :3, :3]
        with emulated(TF32, None):
            direct = F.conv2d(x, weights, **how)
        with emulated(Mode(bits=11, tiles=4), None):
            assert torch.equal(F.conv2d(x, weights, **how), direct)
