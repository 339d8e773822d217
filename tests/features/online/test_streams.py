"""What goes over a stream comes once, whole and in order, whatever happens to the connection."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pytest

pytest.importorskip("grpc", reason="needs the extra online")

from pytest_probe.capture.online import stream as sending
from pytest_probe.capture.online.address import HostPort
from pytest_probe.capture.online.frames import METHOD, NUMBER, PART_BYTES, SERVICE, Welcome, certificates
from pytest_probe.capture.online.message import Entry, Goodbye, read
from pytest_probe.errors import SettingsError
from pytest_probe.features.online import receiver
from pytest_probe.system.tensor_files import stored_tensors
from tests.features.online.streams import (
    LOCAL,
    SENDER,
    CuttingProxy,
    Listening,
    cuts,
    entry,
    make_certificates,
    tensors,
)


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[Callable[..., Listening]]:
    made: list[Listening] = []

    def start(**options: object) -> Listening:
        folder = options.pop("folder", None) or tmp_path / f"spool{len(made)}"
        made.append(Listening(folder, **options))  # type: ignore[arg-type]
        return made[-1]

    yield start
    for each in made:
        each.close()


def came(folder: Path) -> list[tuple[int, np.ndarray]]:
    """The numbers of the calls that came, in their order, and what they hold."""
    found = []
    for path in sorted(folder.glob("*.safetensors")):
        message = read(path)
        if isinstance(message, Entry):
            stored = stored_tensors(path).tensors["input.0"]
            found.append((message.call, np.frombuffer(path.read_bytes()[stored.start :], np.float32)))
    return found


def test_tensors_come_as_they_went(listen: Callable[..., Listening]) -> None:
    end = listen()
    elements = [0, 1, PART_BYTES // 4 - 1, PART_BYTES // 4, PART_BYTES // 4 + 1, 3 * PART_BYTES // 4]
    program = end.stream()
    for number, count in enumerate(elements):
        assert program.put(entry(number), tensors(number, count))
    program.close(Goodbye(SENDER, len(elements), 7))
    for (number, found), count in zip(came(end.folder), elements, strict=True):
        np.testing.assert_array_equal(found, tensors(number, count)["input.0"])
    goodbye = read(end.folder / end.files()[-1])
    assert goodbye == Goodbye(SENDER, len(elements), 7)
    assert not end.refused


@pytest.mark.parametrize("seed", range(4))
def test_connections_cut_at_twenty_moments_lose_and_repeat_nothing(
    listen: Callable[..., Listening], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_RETRY_SECONDS", 0.01)
    end = listen()
    proxy = CuttingProxy(end.receiver.port, cuts(seed, 20, 200_000))
    program = end.stream(proxy.port)
    for number in range(100):
        assert program.put(entry(number), tensors(number, 10_000))
    program.close(Goodbye(SENDER, 100, 0))
    proxy.close()
    assert proxy.cut == 20
    found = came(end.folder)
    assert [number for number, _ in found] == list(range(100))
    for number, array in found:
        np.testing.assert_array_equal(array, tensors(number, 10_000)["input.0"])


def test_a_program_waits_where_it_shall(listen: Callable[..., Listening], monkeypatch: pytest.MonkeyPatch) -> None:
    """The checking host judges nothing: its folder fills, then the program's buffer, and then the program waits."""
    monkeypatch.setattr(receiver, "_TENSORS", 1)
    end = listen(limit=1 << 20, judges="gone")
    program = end.stream(limit=1 << 20)
    put: list[int] = []

    def run() -> None:
        for number in range(10):
            assert program.put(entry(number), tensors(number, 100_000))
            put.append(number)
        program.close(Goodbye(SENDER, 10, 0))

    running = threading.Thread(target=run)
    running.start()
    running.join(2.0)
    # Each has 400 kB: two in the folder, one that its room is waited for, and two in the buffer at least.
    assert running.is_alive()
    assert len(put) < 7
    seen = set()
    while running.is_alive():
        for path in end.folder.glob("*.safetensors"):
            seen.add(path.name)
            path.unlink()
        running.join(0.01)
    assert len(put) == 10
    assert len(seen | set(end.files())) == 11


def test_a_program_that_must_not_wait_drops_what_finds_no_room(
    listen: Callable[..., Listening], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "GONE_SECONDS", 0.5)
    program = listen().stream(port=1, limit=1 << 20, waits=False)
    assert [program.put(entry(number), tensors(number, 100_000)) for number in range(4)] == [True, True, False, False]
    assert not program.full  # another of the same size finds no room, a smaller one does
    assert program.put(entry(4), tensors(4, 50_000))
    assert program.full
    program.close(Goodbye(SENDER, 3, 2))
    assert not program.full


