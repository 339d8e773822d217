"""Programs that train on several ranks, recorded with tensors: `python programs.py KIND RANKS FOLDER DTYPE RANK`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from pytest_probe import PrecisionDebugger
from tests.support import forks

ROOT = Path(__file__).parents[3]
WIDTH, HEADS, WORDS, LENGTH = 32, 4, 64, 8


class Block(nn.Module):
    def __init__(self, parts: int) -> None:
        super().__init__()
        self.heads = HEADS // parts
        self.norm, self.other = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        q, k, v = (
            part(y).view(*x.shape[:2], self.heads, WIDTH // HEADS).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.other(x))))


class GPT(nn.Module):
    def __init__(self, parts: int = 1) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block(parts) for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def made(kind: str, ranks: int, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    if kind == "tensor":
        model = GPT(ranks).to(dtype)
        mesh = init_device_mesh("cpu", (ranks,))
        columns = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
        for block in model.blocks:
            parallelize_module(block, mesh, {**columns, "out": RowwiseParallel(), "down": RowwiseParallel()})
        return model
    model = GPT().to(dtype)
    if kind == "data":
        return DistributedDataParallel(model)
    for part in (*model.blocks, model):
        fully_shard(part)
    return model


def train(kind: str, ranks: int, folder: Path, dtype: str, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    model = made(kind, ranks, getattr(torch, dtype))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    debugger = PrecisionDebugger(dump_path=folder / "dump", task="tensor", level="mix", model=model)
    generator = torch.Generator().manual_seed(0 if kind == "tensor" else rank)
    for _ in range(2):
        words = torch.randint(WORDS, (2, LENGTH + 1), generator=generator)
        debugger.start()
        logits = model(words[:, :-1])
        functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        debugger.stop()
        debugger.step()
    debugger.close()
    dist.destroy_process_group()


def record(kind: str, ranks: int, folder: Path, dtype: str = "float32") -> Path:
    """Train two steps; the folder of the dumps."""
    folder.mkdir(parents=True, exist_ok=True)
    forks.in_ranks(ranks, lambda rank: (__file__, kind, ranks, folder, dtype, rank), ROOT)
    return folder / "dump"


if __name__ == "__main__":
    kind, ranks, folder, dtype, rank = sys.argv[1:]
    train(kind, int(ranks), Path(folder), dtype, int(rank))
