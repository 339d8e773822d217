"""What the search found in torch itself, without pytest-probe: `python benchmarks/fuzz_findings.py`."""

from __future__ import annotations

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


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    for found in (erf_in_16_bit, strided_running_mean, hyperbolic_overflow, gelu_of_infinity):
        print(found())
