"""One layer with its weights divided among ranks, for comparisons with the same layer on one:
`python tensor_parallel.py FOLDER RANK WORLD STORE [flip]`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from pytest_probe import capture

WIDTH, INNER = 8, 12


def weights() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return (
        torch.randn(INNER, WIDTH, generator=generator) / 3,
        torch.randn(WIDTH, INNER, generator=generator) / 3,
        torch.ones(WIDTH),
    )


def layer(rank: int, world: int, flip: bool) -> None:
    up, down, scale = weights()
    up, down = up.chunk(world, 0)[rank].clone(), down.chunk(world, 1)[rank].clone()
    if flip and rank == world - 1:
        scale.view(torch.int32)[2] ^= 1 << 22
    x = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        inner = F.gelu(F.linear(F.layer_norm(x, [WIDTH], scale), up))
        out = F.linear(inner, down)
        if world > 1:
            dist.all_reduce(out)
        F.softmax(out, -1)


def main() -> None:
    folder, rank, world, store = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    with capture(folder, task="tensor"):
        layer(rank, world, sys.argv[-1] == "flip")
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
