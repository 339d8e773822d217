"""What the search found in torch itself, without pytest-probe: `python benchmarks/fuzz_findings.py`."""

from __future__ import annotations

import math
import subprocess
import sys

import torch


def erf_in_16_bit() -> str:
    """erf of all finite bfloat16 numbers, against float64."""
    bits = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    x = bits[torch.isfinite(bits)]
    actual, expected = torch.erf(x).double(), torch.erf(x.double())
    small = (x.abs() > 1e-30) & (x.abs() < 1e-3)
    off = ((actual - expected).abs() / expected.abs())[small]
    worst = x[small][off.argmax()]
    return f"bfloat16 erf({worst.item():.6g}) = {torch.erf(worst).item():.6g}: off by {off.max().item():.0%}"


def strided_running_mean() -> str:
    """The gradient of batch_norm's weight in evaluation, with a running mean that is a view of every second element."""
    torch.manual_seed(0)
    x, w, g = torch.randn(3, 9), torch.randn(9), torch.randn(3, 9)
    mean, var = torch.randn(18)[::2], torch.rand(9)

    def gradient(mean: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        given, weight = (tensor.to(dtype).requires_grad_() for tensor in (x, w))
        out = torch.nn.functional.batch_norm(given, mean.to(dtype), var.to(dtype), weight, None, False)
        return torch.autograd.grad(out, weight, g.to(dtype))[0]

    wanted = gradient(mean, torch.float64)
    off = [(gradient(each, torch.float32) - wanted).abs().max().item() for each in (mean, mean.contiguous())]
    return f"batch_norm's weight gradient: off by {off[0]:.3g} with a strided running mean, {off[1]:.3g} without"


def hyperbolic_overflow() -> str:
    """sinh and cosh of several elements, where the result is below the largest float32, and exp is not."""
    x = torch.full((64,), 89.0)
    return f"float32 sinh(89) = {torch.sinh(x)[0].item()}, in float64 {torch.sinh(x.double())[0].item():.4g}"


def gelu_of_infinity() -> str:
    """gelu of inf, by oneDNN and without it."""
    x = torch.tensor([0.0, float("inf")])
    with torch.backends.mkldnn.flags(enabled=False):
        plain = torch.nn.functional.gelu(x)[1].item()
    return f"float32 gelu(inf) = {torch.nn.functional.gelu(x)[1].item()} by oneDNN, {plain} without"


def subnormal_products() -> str:
    """A bfloat16 product of subnormal numbers by one, of so many rows that oneDNN computes it."""
    x = torch.full((1025, 2), torch.finfo(torch.bfloat16).smallest_normal / 2, dtype=torch.bfloat16)
    ones = torch.ones(2, 2, dtype=torch.bfloat16)
    with torch.backends.mkldnn.flags(enabled=False):
        plain = torch.nn.functional.linear(x, ones)[0, 0].item()
    found = torch.nn.functional.linear(x, ones)[0, 0].item()
    return f"bfloat16 linear of subnormals = {found} by oneDNN, {plain:.4g} without"


def dilated_groups() -> str:
    """The weight's gradient of a bfloat16 convolution of small integers: groups, dilation and channels last."""
    torch.manual_seed(0)
    x, w, g = (torch.randint(-2, 3, shape).bfloat16() for shape in ((1, 2, 5, 31), (2, 1, 1, 1), (1, 2, 5, 31)))
    x = x.to(memory_format=torch.channels_last)

    def gradient(dtype: torch.dtype) -> torch.Tensor:
        weight = w.to(dtype).requires_grad_()
        out = torch.nn.functional.conv2d(x.to(dtype), weight, dilation=2, groups=2)
        return torch.autograd.grad(out, weight, g.to(dtype))[0].flatten()

    found, wanted = (gradient(dtype).tolist() for dtype in (torch.bfloat16, torch.float64))
    return f"bfloat16 conv2d's weight gradient = {found}, in float64 {wanted}"


def gradient_of_parts() -> str:
    """The gradient of a float16 convolution's input, a sum of two products that both are beyond float16."""
    weight, gradient = torch.tensor([[[[60000.0, -30000.0]]]]), torch.full((1, 1, 1, 2), 1.5)

    def middle(dtype: torch.dtype) -> float:
        x = torch.zeros(1, 1, 1, 3, dtype=dtype, requires_grad=True)
        out = torch.nn.functional.conv2d(x, weight.to(dtype))
        return torch.autograd.grad(out, x, gradient.to(dtype))[0][0, 0, 0, 1].item()

    return f"float16 conv2d's input gradient = {middle(torch.float16)}, in float64 {middle(torch.float64)}"


def gradient_of_images() -> str:
    """The gradient of a float16 convolution's weight over two images, whose products are beyond float16."""
    x, gradient = torch.tensor([60000.0, -30000.0]).view(2, 1, 1, 1), torch.full((2, 1, 1, 1), 1.5)

    def of_weight(dtype: torch.dtype) -> float:
        weight = torch.zeros(1, 1, 1, 1, dtype=dtype, requires_grad=True)
        out = torch.nn.functional.conv2d(x.to(dtype), weight)
        return torch.autograd.grad(out, weight, gradient.to(dtype))[0].item()

    return f"float16 conv2d's weight gradient = {of_weight(torch.float16)}, in float64 {of_weight(torch.float64)}"


GROUP_NORM = """
import math

import torch
x = torch.ones(2, 4, 3, 3).to(memory_format=torch.channels_last)
weight = torch.ones(4, requires_grad=True)
torch.nn.functional.group_norm(x, 2, weight).sum().backward()
"""


def unasked_gradient() -> str:
    """The gradient of group_norm's weight alone, where the input has its channels last."""
    run = subprocess.run([sys.executable, "-c", GROUP_NORM], capture_output=True)
    return f"group_norm's weight gradient, channels last: the process ends with {run.returncode}"


def variance_of_a_constant() -> str:
    """The gradient of group_norm's input where all numbers of a group are equal, in both memory formats."""
    torch.manual_seed(0)
    gradient = torch.randn(1, 2, 3, 1, dtype=torch.float64)

    def of_input(dtype: torch.dtype, layout: torch.memory_format) -> torch.Tensor:
        x = torch.full((1, 2, 3, 1), -3.0, dtype=dtype).to(memory_format=layout).requires_grad_()
        return torch.autograd.grad(torch.nn.functional.group_norm(x, 1), x, gradient.to(dtype))[0].double()

    wanted = of_input(torch.float64, torch.contiguous_format)
    last, plain = (
        ((of_input(torch.float32, layout) - wanted).norm() / wanted.norm()).item()
        for layout in (torch.channels_last, torch.contiguous_format)
    )
    return f"float32 group_norm's gradient, constant group: off by {last:.3g} with channels last, {plain:.3g} without"


def gradient_of_a_constant_row() -> str:
    """The gradient of layer_norm's input where all numbers of a row are equal, by torch and by the formula."""
    torch.manual_seed(0)
    x, weight, gradient = torch.full((1, 512), 200.0), torch.randn(512), torch.randn(1, 512)

    def of_input(dtype: torch.dtype) -> torch.Tensor:
        row = x.to(dtype, copy=True).requires_grad_()
        output = torch.nn.functional.layer_norm(row, (512,), weight.to(dtype), None, 1e-12)
        return torch.autograd.grad(output, row, gradient.to(dtype))[0].double()

    def by_formula() -> torch.Tensor:
        apart = x - x.mean(-1, keepdim=True)
        scale = (apart.square().mean(-1, keepdim=True) + 1e-12).rsqrt()
        whole, normal = gradient * weight, apart * scale
        along = normal * (whole * normal).mean(-1, keepdim=True)
        return (scale * (whole - whole.mean(-1, keepdim=True) - along)).double()

    wanted = of_input(torch.float64)
    off, plain = (((found - wanted).norm() / wanted.norm()).item() for found in (of_input(torch.float32), by_formula()))
    return f"float32 layer_norm's gradient, constant row: off by {off:.3g}, {plain:.3g} by the formula in float32"


def nan_in_a_query() -> str:
    """Attention of a query in which one number is NaN, by the flash kernel and by the formula."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 1, length, 4) for length in (32, 9, 9))
    query[0, 0, 3, 1] = torch.nan

    def lost() -> int:
        return int(torch.nn.functional.scaled_dot_product_attention(query, key, value).isnan().sum())

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        plain = lost()
    return f"float32 attention with NaN in a query = {lost()} numbers NaN by the flash kernel, {plain} without"


def exponential_of_a_rotation() -> str:
    """matrix_exp of one matrix, and of two, which goes another way."""
    angle = 0.5
    matrix, wanted = torch.tensor([[0.0, -angle], [angle, 0.0]]), math.sin(angle)
    off, plain = (abs(torch.matrix_exp(matrix.repeat(count, 1, 1))[0, 1, 0].item() - wanted) for count in (1, 2))
    return f"float32 matrix_exp, a rotation by {angle}: off by {off:.3g}, {plain:.3g} as one of two"


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    for found in (
        erf_in_16_bit,
        strided_running_mean,
        hyperbolic_overflow,
        gelu_of_infinity,
        subnormal_products,
        dilated_groups,
        gradient_of_parts,
        gradient_of_images,
        unasked_gradient,
        variance_of_a_constant,
        gradient_of_a_constant_row,
        exponential_of_a_rotation,
        nan_in_a_query,
    ):
        print(found())