@pytest.mark.parametrize("taken", [0, 1])
def test_another_checker_goes_on_where_the_first_ended(listen: Callable[..., Listening], port: int, taken: int) -> None:
    first = listen(port=port)
    program = first.stream()
    for number in range(taken):
        assert program.put(entry(number), tensors(number))
    while program._waiting:
        threading.Event().wait(0.01)
    first.close()
    for number in range(taken, 5):
        assert program.put(entry(number), tensors(number))
    second = listen(port=port)
    program.close(Goodbye(SENDER, 5, 0))
    second.close()
    assert [number for number, _ in came(first.folder)] == [*range(taken)]
    assert [number for number, _ in came(second.folder)] == [*range(taken, 5)]


def test_a_program_keeps_what_has_no_result(listen: Callable[..., Listening], port: int) -> None:
    """The first checker took three messages and judged two, one of which it only noted; then it was killed. The second
    judges the other, from the folder of the first or, where that is lost, from the program."""
    for same in (True, False):
        first = listen(judges="gone", port=port)
        program = first.stream()
        for number in range(3):
            assert program.put(entry(number), tensors(number))
        while len(first.files()) < 3:
            threading.Event().wait(0.01)
        received = first.receiver.take()
        assert received is not None
        first.receiver.judged(received)
        assert first.receiver.take() is not None
        first.receiver.note(SENDER.run, 1)
        while len(program._waiting) > 1:
            threading.Event().wait(0.01)
        first.receiver._loop.call_soon_threadsafe(first.receiver._end.set)
        first.receiver._thread.join()
        first.receiver._beat.path.unlink()
        second = listen(folder=first.folder if same else None, port=port)
        closing = threading.Thread(target=program.close, args=(Goodbye(SENDER, 3, 0),))
        closing.start()
        closing.join()
        assert [number for number, _ in came(second.folder)] == [2]
        while not second.receiver.senders.all_ended:
            second.receiver.take()
        assert second.receiver.senders.lost(second.receiver.done) == []
        second.close()


WELCOME = msgspec.json.encode(Welcome(0, 1 << 30))
Answer: TypeAlias = "Callable[[Iterator[bytes], threading.Event], Iterator[bytes]]"
HELD: dict[str, Any] = {
    "nobody is there": None,
    "takes no connection": None,
    "says nothing": lambda requests, over: iter(over.wait, True),
    "takes nothing": lambda requests, over: chain([WELCOME], iter(over.wait, True)),
    "ends each stream": lambda requests, over: iter(()),
}


@contextmanager
def answering(answer: Answer) -> Iterator[int]:
    """A host at the port that is given answers each stream so."""
    import grpc

    over, server = threading.Event(), grpc.server(ThreadPoolExecutor(4))
    handler = grpc.stream_stream_rpc_method_handler(lambda requests, context: answer(requests, over))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    port = server.add_insecure_port(f"{LOCAL}:0")
    server.start()
    yield port
    # Else the thread that answers keeps this process from its end.
    over.set()
    server.stop(None)


@pytest.mark.parametrize("kind", HELD)
def test_a_program_is_not_held(kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sending, "GONE_SECONDS", 1.0)
    monkeypatch.setattr(sending, "_RETRY_SECONDS", 0.02)
    answer, silent = HELD[kind], socket.create_server((LOCAL, 0))
    unanswered = 1 if kind == "nobody is there" else silent.getsockname()[1]
    with nullcontext(unanswered) if answer is None else answering(answer) as port:
        program = sending.Stream(HostPort(LOCAL, port), SENDER, limit=1, waits=True, keys=None)
        assert program.put(entry(0), tensors(0))
        # Waits for room until the checking host is given up.
        assert not program.put(entry(1), tensors(1))
        assert not program.put(entry(2), tensors(2))
        assert program.close(Goodbye(SENDER, 1, 0)) == 1
    silent.close()
    # A stream of another test may be given up meanwhile.
    (line,) = (line for line in caplog.messages if f"{LOCAL}:{port} " in line)
    assert "has taken nothing for 1 s" in line
    assert "the program continues, and no more calls are checked" in line


