"""What no program of ours sends: the stream ends with a reason, others go on, and nothing is written but messages."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

grpc = pytest.importorskip("grpc", reason="needs the extra online")

from pytest_probe.capture.online import shared_folder
from pytest_probe.capture.online.address import HostPort
from pytest_probe.capture.online.frames import HEAD, PART_BYTES
from pytest_probe.capture.online.message import Goodbye, Sender, read
from pytest_probe.capture.online.stream import Stream
from pytest_probe.features.online import receiver
from tests.features.online.streams import LIMIT, SENDER, Listening, content, entry, greeting, tensors

OTHER = Sender("ffff0000", 1, 2)


@pytest.fixture
def end(tmp_path: Path) -> Iterator[Listening]:
    made = Listening(tmp_path / "spool")
    yield made
    made.close()


def whole(number: int, message: bytes) -> list[bytes]:
    head = HEAD.pack(number, len(message))
    return [head, head + message]


GOOD = content(entry(0), tensors(0))


REFUSED = {
    "nothing": ([], "the greeting cannot be read"),
    "a greeting that is no JSON": ([b"\xff\xfe{"], "the greeting cannot be read"),
    "deep brackets": ([b"[" * 4000], "the greeting cannot be read"),
    "a long greeting": ([b" " * 5000], "expected a greeting of at most 4,096"),
    "a name that is a path": ([greeting().replace(b"0123abcd", b"../../ab")], "the greeting cannot be read"),
    "another version": ([greeting(version=9)], "is of another version, expected 1: install"),
    "a large first number": ([greeting(first=0).replace(b'"first":0', b'"first":1e99')], "the greeting cannot be read"),
    "a part without a head": ([greeting(), b"1234"], "a message begins with 4 bytes"),
    "another number": ([greeting(), *whole(5, GOOD)], "message 5 came, expected 0"),
    "a huge size": ([greeting(), HEAD.pack(0, 1 << 63)], "expected at most"),
    "more than it says": ([greeting(), HEAD.pack(0, 10), HEAD.pack(0, 10) + GOOD], "bytes more than its head says"),
    "a cut message": ([greeting(), whole(0, GOOD)[0], whole(0, GOOD)[1][:-9]], "ended 9 bytes before the end"),
    "a part of another": (
        [greeting(), whole(0, GOOD)[0], whole(0, GOOD)[1][:-9], *whole(1, GOOD)],
        "belongs to another message",
    ),
    "a pickle": ([greeting(), *whole(0, pickle.dumps(print))], ""),
    "a zip file": (
        [greeting(), *whole(0, b"PK\3\4" + bytes(100))],
        "its header has 67,324,752 bytes, which are at most",
    ),
    "another sender": ([greeting(), *whole(0, content(entry(0, OTHER)))], "another sender than its stream"),
    "a name that no call has": (
        [greeting(), *whole(0, content(entry(0, name="../../etc/passwd")))],
        "a name that no call has",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_the_stream_ends_with_a_reason_and_others_go_on(end: Listening, kind: str) -> None:
    requests, wanted = REFUSED[kind]
    friend = end.stream(sender=OTHER)
    assert friend.put(entry(0, OTHER), tensors(0))
    code, why = end.raw(*requests)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert wanted in why
    assert why
    assert [each.partition(": ")[2] for each in end.refused] == [why]
    assert friend.put(entry(1, OTHER), tensors(1))
    friend.close(Goodbye(OTHER, 2, 0))
    # Of the refused one nothing is left.
    assert [read(end.folder / name).sender for name in end.files()] == [OTHER] * 3
    assert not {path.suffix for path in end.folder.iterdir()} - {".safetensors", ".alive", ".done"}


def test_a_tensor_over_the_limit(tmp_path: Path) -> None:
    end = Listening(tmp_path / "spool", limit=3999)
    code, why = end.raw(greeting(), *whole(0, GOOD))
    assert (code, why) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "tensor input.0 has 4,000 bytes, expected at most 3,999: see --probe-listen=HOST:PORT,limit=SIZE",
    )
    end.close()


def test_a_part_that_is_too_large(end: Listening) -> None:
    code, _ = end.raw(greeting(), HEAD.pack(0, 2 * PART_BYTES), HEAD.pack(0, 2 * PART_BYTES) + bytes(PART_BYTES + 1))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not end.files()


def test_who_never_comes_to_an_end(end: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sends nothing, the second part after part without content, the third stops in the middle."""
    monkeypatch.setattr(receiver, "_HELLO_SECONDS", 0.3)
    monkeypatch.setattr(receiver, "_MESSAGE_SECONDS", 0.3)

    def forever(*requests: bytes, pause: float) -> Iterator[bytes]:
        yield from requests
        over = threading.Event()
        while not over.wait(pause):
            yield HEAD.pack(0, len(GOOD))

    for requests in ((), (greeting(), HEAD.pack(0, len(GOOD)))):
        with grpc.insecure_channel(str(end.address)) as channel:
            call = channel.stream_stream("/pytest_probe.Online/Send")
            calls = call(forever(*requests, pause=0.01 if requests else 60), timeout=20)
            with pytest.raises(grpc.RpcError) as found:
                list(calls)
            assert found.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            assert found.value.details() == "what was begun did not come to its end in time"
    assert {path.suffix for path in end.folder.iterdir()} <= {".alive"}


