from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("paddle")

PROGRAM = """
import paddle
import paddle.distributed as dist
import pytest_probe

dist.init_parallel_env()
tensor = paddle.full([2], dist.get_rank() + 1.0)
with pytest_probe.capture("dumps", framework="paddle"):
    paddle.sign(tensor)
    dist.all_reduce(tensor, group=dist.get_group())
    paddle.sign(tensor)
assert tensor.tolist() == [3.0, 3.0]
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_collectives_of_two_ranks(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(3)]
    common = {"PADDLE_TRAINERS_NUM": "2", "PADDLE_MASTER": f"127.0.0.1:{ports[2]}", "PADDLE_DISTRI_BACKEND": "gloo"}
    common |= {"PADDLE_TRAINER_ENDPOINTS": ",".join(f"127.0.0.1:{port}" for port in ports[:2])}
    processes = []
    for rank in (0, 1):
        own = {"PADDLE_TRAINER_ID": str(rank), "PADDLE_CURRENT_ENDPOINT": f"127.0.0.1:{ports[rank]}"}
        command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
        processes.append(subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **common, **own}))
    try:
        assert [process.wait(120) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    for rank in (0, 1):
        entries = json.loads((tmp_path / f"dumps/step0/rank{rank}/dump.json").read_text())["data"]
        assert list(entries) == ["paddle.sign.0.forward", "Distributed.all_reduce.0.forward", "paddle.sign.1.forward"]
        arguments = entries["Distributed.all_reduce.0.forward"]
        assert arguments["input_args"][0]["Max"] == rank + 1.0
        assert arguments["input_kwargs"]["group"] == {"type": "paddle.ProcessGroup", "group_ranks": [0, 1]}
        # It writes, and Paddle does not count that.
        assert entries["paddle.sign.1.forward"]["input_args"][0]["Max"] == 3.0
