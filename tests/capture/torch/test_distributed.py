from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from pytest_probe import PrecisionDebugger
from tests.support import forks

ROOT = Path(__file__).parents[3]
pytestmark = [
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo"),
    pytest.mark.slow,
]


def train(rank: int, folder: Path) -> None:
    """One rank: two steps bare, two recorded, and each collective once."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    losses = {"bare": steps(rank, None), "recorded": steps(rank, folder)}
    (folder / f"losses{rank}.json").write_text(json.dumps(losses))
    debugger = PrecisionDebugger(dump_path=folder / "all")
    kept = {name: getattr(dist, name) for name in ("all_reduce", "isend", "P2POp")}
    early = dist.P2POp(dist.irecv, torch.zeros(1), 1 - rank)
    debugger.start()
    collectives(rank, early)
    debugger.close()
    debugger = PrecisionDebugger(dump_path=folder / "async", task="tensor")
    debugger.start()
    handed = handles(rank)
    debugger.close()
    for work in handed:
        work.wait()
    assert {name: getattr(dist, name) for name in kept} == kept
    assert dist.isend is kept["isend"]
    dist.destroy_process_group()


def steps(rank: int, folder: Path | None) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    debugger = folder and PrecisionDebugger(dump_path=folder / "dump", level="mix", model=model)
    losses = []
    for number in range(2):
        if debugger:
            debugger.start()
        optimizer.zero_grad()
        loss = wrapped(torch.linspace(-1, 1, 12).view(3, 4) + rank + number).square().mean()
        loss.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.SUM)
        optimizer.step()
        losses += [loss.item(), mean.item()]
        if debugger:
            debugger.stop()
            debugger.step()
    return losses


def waited(work: dist.Work | None) -> None:
    assert work is not None
    work.wait()


def collectives(rank: int, early: dist.P2POp) -> None:
    """Every collective that gloo has; what they give is asserted."""
    one, group = torch.full((2,), rank + 1.0), dist.group.WORLD
    gathered = [torch.zeros(2) for _ in range(2)]
    dist.all_gather(gathered, one, group=group)
    assert torch.stack(gathered).tolist() == [[1, 1], [2, 2]]
    dist.all_gather_into_tensor(torch.zeros(4), one)
    part = torch.zeros(1)
    dist.reduce_scatter_tensor(part, one)
    assert part.item() == 3
    dist.reduce_scatter(torch.zeros(2), [one.clone(), one.clone()])
    sent = one.clone()
    dist.broadcast(sent, 0)
    assert sent.tolist() == [1, 1]
    dist.reduce(one.clone(), 0)
    dist.all_to_all_single(torch.zeros(2), one)
    dist.all_to_all([torch.zeros(1), torch.zeros(1)], list(one.split(1)))
    dist.gather(one, gathered if rank == 0 else None, dst=0)
    dist.scatter(torch.zeros(2), gathered if rank == 0 else None, src=0)
    if rank == 0:
        dist.send(one, 1)
        waited(dist.isend(one, 1))
    else:
        assert dist.recv(torch.zeros(2), 0) == 0
        got = torch.zeros(2)
        waited(dist.irecv(got, 0))
        assert got.tolist() == [1, 1]
    send = dist.P2POp(dist.isend, torch.ones(1), 1 - rank)
    assert (send.op == dist.isend, early.op == dist.irecv) == (True, True)
    for work in dist.batch_isend_irecv([send, early] if rank else [early, send]):
        work.wait()
    assert early.tensor.item() == 1
    later = one.clone()
    work = dist.all_reduce(later, async_op=True)
    work.wait()
    # After the wait: the memory was seen before, and torch counted no write to it.
    assert (later + 0).tolist() == [3, 3]
    dist.barrier()


def handles(rank: int) -> list[dist.Work]:
    """Calls whose results come later, and calls that torch makes itself."""
    kept = []
    for number in range(4):
        sent = torch.full((2,), rank + 1.0)
        work = dist.all_reduce(sent, async_op=True)
        assert work is not None
        if number == 0:
            work.wait()
        elif number == 1:
            while not work.is_completed():
                pass
        elif number == 2:
            kept.append(work)
        del work
    # By its own name, functional, and in a group of one.
    gathered = functional.all_gather_tensor(torch.full((1,), rank + 1.0), 0, dist.distributed_c10d._get_default_group())
    assert (gathered + 0).tolist() == [1, 2]
    operations = [dist.P2POp(dist.isend, torch.full((1,), 1.0 + rank), 1 - rank)]
    operations.append(dist.P2POp(dist.irecv, torch.zeros(1), 1 - rank))
    for one in dist.batch_isend_irecv(operations):
        one.wait()
    distributed_c10d.broadcast(torch.full((1,), 5.0 + rank), 1)
    return kept


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    program = f"from pathlib import Path; from {__name__} import train; train({{}}, Path({str(folder)!r}))"
    forks.in_ranks(2, lambda rank: ("-c", program.format(rank)), ROOT)
    return folder


def content(folder: Path, name: str, rank: int, step: int = 0) -> Any:
    return json.loads((folder / name / f"step{step}" / f"rank{rank}" / "dump.json").read_text())["data"]


@pytest.mark.parametrize("rank", [0, 1])
def test_recording_changes_no_loss(folder: Path, rank: int) -> None:
    losses = json.loads((folder / f"losses{rank}.json").read_text())
    assert losses["recorded"] == losses["bare"]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("step", [0, 1])
def test_each_rank_has_a_whole_dump(folder: Path, rank: int, step: int) -> None:
    found = content(folder, "dump", rank, step)
    assert {
        "Functional.linear.1.forward",
        "Functional.linear.1.backward",
        "Module.2.Linear.forward.0",
        "Module.2.Linear.backward.0",
        "Module.2.Linear.parameters_grad.0",
        "Distributed.all_reduce.0.forward",
        "Distributed.all_reduce.1.forward",
    } <= set(found)
    losses = json.loads((folder / f"losses{rank}.json").read_text())["recorded"]
    reduced = found["Distributed.all_reduce.1.forward"]
    assert reduced["input_args"][0]["Max"] == losses[2 * step]
    assert reduced["output"][0]["Max"] == losses[2 * step + 1]
    assert reduced["input_kwargs"]["op"] == {"type": "torch.distributed.ReduceOp", "value": "RedOpType.SUM"}


def test_every_collective_is_recorded_once(folder: Path) -> None:
    names = {rank: [name for name in content(folder, "all", rank) if name[:11] == "Distributed"] for rank in (0, 1)}
    both = (
        "all_gather all_gather_into_tensor reduce_scatter_tensor reduce_scatter broadcast reduce all_to_all_single "
        "all_to_all gather scatter"
    ).split()
    alone = {0: ["send", "isend"], 1: ["recv", "irecv"]}
    for rank in (0, 1):
        called = [*both, *alone[rank], "batch_isend_irecv", "all_reduce", "barrier"]
        assert names[rank] == [f"Distributed.{name}.0.forward" for name in called]


def test_what_ddp_reduces_is_recorded(folder: Path) -> None:
    reduced = [content(folder, "dump", rank)["Distributed.all_reduce.0.forward"] for rank in (0, 1)]
    assert [each["input_args"][0]["shape"] for each in reduced] == [[49], [49]]
    before = sum(each["input_args"][0]["Mean"] for each in reduced)
    assert [each["output"][0]["Mean"] for each in reduced] == pytest.approx([before, before], abs=1e-6)
    assert reduced[0]["probe"]["collective"] == {"ranks": [0, 1], "backend": "gloo", "rank": 0, "order": 0}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_handle_has_its_result_when_the_program_has_waited(folder: Path, rank: int) -> None:
    found = content(folder, "async", rank)
    calls = [found[f"Distributed.all_reduce.{number}.forward"] for number in range(4)]
    assert [each["input_args"][0]["Max"] for each in calls] == [rank + 1.0] * 4
    assert [each["output"][0] and each["output"][0]["Max"] for each in calls] == [3, 3, None, None]
    known = [each["probe"]["collective"] for each in calls]
    assert [each["waited"] for each in known] == [True, True, None, False]
    assert all(each["asynchronous"] for each in known)


@pytest.mark.parametrize("rank", [0, 1])
def test_calls_that_no_wrapper_sees_are_recorded(folder: Path, rank: int) -> None:
    found = content(folder, "async", rank)
    gathered = found["Distributed.all_gather_into_tensor.0.forward"]
    assert [gathered["input_args"][1]["Max"], gathered["output"][0]["Max"]] == [rank + 1, 2]
    batch = found["Distributed.batch_isend_irecv.0.forward"]
    assert [each["tensor"]["Max"] for each in batch["output"]] == [rank + 1, 2 - rank]
    cast = found["Distributed.broadcast.0.forward"]
    assert [cast["input_args"][0]["Max"], cast["output"][0]["Max"]] == [5 + rank, 6]
    assert cast["input_kwargs"]["src"]["value"] == 1


def test_what_collectives_are_given_and_give(folder: Path) -> None:
    found = content(folder, "all", 1)
    gathered = found["Distributed.all_gather.0.forward"]
    assert [one["Max"] for one in gathered["output"]] == [1, 2]
    assert gathered["input_kwargs"]["group"] == {
        "type": "torch.ProcessGroup",
        "group_ranks": [0, 1],
        "group_id": "77849d8c",
    }
    assert found["Distributed.recv.0.forward"]["output"][0]["Max"] == 1
    operation = found["Distributed.batch_isend_irecv.0.forward"]["input_args"][0][0]
    assert {key: operation[key] for key in ("class_type", "op", "peer", "tag", "group_id")} == {
        "class_type": "torch.distributed.P2POp",
        "op": "isend",
        "peer": 0,
        "tag": 0,
        "group_id": "77849d8c",
    }
    assert operation["tensor"]["shape"] == [1]
    assert found["Tensor.__add__.0.forward"]["input_args"][0]["Max"] == 3


def test_the_plugin_skips_collectives_and_says_why(folder: Path, pytester: pytest.Pytester) -> None:
    dump = folder / "all" / "step0" / "rank1" / "dump.json"
    result = pytester.runpytest_inprocess(f"--probe-dump={dump}", "-k", "Distributed", "-rs")
    result.assert_outcomes(skipped=15)
    result.stdout.fnmatch_lines(["*communication between ranks cannot be replayed alone*"])
