"""Where MindSpore 2.10.0 is wrong on a CPU: what a program gets, and what pytest-probe says of it as a stored output.

    python benchmarks/mindspore_findings.py        # in the environment of make test-mindspore

The gradient of a split: its middle chunk is reshaped, permuted and transposed, so that its incoming gradient is a
permuted view. What works in place: the tensor afterwards, beside the result.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
import torch
from mindspore import Tensor, mint

from pytest_probe import frameworks
from tests.support.mindspore_dumps import split_of_three, write


def main() -> None:
    frameworks.load("mindspore").device("CPU")
    right = split_of_three(strides_ignored=False)
    split(right)
    selu()
    broadcast()
    others()
    for name, value in (("add_", 1.0), ("sub_", 1.0), ("mul_", 2.0)):
        in_place(name, value)


def split(right: dict[str, Any]) -> None:
    """The recorded call, made by a program."""
    forward, backward = right["Mint.split.0.forward"], right["Mint.split.0.backward"]
    x, size = forward["input_args"]
    # Backwards through reshape, permute and transpose: the constant that the program multiplied by.
    constant = backward["input"][1].reshape(2, 4, 2, 4).transpose(0, 2, 3, 1)

    def program(given: Tensor) -> Tensor:
        first, middle, last = mint.split(given, size, -1)
        moved = middle.reshape(2, 4, 2, 4).permute(0, 2, 1, 3).transpose(-2, -1)
        return first.sum() + (moved * Tensor(np.ascontiguousarray(constant))).sum() + last.mean()

    gradient = mindspore.grad(program)(Tensor(x)).asnumpy()
    expected = backward["output"][0]
    backward["output"][0] = gradient
    with tempfile.TemporaryDirectory() as folder:
        dump = write(Path(folder) / "split", right)
        command = [sys.executable, "-m", "pytest", "-q", f"--probe-dump={dump}", "--probe-device=recorded"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    said = next(line for line in done.stdout.splitlines() if line.startswith("probe: "))
    print(f"mint.split, backward: off by up to {np.abs(gradient - expected).max():.2f}; {said}")


def selu() -> None:
    x = np.array([-3, -1, 1], np.float32)
    gradient = mindspore.grad(lambda given: mindspore.ops.selu(given).sum())(Tensor(x)).asnumpy()
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    expected = np.where(x > 0, scale, scale * alpha * np.exp(x))
    print(f"ops.selu, backward at {x}: {gradient}, is {expected.round(4)}")


def broadcast() -> None:
    """Of a vector and a matrix, the CPU's kernel reads the vector on beyond its end."""
    random = np.random.default_rng(0)
    row, rows = random.standard_normal((1, 3)), random.standard_normal((5, 3))
    for name, own, other in (
        ("cross", lambda a, b: mint.cross(a, b, dim=-1), lambda a, b: torch.linalg.cross(a, b)),
        ("nextafter", lambda a, b: a.nextafter(b), torch.nextafter),
        ("polar", mint.polar, torch.polar),
    ):
        found = own(Tensor(np.abs(row)), Tensor(rows)).asnumpy()
        expected = other(torch.tensor(np.abs(row)), torch.tensor(rows)).numpy()
        print(f"{name} of [1, 3] and [5, 3]: off by up to {np.abs(found - expected).max():.2g}")


def others() -> None:
    x = np.array([-1.0, 0.0, 2.0])
    gradient = mindspore.grad(lambda given: mint.cumprod(given, 0).sum())(Tensor(x)).asnumpy()
    print(f"mint.cumprod, backward at {x}: {gradient}, is [ 1. -3.  0.]")
    x = np.linspace(0.9, 0.9999, 5)
    off = np.abs(mint.erfinv(Tensor(x)).asnumpy() - torch.erfinv(torch.tensor(x)).numpy())
    print(f"mint.erfinv in float64: off by up to {off.max():.1g}")
    x = np.random.default_rng(0).uniform(2, 100, 2**20).astype(np.float32)
    right = np.log(x.astype(np.float64))
    off = (mint.log(Tensor(x)).asnumpy() - right) / right * 2**24
    print(f"mint.log of numbers from 2 to 100: {off.mean():.1f} roundoffs on average, {np.abs(off).max():.1f} at most")
    x = np.full(9, 1 - 2**-24, np.float32)
    print(f"mint.log just below 1: {mint.log(Tensor(x)).asnumpy()[0]}, is {np.log(np.float64(x[0])):.3g}")
    loss = mint.nn.functional.binary_cross_entropy(*(Tensor(np.float32(each)) for each in (0.25, 1.0))).asnumpy()
    print(f"mint.nn.functional.binary_cross_entropy of numbers 0.25 and 1: {loss:.4f}, is {-np.log(0.25):.4f}")


def in_place(name: str, value: float) -> None:
    tensor = mint.mul(Tensor(np.arange(3, dtype=np.float32)), 1.0)
    result = getattr(tensor, name)(value)
    print(f"Tensor.{name}({value}) of [0, 1, 2] returns {result.asnumpy()}, and leaves {tensor.asnumpy()}")


if __name__ == "__main__":
    main()
