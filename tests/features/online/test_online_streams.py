"""A program that sends over a stream, and the run that judges what comes."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="needs the extra online")

from pytest_probe.capture.online.address import HostPort
from pytest_probe.capture.online.message import Entry, Goodbye
from pytest_probe.capture.online.stream import Stream
from tests.features.online.conftest import LIMIT, Ends, said
from tests.features.online.streams import LOCAL, SENDER, CuttingProxy, cuts, make_certificates
from tests.features.online.test_online import QUICK, SLOW, by_case, losses
from tests.support.pages import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    return make_certificates(tmp_path_factory.mktemp("tls") / "keys")


# A GPT of 32 channels and one layer.
GPT = """
import importlib, sys
sys.path.insert(0, BENCHMARKS)
import torch
from pytest_probe import PrecisionDebugger

torch.manual_seed(0)
torch.set_num_threads(1)
step = importlib.import_module("overhead.pytorch").training(64, 32, 4, 1, 16, 2)
debugger = PrecisionDebugger(task="tensor", **dict(word.split("=", 1) for word in sys.argv[1:]))
for _ in range(3):
    debugger.start()
    step()
    debugger.stop()
    debugger.step()
"""


def test_verdicts_are_those_of_a_dump(ends: Ends, port: int, tls: Path) -> None:
    (ends.folder / "train.py").write_text(GPT.replace("BENCHMARKS", repr(str(ROOT / "benchmarks"))))
    said(ends.program("dump_path=dump"))
    assert "675 passed" in said(ends.checker("offline", "--probe-dump=dump", "--probe-device=recorded"))
    checker = ends.checker("online", f"--probe-listen=localhost:{port},tls={tls}")
    said(ends.program(f"online=localhost:{port}", f"tls_path={tls}"))
    text = said(checker)
    assert checker.returncode == 0, text
    assert by_case(ends.results("online")) == by_case(ends.results("offline"))
    assert "rank 0: 3 steps, 0 to 2" in text


def test_cuts_lose_and_repeat_nothing(ends: Ends, port: int) -> None:
    ends.forks = False
    proxy = CuttingProxy(port, cuts(1, 20, 20_000))
    checker = ends.checker("online", f"--probe-listen={LOCAL}:{port}")
    text = said(ends.program(f"online={LOCAL}:{proxy.port}", "fault=gelu"))
    assert "sent " in text
    said(checker)
    proxy.close()
    assert proxy.cut == 20
    found = ends.results("online")
    assert len(by_case(found)) == len(found) == 51
    wrong = {line["id"].partition("::")[2] for line in found if line["verdict"] == "error"}
    assert wrong == {"Functional.gelu.0.forward"}


def test_two_ranks_at_once(ends: Ends, port: int) -> None:
    """Two processes of gloo's, which train together."""
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


def test_one_rank_of_two_that_is_asked_for(ends: Ends, port: int) -> None:
    program = (ends.folder / "train.py").read_text()
    (ends.folder / "train.py").write_text(program.replace('task="tensor"', 'task="tensor", rank=[0]'))
    checker = ends.checker("online", f"--probe-listen={LOCAL}:{port}")
    for rank in range(2):
        said(ends.program(f"online={LOCAL}:{port}", RANK=str(rank), WORLD_SIZE="2"))
    text = said(checker)
    assert {line["id"].partition("/")[0] for line in ends.results("online")} == {"rank0"}
    assert checker.returncode == 0, text


def test_a_rank_that_is_killed_ends_alone(ends: Ends, port: int) -> None:
    ends.forks = False
    program = (ends.folder / "train.py").read_text()
    dies = program.replace("        debugger.step()\n", "        debugger.step()\n        if step == 1: die()\n")
    assert dies != program
    dying = "import os, signal, time\ndef die():\n    time.sleep(2)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    (ends.folder / "train.py").write_text(dying + dies)
    (ends.folder / "conftest.py").write_text(QUICK)
    checker = ends.checker("online", f"--probe-listen={LOCAL}:{port}")
    program_that_dies = ends.program(f"online={LOCAL}:{port}")
    program_that_dies.wait(LIMIT)
    assert program_that_dies.returncode == -signal.SIGKILL
    text = said(checker)
    count = len(ends.results("online"))
    assert f"rank 0 went without a goodbye: {count} of the {count} entries that it sent were judged" in text
    assert checker.returncode == 1
    assert 17 < count <= 2 * 17


def test_a_checker_that_is_killed_loses_and_repeats_nothing(ends: Ends, port: int) -> None:
    """The next one at the same port goes on with what it had."""
    ends.forks = False
    (ends.folder / "conftest.py").write_text(SLOW)
    first = ends.checker("first", f"--probe-listen={LOCAL}:{port}")
    program = ends.program(f"online={LOCAL}:{port}")
    end = time.monotonic() + LIMIT
    while len(ends.results("first")) < 6 and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.05)  # a kill between a result and the note of it judges a call twice
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = ends.checker("second", f"--probe-listen={LOCAL}:{port}")
    said(program)
    summary = said(second)
    assert second.returncode == 0, summary
    found = ends.results("first") + ends.results("second")
    assert len(by_case(found)) == len(found) == 51
    assert 6 <= len(ends.results("first")) < 51
    assert not list(ends.folder.glob("probe-listen-*"))


