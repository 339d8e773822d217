"""Write pairs.npz: outputs of real operators in a device's dtype, each beside what msprobe would compare it with.

    python tests/conformance/make_pairs.py [FILE [SEED]]

msprobe's benchmark is float64 for a float32 output, float32 for 16-bit ones and for convolutions. Inputs, operators and
edge cases are small and seeded; kernels of another machine may give other last bits, which peer_rows.py then measures
anew. bfloat16 is stored as its 16 bits. Needs torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

PAIRS = Path(__file__).with_name("pairs.npz")
BENCHMARK = {torch.float32: torch.float64, torch.float16: torch.float32, torch.bfloat16: torch.float32}
Pair = tuple[str, torch.Tensor, torch.Tensor]


def operators(random: torch.Generator) -> dict[str, tuple[Callable[..., torch.Tensor], list[torch.Tensor]]]:
    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    functional = torch.nn.functional
    return {
        "linear": (functional.linear, [normal(40, 64), normal(48, 64), normal(48)]),
        "softmax": (lambda x: torch.softmax(x, -1), [4 * normal(24, 64)]),
        "layer_norm": (lambda x: functional.layer_norm(x, (64,)), [normal(24, 64)]),
        "gelu": (functional.gelu, [3 * normal(1500)]),
        "relu": (torch.relu, [normal(800)]),
        "mul": (torch.mul, [normal(1500), 1e-3 * normal(1500)]),
        "tiny": (torch.mul, [1e-4 * normal(800), 1e-4 * normal(800)]),
        "log": (torch.log, [normal(600)]),
        "overflow": (torch.exp, [60 * normal(600)]),
        "cumsum": (lambda x: torch.cumsum(x, 0), [normal(1200)]),
    }


def computed(seed: int) -> Iterator[Pair]:
    for name, (call, inputs) in operators(torch.Generator().manual_seed(seed)).items():
        for dtype, precise in BENCHMARK.items():
            given = [each.to(dtype) for each in inputs]
            label = f"{name}.{str(dtype).removeprefix('torch.')}"
            yield label, call(*given), call(*(each.to(precise) for each in given))


def perturbed(seed: int) -> Iterator[Pair]:
    """Faulty devices: noise of a thousandth, a few wrong elements, another sign, a constant offset."""
    random = torch.Generator().manual_seed(seed + 1)
    for dtype, precise in BENCHMARK.items():
        label = str(dtype).removeprefix("torch.")
        truth = torch.randn(1200, generator=random).to(precise)
        noise = 1 + 1e-3 * torch.randn(1200, generator=random).to(precise)
        yield f"noise.{label}", (truth * noise).to(dtype), truth
        wrong = truth.clone()
        wrong[::300] += 0.5
        yield f"wrong.{label}", wrong.to(dtype), truth
        yield f"negated.{label}", (-truth).to(dtype), truth
        yield f"offset.{label}", (truth + 0.01).to(dtype), truth


def edges(_: int) -> Iterator[Pair]:
    """Values at the thresholds, signed zeros, subnormals, NaN and inf on one side, on the other and on both."""
    inf, nan = float("inf"), float("nan")
    steps = [0.0, 1e-45, 1e-39, 1e-9, 1e-6, 2.0**-20, 2.0**-10, 1e-3, 0.01, 1.0, 1024.0, 60000.0, 3e38]
    for dtype, precise in BENCHMARK.items():
        label = str(dtype).removeprefix("torch.")
        truth = torch.tensor([sign * step for step in steps for sign in (1, -1) for _ in range(3)], dtype=precise)
        shift = torch.tensor([0.0, 2.0**-8, -(2.0**-10)], dtype=precise).repeat(2 * len(steps))
        yield f"steps.{label}", (truth * (1 + shift) + 1e-9 * shift).to(dtype), truth
        mixed = torch.tensor([1.0, inf, -inf, nan, inf, 1.0, nan, 2.0, inf, -1e39], dtype=precise)
        other = torch.tensor([1.0, inf, -inf, nan, -inf, inf, 1.0, nan, 3e38, -inf], dtype=precise)
        yield f"nonfinite.{label}", other.to(dtype), mixed
        yield f"one.{label}", torch.ones((), dtype=dtype), torch.full((), 1 + 2.0**-12, dtype=precise)
        yield f"zeros.{label}", torch.zeros(8, dtype=dtype), torch.zeros(8, dtype=precise)
        yield f"lost.{label}", torch.zeros(8, dtype=dtype), torch.ones(8, dtype=precise)


def others(seed: int) -> Iterator[Pair]:
    random = torch.Generator().manual_seed(seed + 2)
    image, kernel = torch.randn(1, 4, 10, 10, generator=random), torch.randn(6, 4, 3, 3, generator=random)
    slow = sum(torch.nn.functional.conv2d(image[:, at : at + 1], kernel[:, at : at + 1]) for at in reversed(range(4)))
    assert isinstance(slow, torch.Tensor)
    yield "conv2d.float32", torch.nn.functional.conv2d(image, kernel), slow
    truth = torch.randn(500, generator=random, dtype=torch.float64)
    yield "noise.float64", truth * (1 + 1e-12), truth
    counts = torch.randint(-9, 9, (300,), generator=random)
    yield "counts.int64", torch.where(counts == 3, 4, counts), counts
    yield "flags.bool", counts > 0, counts >= 0


def stored(tensor: torch.Tensor) -> npt.NDArray[np.generic]:
    bits = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
    return np.asarray(bits.numpy())


def write(path: Path, seed: int) -> None:
    arrays = {}
    for source in (computed, perturbed, edges, others):
        for name, device, benchmark in source(seed):
            arrays[f"{name}/device"], arrays[f"{name}/benchmark"] = stored(device), stored(benchmark)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def main() -> None:
    path = Path(sys.argv[1]) if sys.argv[1:] else PAIRS
    write(path, int(sys.argv[2]) if sys.argv[2:] else 4)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