def test_a_stream_whose_reader_never_wakes_is_opened_anew(
    listen: Callable[..., Listening], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So gRPC leaves it, once in some hundred calls that fail as they begin: the checking host comes later."""
    asleep, woken = threading.Event(), threading.Event()
    hear = sending.Stream._hear_all

    def sleeps(stream: sending.Stream, session: Any) -> None:
        first = not asleep.is_set()
        asleep.set()
        woken.wait() if first else hear(stream, session)

    monkeypatch.setattr(sending, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(sending.Stream, "_hear_all", sleeps)
    program = sending.Stream(HostPort(LOCAL, port), SENDER, limit=1 << 20, waits=True, keys=None)
    while program._ended == "the connection is open":
        asleep.wait(0.01)
    assert program.put(entry(0), tensors(0))
    late = listen(port=port)
    assert program.close(Goodbye(SENDER, 1, 0)) == 0
    assert [number for number, _ in came(late.folder)] == [0]
    woken.set()


def test_a_stream_that_gets_no_welcome_is_opened_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checking host that ends just when a stream begins never answers it, and the next one is not asked."""
    monkeypatch.setattr(sending, "_WELCOME_SECONDS", 0.5)
    streams = iter(range(1000))

    def answer(requests: Iterator[bytes], over: threading.Event) -> Iterator[bytes]:
        if next(streams) == 0:
            over.wait()
            return
        yield WELCOME
        for _ in requests:
            yield NUMBER.pack(2)

    with answering(answer) as port:
        program = sending.Stream(HostPort(LOCAL, port), SENDER, limit=1 << 20, waits=True, keys=None)
        assert program.put(entry(0), tensors(0))
        assert program.close(Goodbye(SENDER, 1, 0)) == 0
        assert next(streams) > 1


def test_a_program_that_opens_two_streams(
    listen: Callable[..., Listening], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    end = listen()
    first = end.stream()
    assert first.put(entry(0), tensors(0))
    while first._waiting:
        threading.Event().wait(0.01)
    second = end.stream()
    assert second.put(entry(0), tensors(0))
    assert second.put(entry(1), tensors(1))
    second.close(Goodbye(SENDER, 2, 0))
    end.close()
    assert [number for number, _ in came(end.folder)] == [0, 1]
    assert "CancelledError" not in capfd.readouterr().err + caplog.text


def test_a_message_that_is_too_large_is_left_out_and_counted(
    listen: Callable[..., Listening], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "_TENSORS", 1)
    end = listen(limit=1 << 20)
    program = end.stream()
    # The checking host leaves it out, or the program does where it knows by then what the host takes.
    sent = program.put(entry(0), tensors(0, 1 << 20))
    assert program.put(entry(1), tensors(1))
    while not end.files():
        threading.Event().wait(0.01)
    assert not program.put(entry(2), tensors(2, 1 << 20))
    program.close(Goodbye(SENDER, 1 + sent, 2 - sent))
    assert [number for number, _ in came(end.folder)] == [1]
    assert read(end.folder / end.files()[-1]) == Goodbye(SENDER, 1, 2)
    assert not end.refused


@pytest.mark.parametrize(
    "stranger", ["without a certificate", "in plain text", "of another authority", "that trusts another authority"]
)
def test_who_shows_no_certificate_is_not_heard(
    listen: Callable[..., Listening],
    tls: Path,
    tmp_path: Path,
    stranger: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    import grpc

    monkeypatch.setattr(sending, "GONE_SECONDS", 0.5)
    end = listen(tls=tls)
    keys = certificates(tls, "client")
    if "authority" in stranger:
        other = make_certificates(tmp_path / "other")
        key, certificate, authority = certificates(other, "client")
        keys = (*keys[:2], authority) if "trusts" in stranger else (key, certificate, keys[2])
    elif stranger == "without a certificate":
        make = grpc.ssl_channel_credentials
        monkeypatch.setattr(grpc, "ssl_channel_credentials", lambda authority, key, certificate: make(authority))
    sender = end.stream(keys=None if stranger == "in plain text" else keys)
    assert sender.put(entry(0), tensors(0))
    sender.close(Goodbye(SENDER, 1, 0))
    assert not end.files()
    assert "no more calls are checked" in caplog.text
    monkeypatch.undo()
    friend = end.stream(keys=certificates(tls, "client"))
    assert friend.put(entry(1), tensors(1))
    friend.close(Goodbye(SENDER, 1, 0))
    assert [number for number, _ in came(end.folder)] == [1]


def test_a_port_that_is_taken(listen: Callable[..., Listening], tmp_path: Path) -> None:
    taken = listen().address
    with pytest.raises(SettingsError, match="nothing else listens on"):
        receiver.Receiver(taken, tmp_path, limit=1, keys=None)
    assert not list(tmp_path.glob("*.alive"))


def test_certificates_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"server\.key.*give a folder with server\.crt, server\.key and ca\.crt"):
        certificates(tmp_path, "server")


def test_certificates_that_are_none(listen: Callable[..., Listening], tls: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tls, broken)
    (broken / "server.crt").write_text("no certificate")
    with pytest.raises(SettingsError):
        listen(tls=broken)