def test_a_program_that_goes_without_a_goodbye(end: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "BEAT_SECONDS", 0.05)
    over, senders = threading.Event(), end.receiver.senders
    with grpc.insecure_channel(str(end.address)) as channel:
        message = chain([greeting(), *whole(0, GOOD)], iter(over.wait, True))
        call = channel.stream_stream("/pytest_probe.Online/Send")(message)
        while (received := end.receiver.take()) is None:
            time.sleep(0.01)
        end.receiver.judged(received)
        (alive,) = end.folder.glob(f"{shared_folder.TRAINER}-*.alive")
        last = alive.stat().st_mtime_ns
        while alive.stat().st_mtime_ns == last:
            time.sleep(0.01)
        end.receiver.take()
        assert not senders.all_ended
        call.cancel()
        over.set()
    monkeypatch.setattr(shared_folder, "GONE_SECONDS", 0.5)
    while not senders.all_ended:
        end.receiver.take()
    why = "rank 0 went without a goodbye: 1 of the 1 entries that it sent were judged"
    assert senders.lost(end.receiver.done) == [why]


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """A message with another byte."""
    found = bytearray(GOOD)
    found[draw(st.integers(0, len(GOOD) - 1))] ^= draw(st.integers(1, 255))
    return bytes(found)


PARTS = st.binary(max_size=200) | st.sampled_from([greeting(), *whole(0, GOOD), GOOD])


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PARTS, max_size=4) | changed().map(lambda message: [greeting(), *whole(0, message)]))
def test_any_bytes(end: Listening, requests: list[bytes]) -> None:
    code, _ = end.raw(*requests)
    assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OK)
    for name in end.files():
        assert read(end.folder / name).sender == SENDER
    # Who sends no message keeps nobody from sending one.
    assert end.raw(greeting(OTHER, first=1 << 40))[0] is grpc.StatusCode.OK


