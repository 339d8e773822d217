"""Programs that train models on several ranks, one after another, recorded with tensors:
`python programs.py FOLDER RANK KIND,DTYPE,RANKS ...`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
from tests.support.two_sides import Gpt

ROOT = Path(__file__).parents[3]
WORDS, LENGTH = 11, 8


def made(kind: str, ranks: int, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    model = Gpt(2, fused=False, sdpa=True).to(dtype)
    if kind == "tensor":
        mesh = init_device_mesh("cpu", (ranks,))
        columns = {name: ColwiseParallel() for name in ("q_proj", "k_proj", "v_proj", "up")}
        for block in model.blocks:
            parallelize_module(block, mesh, {**columns, "out": RowwiseParallel(), "down": RowwiseParallel()})
        return model
    if kind == "data":
        return DistributedDataParallel(model)
    for part in (*model.blocks, model):
        fully_shard(part)
    return model


def train(kind: str, ranks: int, folder: Path, dtype: str, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    model = made(kind, ranks, getattr(torch, dtype))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    debugger = PrecisionDebugger(dump_path=folder, task="tensor", level="mix", model=model)
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


def record(folder: Path, ranks: int, models: Sequence[str]) -> None:
    """Train two steps of each "KIND,DTYPE,RANKS": their dumps are in folders of these names."""
    for model in models:
        (folder / model).mkdir(parents=True)
    forks.in_ranks(ranks, lambda rank: (__file__, folder, rank, *models), ROOT)


if __name__ == "__main__":
    folder, rank, *models = sys.argv[1:]
    torch.set_num_threads(1)
    for model in models:
        kind, dtype, ranks = model.split(",")
        train(kind, int(ranks), Path(folder, model), dtype, int(rank))
