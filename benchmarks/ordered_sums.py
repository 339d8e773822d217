"""What is lost by sums that are added one term after another in float32, and what the verdict says of them.

    python benchmarks/ordered_sums.py

Prints relative errors of torch's CPU kernels and of pairwise sums, the verdict on each, and that on faults of a like
size: all of them are errors.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from pytest_probe.check import Checker, RunRequest
from pytest_probe.registry import Registry

Function = Callable[[torch.Tensor], torch.Tensor]
# Parameters of resnet18's largest layer but one, of its largest, and of an embedding of 50,257 words times 768.
SIZES = (409_600, 2_359_296, 38_597_376)


def norm(x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = torch.linalg.vector_norm(x)
    return found


def pairwise(x: torch.Tensor) -> torch.Tensor:
    return x.square().sum().sqrt()


def loop(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros((), dtype=x.dtype)
    for each in x:
        total = total + each
    return total


def without_tail(x: torch.Tensor) -> torch.Tensor:
    return norm(x[: -len(x) // 64])


def in_float16(x: torch.Tensor) -> torch.Tensor:
    return x.half().square().sum().sqrt().float()


def too_small(x: torch.Tensor) -> torch.Tensor:
    return pairwise(x) * (1 - 4e-5)


FAULTS: tuple[Function, ...] = (without_tail, in_float16, too_small)


def verdict(function: Function, reference: Function, x: torch.Tensor) -> str:
    def in_own_dtype(given: torch.Tensor) -> torch.Tensor:
        return (reference if given.dtype is torch.float64 else function)(given)

    checker = Checker(RunRequest(device="cpu", allow=("none",)), Registry.default())
    [found] = checker.compare(in_own_dtype, reference, [x], key="ordered sums")
    return f"{found.verdict}: {found.reason}" if found.reason else found.verdict


def show(name: str, function: Function, reference: Function, x: torch.Tensor) -> None:
    expected = reference(x.double())
    error = abs(function(x).double() / expected - 1)
    print(f"{name}: off by {error:.1e}; {verdict(function, reference, x)}")


def main() -> None:
    torch.manual_seed(0)
    for size in SIZES:
        x = torch.randn(size)
        show(f"vector_norm of {size:,}", norm, norm, x)
        show(f"square, sum, sqrt of {size:,}", pairwise, norm, x)
        if size == SIZES[0]:
            for fault in FAULTS:
                show(f"fault {fault.__name__} of {size:,}", fault, norm, x)
    equal = torch.full((2048,), 0.1)
    show("loop over 2,048 equal numbers", loop, torch.sum, equal)
    show("fault: one of them lost", lambda x: loop(x[1:]), torch.sum, equal)
    show("fault: one of them counted twice", lambda x: loop(torch.cat([x, x[:1]])), torch.sum, equal)


if __name__ == "__main__":
    main()
