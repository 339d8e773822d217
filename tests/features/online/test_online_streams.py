"""A program that sends over a stream, and the run that judges what comes."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="needs the extra online")

from pytest_probe.capture.online.address import HostPort
from pytest_probe.capture.online.message import Entry, Goodbye
from pytest_probe.capture.online.stream import Stream
from tests.features.online.conftest import Ends, said
from tests.features.online.streams import LOCAL, SENDER
from tests.features.online.test_online import by_case, losses

pytestmark = pytest.mark.slow


def test_the_configurations_of_msprobe_and_verdicts_are_those_of_a_dump(ends: Ends, port: int, tls: Path) -> None:
    shared = {"host": LOCAL, "port": port, "tls_path": str(tls)}
    training = {"task": "tensor", "online_run_ut": True, "tensor": {}, **shared}
    (ends.folder / "training.json").write_text(json.dumps(training))
    checking = {"is_online": True, "rank_list": [0], "black_list": ["gelu"], **shared}
    (ends.folder / "checking.json").write_text(json.dumps({"task": "run_ut", "run_ut": checking}))
    said(ends.program("dump_path=dump"))
    said(ends.checker("offline", "--probe-dump=dump", "--probe-device=recorded", "--probe-skip-api=*gelu*"))
    program = (ends.folder / "train.py").read_text()
    (ends.folder / "train.py").write_text(program.replace('task="tensor", **options', '"training.json"'))
    checker = ends.checker("online", "--probe-listen=checking.json")
    said(ends.program())
    text = said(checker)
    assert checker.returncode == 0, text
    assert by_case(ends.results("online")) == by_case(ends.results("offline"))
    assert len(ends.results("online")) == 45
    assert "rank 0: 3 steps, 0 to 2" in text


def test_two_ranks_at_once(ends: Ends, port: int) -> None:
    program = (ends.folder / "train.py").read_text()
    joined = 'import torch.distributed\ntorch.distributed.init_process_group("gloo")\nmain()\n'
    assert program.endswith("main()\n")
    (ends.folder / "train.py").write_text(program.removesuffix("main()\n") + joined)
    with socket.create_server((LOCAL, 0)) as free:
        meeting = str(free.getsockname()[1])
    checker = ends.checker("online", f"--probe-listen={LOCAL}:{port}")
    programs = [
        ends.program(
            f"online={LOCAL}:{port}",
            RANK=str(rank),
            WORLD_SIZE="2",
            MASTER_ADDR=LOCAL,
            MASTER_PORT=meeting,
        )
        for rank in range(2)
    ]
    for each in programs:
        said(each)
    text = said(checker)
    assert checker.returncode == 0, text
    labels = {line["id"].partition("::")[0] for line in ends.results("online")}
    assert labels == {f"rank{rank}/step{step}" for rank in range(2) for step in range(3)}
    assert len(ends.results("online")) == 2 * 51
    assert "rank 1: 3 steps, 0 to 2" in text
    names = sorted(path.name.partition("_2")[0] + path.name[-9:] for path in (ends.folder / "online").glob("acc*.csv"))
    assert names == [f"accuracy_checking_{kind}rank{rank}.csv" for kind in ("details", "result") for rank in range(2)]


def test_what_a_program_sends_leads_nowhere(ends: Ends, port: int) -> None:
    """A name that is no API, one of another module, a value that is a path, and names of files that are elsewhere."""
    (ends.folder / "conftest.py").write_text("SECRET = 1\n")
    secret = ends.folder / "secret.pt"
    secret.write_bytes(b"secret")
    text = {"type": "str", "value": "touch found"}
    places = [str(secret), "../../secret.pt", "../" * 20 + "etc/passwd", "conftest.py", "dump.json"]
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "Max": 1, "Min": 0, "Mean": 0, "Norm": 1}
    bodies: list[tuple[str, object]] = [("os.system", text), ("Torch.load", text), ("Tensor.__reduce__", text)]
    bodies += [("Torch.abs", {**tensor, "data_name": place, "data_key": "x"}) for place in places]
    checker = ends.checker("online", f"--probe-listen={LOCAL}:{port}", "-rs")
    program = Stream(HostPort(LOCAL, port), SENDER, limit=1 << 20, waits=True, keys=None)
    header = {"task": "tensor", "level": "L1", "framework": "pytorch"}
    for number, (api, value) in enumerate(bodies):
        body = json.dumps({"input_args": [value], "input_kwargs": {}, "output": [tensor]})
        assert program.put(Entry(SENDER, 0, number, f"{api}.{number}.forward", body, header), {})
    program.close(Goodbye(SENDER, len(bodies), 0))
    said_by_checker = said(checker)
    found = ends.results("online")
    assert len(found) == len(bodies), said_by_checker
    assert {line["verdict"] for line in found} == {"skip"}
    assert not (ends.folder / "found").exists()
    assert "secret" not in "".join(line["reason"] for line in found).replace("secret.pt", "")


def test_what_a_policy_leaves_out_is_counted_at_both_ends(ends: Ends, port: int) -> None:
    (ends.folder / "conftest.py").write_text(
        "import time\nfrom pytest_probe.features.online import receiver\nreceiver._SMALLEST_BYTES = 1\n\n"
        "def pytest_runtest_call():\n    time.sleep(0.05)\n"
    )
    checker = ends.checker("online", f"--probe-listen={LOCAL}:{port},limit=3kB")
    text = said(ends.program(f"online={LOCAL}:{port}", "online_policy=sample", "online_buffer=9000"))
    assert len(losses(text)) == 3
    summary = said(checker)
    assert checker.returncode == 0, summary
    left_out = re.search(r"(\d+) entries were left out", text)
    assert left_out is not None
    judged = len(ends.results("online"))
    assert 0 < judged < 51
    # A call that is left out has no backward either.
    assert judged + int(left_out[1]) <= 51
    assert f"{left_out[1]} calls and backwards were left out by the programs" in summary


def test_a_program_whose_loader_forks(ends: Ends, port: int) -> None:
    """It is one of two ranks, and the other one is not asked for: nobody waits for that."""
    program = (ends.folder / "train.py").read_text().replace('task="tensor"', 'task="tensor", rank=[0]')
    loads = "x = next(iter(torch.utils.data.DataLoader(torch.randn(5, 8), 5, num_workers=2))).bfloat16()"
    (ends.folder / "train.py").write_text(program.replace("x = torch.randn(5, 8, dtype=torch.bfloat16)", loads))
    checker = ends.checker("online", f"--probe-listen={LOCAL}:{port}")
    for rank in range(2):
        text = said(ends.program(f"online={LOCAL}:{port}", RANK=str(rank), WORLD_SIZE="2"))
        assert len(losses(text)) == 3
        assert "left out" not in text, text + said(checker)
    text = said(checker)
    assert checker.returncode == 0, text
    assert "rank 0: 3 steps, 0 to 2" in text
    assert {line["id"].partition("/")[0] for line in ends.results("online")} == {"rank0"}
    assert len(ends.results("online")) >= 51
