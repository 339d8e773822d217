"""What recording costs on a GPU: the time of a training step with and without, as a Markdown table.

    python benchmarks/gpu_capture_cost.py [--device cuda] [--small] [--steps 5] [--models NAME,...]

resnet18 (torchvision), 32 images of 224 x 224; a Llama (transformers) of 8 layers, 1,024 wide, on 4 x 1,024 tokens in
bfloat16; one of 16 layers, 2,048 wide, on 4 x 2,048. --small: sizes for a CPU. "gpt" needs no other package, and is
small always. Times are medians of wall time, from an idle device to an idle device; a recorded step lasts until it is
on the disk. The losses of all ways must have equal bits, where those of two plain runs do. Last, how fast one tensor is
counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch

import pytest_probe
from tests.support.models import gpt

Step = Callable[[], torch.Tensor]
WAYS: dict[str, dict[str, Any] | None] = {"plain": None, "structure": {"task": "structure"}, "statistics": {}}


def resnet18(small: bool) -> Step:
    import torchvision

    model = torchvision.models.resnet18(weights=None, num_classes=100)
    x, y = torch.randn(2 if small else 32, 3, *(2 * [32 if small else 224])), torch.arange(2 if small else 32)
    return trained(model, torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9), lambda: loss_of(model(x), y))


def loss_of(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(found, wanted)


def llama(small: bool, layers: int = 8, width: int = 1024, tokens: int = 1024) -> Step:
    import transformers

    layers, width, tokens = (2, 64, 16) if small else (layers, width, tokens)
    config = transformers.LlamaConfig(
        vocab_size=32000 if not small else 100,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=16,
        intermediate_size=width * 11 // 4,
    )
    model = transformers.LlamaForCausalLM(config).bfloat16()
    ids = torch.randint(0, config.vocab_size, (4, tokens))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    return trained(model, optimizer, lambda: model(input_ids=ids, labels=ids).loss)


def trained(model: torch.nn.Module, optimizer: torch.optim.Optimizer, loss: Step) -> Step:
    def step() -> torch.Tensor:
        optimizer.zero_grad()
        found = loss()
        found.backward()
        optimizer.step()
        return found.detach()

    return step


MODELS: dict[str, Callable[[bool], Step]] = {
    "gpt": lambda small: gpt(),
    "resnet18": resnet18,
    "llama": llama,
    "llama-1b": lambda small: llama(small, 16, 2048, 2048),
}


def idle(device: str) -> None:
    if device != "cpu":
        torch.accelerator.synchronize()


def timed(device: str, model: str, small: bool, way: dict[str, Any] | None, steps: int) -> tuple[float, list[float]]:
    """Milliseconds of a step, and the losses; the first two steps count for the losses alone."""
    times, losses = [], []
    torch.manual_seed(0)
    with torch.device(device):
        step = MODELS[model](small)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(steps + 2):
            idle(device)
            began = time.perf_counter()
            with nullcontext() if way is None else pytest_probe.capture(f"{folder}/{number}", **way):
                losses.append(step())
            idle(device)
            times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times[2:]), [loss.item() for loss in losses]


def counting_speed(device: str, size: int) -> float:
    """Gigabytes a second at which a tensor in float32 is counted: ten additions to it, less what they take alone."""
    spent = []
    with tempfile.TemporaryDirectory() as folder, torch.device(device), torch.no_grad():
        x = torch.ones(size)
        for number in range(6):
            with nullcontext() if number % 2 else pytest_probe.capture(f"{folder}/{number}"):
                x.add_(1.0)
                idle(device)
                began = time.perf_counter()
                for _ in range(10):
                    x.add_(1.0)
                idle(device)
                spent.append(time.perf_counter() - began)
    return 10 * x.nbytes / (min(spent[::2]) - min(spent[1::2])) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--models", default="gpt,resnet18,llama,llama-1b")
    given = parser.parse_args()
    print("| model | way | ms a step | times plain |\n|---|---|---|---|")
    for model in given.models.split(","):
        found = {way: timed(given.device, model, given.small, how, given.steps) for way, how in WAYS.items()}
        plain, losses = found["plain"]
        repeats = timed(given.device, model, given.small, None, given.steps)[1] == losses
        for way, (spent, own) in found.items():
            assert own == losses or not repeats, (model, way, own, losses)
            print(
                f"| {model}{'' if repeats else ', whose losses vary'} | {way} | {spent:.1f} | {spent / plain:.2f} |",
                flush=True,
            )
    size = 1 << 20 if given.small else 1 << 28
    print(f"\nA tensor of {4 * size >> 20} MiB is counted at {counting_speed(given.device, size):.0f} GB/s.")


if __name__ == "__main__":
    main()
