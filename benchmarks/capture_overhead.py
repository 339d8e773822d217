"""What recording costs: the time of a training step with and without, in one run, as a Markdown table.

    python benchmarks/capture_overhead.py [--steps N] [--msprobe PYTHON]

Steps of a GPT (d = 256, 4 layers, T = 128, B = 4) and of a tiny one (d = 32, 2 layers, T = 16, B = 2), forward,
backward and AdamW on one thread of the CPU; plain and recorded steps take turns, and the least of each counts. CPU is
that of all threads, the writer's with it; a recorded step lasts from start() to the end of step(), by which it is on
the disk. A call is one forward entry. --msprobe names an interpreter with mindstudio-probe, whose PrecisionDebugger
then records the same steps.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
import torch.nn.functional as F
from torch import nn

WAYS = ("statistics", "without stacks", "structure", "md5", "tensor", "installed, not started")
OPTIONS: dict[str, dict[str, Any]] = {
    "without stacks": {"extra_info": False},
    "structure": {"task": "structure"},
    "md5": {"summary_mode": "md5"},
    "tensor": {"task": "tensor"},
}


class Block(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj, self.up, self.down = (nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d),
                                                   nn.Linear(4 * d, d))  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        parts = self.qkv(self.first(x)).split(d, dim=-1)
        query, key, value = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, d))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, words: int, d: int, heads: int, layers: int, t: int) -> None:
        super().__init__()
        self.tokens, self.places, self.last = nn.Embedding(words, d), nn.Embedding(t, d), nn.LayerNorm(d)
        self.blocks, self.head = nn.ModuleList(Block(d, heads) for _ in range(layers)), nn.Linear(d, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


SIZES = {"tiny GPT": (64, 32, 4, 2, 16, 2), "GPT": (512, 256, 8, 4, 128, 4)}


def training(size: str) -> Callable[[], None]:
    """One training step of the model of that size."""
    words, d, heads, layers, t, batch = SIZES[size]
    torch.manual_seed(0)
    model = GPT(words, d, heads, layers, t)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, words, (batch, t))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    return step


@dataclass(frozen=True, slots=True)
class Cost:
    """Least seconds of a plain step and of a recorded one; calls is the number of forward entries of a step."""

    wall: tuple[float, float]
    cpu: tuple[float, float]
    calls: int

    def row(self, size: str, way: str) -> str:
        plain, recorded = self.wall
        each = f"{1e6 * (recorded - plain) / self.calls:.1f}" if self.calls else ""
        cells = (size, way, f"{1e3 * plain:.2f}", f"{1e3 * recorded:.2f}", f"{recorded / plain:.2f}x",
                 f"{self.cpu[1] / self.cpu[0]:.2f}x", f"{self.calls:,}", each)  # fmt: skip
        return f"| {' | '.join(cells)} |"


def measured(step: Callable[[], None], recorded: Callable[[], None], steps: int) -> tuple[list[float], list[float]]:
    """Least wall and CPU seconds of a plain and of a recorded step."""
    wall, cpu = [[], []], [[], []]  # type: list[list[float]], list[list[float]]
    for _ in range(steps):
        for index, one in enumerate((step, recorded)):
            began, spent = time.perf_counter(), time.process_time()
            one()
            wall[index].append(time.perf_counter() - began)
            cpu[index].append(time.process_time() - spent)
    return [min(times) for times in wall], [min(times) for times in cpu]


def cost(size: str, steps: int, debugger: Any, folder: Path) -> Cost:
    """The cost of a debugger, ours or msprobe's; None: nothing is done around the step."""
    step = training(size)
    for _ in range(3):
        step()

    def recorded() -> None:
        if debugger is not None:
            debugger.start()
        step()
        if debugger is not None:
            debugger.stop()
            debugger.step()

    wall, cpu = measured(step, recorded, steps)
    return Cost((wall[0], wall[1]), (cpu[0], cpu[1]), _calls(folder))


def _calls(folder: Path) -> int:
    path = next(folder.glob("step0/*/dump.json"), None)
    return 0 if path is None else sum(name.endswith(".forward") for name in json.loads(path.read_text())["data"])


def ours(steps: int) -> Iterator[str]:
    from pytest_probe import PrecisionDebugger

    for size in SIZES:
        for way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                debugger = PrecisionDebugger(dump_path=folder, **OPTIONS.get(way, {}))
                few = max(3, steps // 5) if way == "tensor" else steps
                yield cost(size, few, None if way in WAYS[5:] else debugger, Path(folder)).row(size, way)


def msprobes(steps: int) -> Iterator[str]:
    """In msprobe's own process: its statistics, with its own choice of APIs."""
    from importlib.metadata import version

    from msprobe.pytorch import PrecisionDebugger

    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config.json"
            told = {"task": "statistics", "dump_path": folder, "rank": [], "step": [], "level": "L1",
                    "statistics": {"scope": [], "list": [], "data_mode": ["all"]}}  # fmt: skip
            path.write_text(json.dumps(told))
            way = f"msprobe {version('mindstudio-probe')} statistics"
            with suppress(AttributeError):
                PrecisionDebugger._instance = None
            yield cost(size, max(3, steps // 3), PrecisionDebugger(config_path=str(path)), Path(folder)).row(size, way)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=20, help="steps of each kind (default: 20)")
    parser.add_argument("--msprobe", metavar="PYTHON", help="an interpreter that has mindstudio-probe")
    parser.add_argument("--inside-msprobe", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if not given.inside_msprobe:
        print("| model | way | plain ms | recorded ms | time | CPU | calls | us a call |")
        print("|---|---|---|---|---|---|---|---|")
    for row in msprobes(given.steps) if given.inside_msprobe else ours(given.steps):
        print(row, flush=True)
    if given.msprobe:
        told = [given.msprobe, __file__, "--inside-msprobe", "--steps", str(given.steps)]
        found = subprocess.run(told, capture_output=True, text=True, check=True)
        print("\n".join(line for line in found.stdout.splitlines() if line.startswith("| ")))


if __name__ == "__main__":
    main()