def test_an_interrupt_lists_what_came(ends: Ends, port: int) -> None:
    (ends.folder / "conftest.py").write_text("import time\n\ndef pytest_runtest_call():\n    time.sleep(0.3)\n")
    checker = ends.checker("online", f"--probe-listen={LOCAL}:{port}")
    program = ends.program(f"online={LOCAL}:{port}")
    end = time.monotonic() + LIMIT
    while len(ends.results("online")) < 3 and time.monotonic() < end:
        time.sleep(0.05)
    checker.send_signal(signal.SIGINT)
    text = said(checker)
    program.send_signal(signal.SIGKILL)  # it would wait for the next checker
    program.wait()
    assert checker.returncode == 2, text
    assert "not run, though it came: " in text
    assert 3 <= len(ends.results("online")) < 51


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


@pytest.mark.parametrize("policy", ["drop", "sample", "block"])
def test_policies(ends: Ends, port: int, policy: str) -> None:
    """The checking host takes little at once, and is slow: what is left out is counted at both ends."""
    (ends.folder / "conftest.py").write_text(
        "import time\nfrom pytest_probe.features.online import receiver\nreceiver._SMALLEST_BYTES = 1\n\n"
        "def pytest_runtest_call():\n    time.sleep(0.05)\n"
    )
    checker = ends.checker("online", f"--probe-listen={LOCAL}:{port},limit=3kB")
    text = said(ends.program(f"online={LOCAL}:{port}", f"online_policy={policy}", "online_buffer=9000"))
    assert len(losses(text)) == 3
    summary = said(checker)
    assert checker.returncode == 0, summary
    left_out = re.search(r"(\d+) entries were left out", text)
    judged = len(ends.results("online"))
    if policy == "block":
        assert (judged, left_out) == (51, None)
        return
    assert left_out is not None
    assert 0 < judged < 51
    # A call that is left out has no backward either.
    assert judged + int(left_out[1]) <= 51
    assert f"{left_out[1]} calls and backwards were left out by the programs" in summary


def test_a_program_whose_loader_forks(ends: Ends, port: int) -> None:
    program = (ends.folder / "train.py").read_text()
    loads = "x = next(iter(torch.utils.data.DataLoader(torch.randn(5, 8), 5, num_workers=2))).bfloat16()"
    (ends.folder / "train.py").write_text(program.replace("x = torch.randn(5, 8, dtype=torch.bfloat16)", loads))
    checker = ends.checker("online", f"--probe-listen={LOCAL}:{port}")
    text = said(ends.program(f"online={LOCAL}:{port}"))
    assert len(losses(text)) == 3
    assert "left out" not in text
    assert "rank 0: 3 steps, 0 to 2" in said(checker)
    assert len(ends.results("online")) >= 51


def test_nobody_listens(ends: Ends, port: int) -> None:
    program = (ends.folder / "train.py").read_text()
    quick = "import pytest_probe.capture.online.stream as stream\nstream.GONE_SECONDS = 0.5\n"
    (ends.folder / "train.py").write_text(quick + program)
    text = said(ends.program(f"online={LOCAL}:{port}"))
    assert len(losses(text)) == 3
    assert text.count("has taken nothing") == 1
    assert "; 51 entries were left out" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--probe-listen=0.0.0.0:{port}"], "what is sent would be readable on its way"),
        (["--probe-listen=localhost:{taken}"], "nothing else listens on"),
        (["--probe-listen=localhost:{port},tls=empty"], "give a folder with server.crt, server.key and"),
        (["--probe-listen=file:///tmp/x,limit=1GB"], "limit is for HOST:PORT; leave it out"),
        (["--probe-listen=localhost:{port},limit=much"], "--probe-listen: 'much' cannot be used; give a size"),
        (["--probe-listen=config.json"], "its section run_ut must have is_online true"),
        (["--probe-listen=none.json"], "give a configuration file that can be read"),
    ],
)
def test_what_cannot_be_used(ends: Ends, port: int, options: list[str], words: str) -> None:
    (ends.folder / "empty").mkdir()
    (ends.folder / "config.json").write_text('{"task": "run_ut", "run_ut": {"host": "127.0.0.1", "port": 1}}')
    with socket.create_server((LOCAL, 0)) as taken:
        names = {"port": port, "taken": taken.getsockname()[1]}
        checker = ends.checker("out", *(option.format(**names) for option in options))
        text = said(checker)
    assert checker.returncode == 4, text
    assert words in text


def test_a_program_does_not_send_plain_text_away(ends: Ends) -> None:
    text = said(ends.program("online=checker.example.org:7000"))
    assert "what is sent would be readable on its way" in text
    assert "tls_path" in text


def test_the_configurations_of_msprobe(ends: Ends, port: int) -> None:
    """Both ends, with the lists of the checker's."""
    training = {"task": "tensor", "online_run_ut": True, "host": LOCAL, "port": port, "seed": 3, "tensor": {}}
    (ends.folder / "training.json").write_text(json.dumps(training))
    checking = {"is_online": True, "host": LOCAL, "port": port, "rank_list": [0], "black_list": ["gelu"]}
    (ends.folder / "checking.json").write_text(json.dumps({"task": "run_ut", "run_ut": checking}))
    program = (ends.folder / "train.py").read_text()
    (ends.folder / "train.py").write_text(program.replace('task="tensor", **options', '"training.json"'))
    checker = ends.checker("online", "--probe-listen=checking.json")
    said(ends.program())
    text = said(checker)
    assert checker.returncode == 0, text
    entries = {line["id"].partition("::")[2] for line in ends.results("online")}
    assert "Functional.linear.0.forward" in entries
    assert not any("gelu" in each for each in entries)