# It prints its port, listens until its standard input ends, and prints the most memory that it had.
LISTENER = """
import resource, sys
from pathlib import Path
from pytest_probe.capture.online.address import HostPort
from pytest_probe.features.online.receiver import Receiver
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
end = Receiver(HostPort("127.0.0.1", 0), Path(sys.argv[1]), limit=int(sys.argv[2]), keys=None)
print(end.port, flush=True)
sys.stdin.read()
end.close()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@contextmanager
def listener(folder: Path, limit: int, head: str = "") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that listens, after these lines of a program, and its port."""
    command = [sys.executable, "-c", head + LISTENER, str(folder), str(limit)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process, int(process.stdout.readline())
    process.kill()


@pytest.mark.slow
def test_idle_connections_end_nothing(tmp_path: Path) -> None:
    """More than this process may have files; they show nothing, and go soon."""
    quick = "import resource\nfrom pytest_probe.capture.online import frames\n"
    quick += "frames.STRANGERS = (('grpc.server_handshake_timeout_ms', 2000), *frames.STRANGERS[1:])\n"
    quick += "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))\n"
    with listener(tmp_path, LIMIT, quick) as (process, port):
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
        friend = Stream(HostPort("127.0.0.1", port), SENDER, limit=LIMIT, waits=True, keys=None)
        assert friend.put(entry(0), tensors(0))
        end = time.monotonic() + 30
        while not list(tmp_path.glob("*.safetensors")) and time.monotonic() < end:
            time.sleep(0.05)
        assert list(tmp_path.glob("*.safetensors"))
        for each in idle:
            each.close()
        process.communicate()
        assert process.returncode == 0


@pytest.mark.slow
def test_two_hundred_clients_at_once_take_little_memory(tmp_path: Path) -> None:
    """Each sends 24 MiB of the largest message, and never ends it."""
    limit, over = 256 << 20, threading.Event()
    part = HEAD.pack(0, 4 * limit) + bytes(PART_BYTES)

    def forever(number: int) -> Iterator[bytes]:
        yield greeting(Sender(f"{number:08x}", number, 200))
        yield HEAD.pack(0, 4 * limit)
        for _ in range(6):
            yield part
        over.wait()

    options = [("grpc.use_local_subchannel_pool", 1)]
    with listener(tmp_path, limit) as (process, port):
        channels = [grpc.insecure_channel(f"127.0.0.1:{port}", options) for _ in range(200)]
        calls = [channel.stream_stream("/pytest_probe.Online/Send")(forever(n)) for n, channel in enumerate(channels)]
        for call in calls:
            next(call)
        over.wait(3.0)
        with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
            friend = iter([greeting(Sender("abcdabcd", 0, 1))])
            welcome = next(channel.stream_stream("/pytest_probe.Online/Send")(friend, timeout=20))
        assert b'"next":0' in welcome
        over.set()
        for call in calls:
            call.cancel()
        for channel in channels:
            channel.close()
        taken, _ = process.communicate()
        assert int(taken) < 1.5 * limit


def test_what_comes_is_bounded_by_the_folder(tmp_path: Path) -> None:
    """LIMIT is of a tensor; nobody judges, and no more than four times as much lies there."""
    end = Listening(tmp_path / "spool", judges="gone")
    program = end.stream(limit=1 << 30)
    for number in range(20):
        assert program.put(entry(number), tensors(number, LIMIT // 16))
    while len(end.files()) < 15:
        threading.Event().wait(0.01)
    threading.Event().wait(0.2)
    size = sum(path.stat().st_size for path in end.folder.glob("*.safetensors"))
    assert size <= 4 * LIMIT
    end.close()


def test_who_stalls_takes_no_room_from_others(tmp_path: Path) -> None:
    """It says that it sends as much as there is room for, and sends a part."""
    end = Listening(tmp_path / "spool", limit=1 << 20, judges="gone")
    over = threading.Event()

    def stalls() -> Iterator[bytes]:
        yield greeting(OTHER)
        yield HEAD.pack(0, 4 << 20)
        yield HEAD.pack(0, 4 << 20) + bytes(1 << 20)
        over.wait()

    with grpc.insecure_channel(str(end.address), [("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = channel.stream_stream("/pytest_probe.Online/Send")(stalls(), timeout=60)
        next(call)
        friend = end.stream()
        for number in range(40):
            assert friend.put(entry(number), tensors(number, 100_000))
            while number > 5 and not end.files():
                over.wait(0.01)
            for name in end.files():
                (end.folder / name).unlink()
        end.judges = "there"
        friend.close(Goodbye(SENDER, 40, 0))
        over.set()
    end.close()


def test_messages_that_fill_the_folder_together_come_to_their_ends(tmp_path: Path) -> None:
    end = Listening(tmp_path / "spool", limit=2 << 20, judges="gone")
    senders = [Sender(f"0000000{number}", number, 4) for number in range(4)]
    programs = [end.stream(sender=sender, limit=1 << 30) for sender in senders]
    for sender, program in zip(senders, programs, strict=True):
        message = {f"input.{number}": tensors(number, 450_000)["input.0"] for number in range(4)}
        assert program.put(entry(0, sender), message)
    came: set[str] = set()
    closing = [
        threading.Thread(target=program.close, args=(Goodbye(sender, 1, 0),))
        for sender, program in zip(senders, programs, strict=True)
    ]
    for each in closing:
        each.start()
    while any(each.is_alive() for each in closing):
        for name in end.files():
            came.add(name)
            (end.folder / name).unlink()
        closing[0].join(0.01)
    came.update(end.files())
    assert len(came) == 8
    assert not end.refused
    end.close()
