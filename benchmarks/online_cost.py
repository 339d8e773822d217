"""What it costs to send calls to a checking host while the program runs, on loopback, as Markdown tables.

    python benchmarks/online_cost.py [--steps N] [--rounds N] [--tls DIR] [--msprobe PYTHON]

First training steps of a GPT (d = 256, 4 layers, T = 128, B = 4) on one thread of the CPU: plain, with task="tensor" to
the disk, and with online_policy block to another process of this machine, over a stream and through a shared folder.
That process takes what comes, and judges nothing. Times are those of all steps and of close(), by which everything is
on the disk, or with the other process, a step; the ways take turns. Then MB/s of one stream of messages of 16 MiB,
which the other end writes to its disk, beside a plain socket that throws away what comes. --tls is a folder with the
certificates of both ends; --msprobe an interpreter with mindstudio-probe 1.2.2, whose own client then sends as many
bytes to its own server (which take turns with ours in no other way).
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

MESSAGE = 16 << 20
SENT = 64
LOCAL = "127.0.0.1"


def drain(folder: Path, tls: str) -> None:
    """The other end: it prints its port, and removes each message that is whole, until its input ends."""
    from pytest_probe.capture.online.address import HostPort
    from pytest_probe.capture.online.frames import certificates
    from pytest_probe.features.online.receiver import Receiver

    keys = certificates(Path(tls), "server") if tls else None
    end = Receiver(HostPort(LOCAL, 0), folder, limit=1 << 31, keys=keys)
    print(end.port, flush=True)
    over = threading.Event()

    def remove() -> None:
        while not over.wait(0.002):
            for path in folder.glob("*.safetensors"):
                path.unlink()
                number, run, *_ = path.name.split("-")
                end.note(run, int(number))

    removing = threading.Thread(target=remove)
    removing.start()
    sys.stdin.read()
    end.close()
    over.set()
    removing.join()


def sink() -> None:
    """A plain socket's other end."""
    with socket.create_server((LOCAL, 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            client, _ = server.accept()
            buffer = bytearray(4 << 20)
            while client.recv_into(buffer):
                pass
            client.sendall(b"x")
            client.close()


@contextmanager
def other_end(*words: str) -> Iterator[int]:
    """Another process of this script, by the port that it prints."""
    process = subprocess.Popen(
        [sys.executable, __file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(2 if words == ("--sink",) else 60)
        process.kill()


def steps(given: argparse.Namespace) -> Iterator[str]:
    from pytest_probe import PrecisionDebugger

    step = importlib.import_module("capture_overhead").training("GPT", "pytorch")
    for _ in range(3):
        step()

    def timed(make: Callable[[], Any] | None) -> float:
        debugger = None if make is None else make()
        began = time.perf_counter()
        for _ in range(given.steps):
            if debugger is not None:
                debugger.start()
            step()
            if debugger is not None:
                debugger.stop()
                debugger.step()
        if debugger is not None:
            debugger.close()
        return (time.perf_counter() - began) / given.steps

    times: dict[str, list[float]] = {}
    for number in range(given.rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "came").mkdir()
            with other_end("--drain", str(folder / "came"), "--tls", given.tls) as port:
                tls = {"tls_path": given.tls} if given.tls else {}
                sending = functools.partial(PrecisionDebugger, task="tensor", **tls)
                ways: dict[str, Callable[[], Any] | None] = {
                    "plain": None,
                    "tensor, to the disk": functools.partial(
                        PrecisionDebugger, task="tensor", dump_path=folder / "dump"
                    ),
                    "online, a stream": functools.partial(sending, online=f"{LOCAL}:{port}"),
                    "online, a shared folder": functools.partial(sending, online=(folder / "came").as_uri()),
                }
                # Each way is first in its turn.
                names = list(ways)
                for way in names[number % len(names) :] + names[: number % len(names)]:
                    times.setdefault(way, []).append(timed(ways[way]))
    yield "| way | ms a step, median | of the dump's |"
    yield "|---|---|---|"
    dump = times["tensor, to the disk"]
    for way, found in times.items():
        ratio = statistics.median(mine / theirs for mine, theirs in zip(found, dump, strict=True))
        yield f"| {way} | {1e3 * statistics.median(found):.0f} | {ratio:.2f} |"


def speeds(given: argparse.Namespace) -> Iterator[str]:
    found: dict[str, list[float]] = {}
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as name:
            with other_end("--drain", name, "--tls", given.tls) as port:
                found.setdefault("ours", []).append(_stream(port, given.tls))
            with other_end("--sink") as port:
                found.setdefault("a plain socket", []).append(_plain(port))
    if given.msprobe:
        words = [given.msprobe, __file__, "--inside-msprobe", str(given.rounds)]
        lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
        found["msprobe 1.2.2"] = [float(line.split()[1]) for line in lines if line.startswith("MB/s ")]
    yield "| one stream | MB/s, median | of a plain socket's |"
    yield "|---|---|---|"
    plain = statistics.median(found["a plain socket"])
    for way, each in found.items():
        yield f"| {way} | {statistics.median(each):.0f} | {statistics.median(each) / plain:.2f} |"


def _stream(port: int, tls: str) -> float:
    import numpy as np

    from pytest_probe.capture.online.address import HostPort
    from pytest_probe.capture.online.frames import certificates
    from pytest_probe.capture.online.message import Entry, Goodbye, Sender
    from pytest_probe.capture.online.stream import Stream

    sender = Sender(os.urandom(4).hex(), 0, 1)
    keys = certificates(Path(tls), "client") if tls else None
    array = np.frombuffer(os.urandom(MESSAGE), np.uint8)
    began = time.perf_counter()
    stream = Stream(HostPort(LOCAL, port), sender, limit=1 << 30, waits=True, keys=keys)
    for number in range(SENT):
        stream.put(Entry(sender, 0, number, f"Torch.add.{number}.forward", "{}", {}), {"input.0": array})
    stream.close(Goodbye(sender, SENT, 0))
    return SENT * MESSAGE / 1e6 / (time.perf_counter() - began)


def _plain(port: int) -> float:
    content = os.urandom(MESSAGE)
    with socket.create_connection((LOCAL, port)) as connection:
        began = time.perf_counter()
        for _ in range(SENT):
            connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
        return SENT * MESSAGE / 1e6 / (time.perf_counter() - began)


def msprobes(rounds: int) -> None:
    """Inside msprobe's interpreter: its server in a process of its own, its client here."""
    for _ in range(rounds):
        server = subprocess.Popen(
            [sys.executable, __file__, "--msprobe-server"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        words = [sys.executable, __file__, "--msprobe-client", port]
        client = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = next((line for line in server.stdout if line.startswith("MB/s ")), "")
        print(found.strip(), flush=True)
        client.kill()
        server.kill()


def msprobe_server() -> None:
    from queue import Queue

    from msprobe.pytorch.api_accuracy_checker.tensor_transport_layer.server import TCPServer

    with socket.socket() as probe:
        probe.bind((LOCAL, 0))
        port = probe.getsockname()[1]
    queue: Queue[bytes] = Queue(50)
    TCPServer(port, queue, check_sum=False).start()
    time.sleep(1)
    print(port, flush=True)
    first = queue.get()
    began = time.perf_counter()
    for _ in range(SENT):
        queue.get()
    print(f"MB/s {SENT * len(first) / 1e6 / (time.perf_counter() - began)}", flush=True)


def msprobe_client(port: int) -> None:
    from msprobe.pytorch.api_accuracy_checker.tensor_transport_layer.client import TCPClient

    client = TCPClient(LOCAL, port, check_sum=False)
    client.start()
    content = os.urandom(MESSAGE)
    for _ in range(SENT + 1):
        client.add_to_sending_queue(content)
    time.sleep(600)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=5, help="steps of a round (default: 5)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each way (default: 5)")
    parser.add_argument("--tls", default="", metavar="DIR", help="a folder with the certificates of both ends")
    parser.add_argument("--msprobe", metavar="PYTHON", help="an interpreter that has mindstudio-probe 1.2.2")
    for hidden in ("--drain", "--inside-msprobe", "--msprobe-client"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    for hidden in ("--sink", "--msprobe-server"):
        parser.add_argument(hidden, action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drain:
        drain(Path(given.drain), given.tls)
    elif given.sink:
        sink()
    elif given.inside_msprobe:
        msprobes(int(given.inside_msprobe))
    elif given.msprobe_server:
        msprobe_server()
    elif given.msprobe_client:
        msprobe_client(int(given.msprobe_client))
    else:
        for line in (*steps(given), "", *speeds(given)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
