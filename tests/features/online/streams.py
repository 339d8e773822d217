"""Both ends of streams in this process, certificates, and what cuts connections."""

from __future__ import annotations

import random
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import msgspec
import numpy as np

from pytest_probe.capture.online import frames
from pytest_probe.capture.online.address import HostPort
from pytest_probe.capture.online.message import VERSION, Entry, Sender, encoded
from pytest_probe.capture.online.stream import Stream
from pytest_probe.features.online.receiver import Receiver

LOCAL = "127.0.0.1"
SENDER = Sender("0123abcd", 0, 1)
LIMIT = 1 << 24


def entry(number: int, sender: Sender = SENDER, name: str = "Functional.linear") -> Entry:
    return Entry(sender, 0, number, f"{name}.{number}.forward", "{}", {})


def tensors(number: int, elements: int = 1000) -> dict[str, np.ndarray]:
    return {"input.0": np.full(elements, number, np.float32)}


def content(message: Any, arrays: dict[str, np.ndarray] | None = None) -> bytes:
    return b"".join(encoded(message, arrays))


def greeting(sender: Sender = SENDER, version: int = VERSION, first: int = 0) -> bytes:
    return msgspec.json.encode(frames.Hello(version, sender, first))


class Listening:
    """A receiver at a folder, and what it refused. What comes is judged when it is there (judges="there"), or when the
    test removes it ("gone")."""

    def __init__(
        self, folder: Path, *, limit: int = LIMIT, tls: Path | None = None, port: int = 0, judges: str = "there"
    ) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        keys = None if tls is None else frames.certificates(tls, "server")
        self.receiver = Receiver(HostPort(LOCAL, port), folder, limit=limit, keys=keys)
        self.refused = self.receiver.refused
        self._over = threading.Event()
        self.judges = judges
        threading.Thread(target=self._judge, daemon=True).start()

    def _judge(self) -> None:
        while not self._over.wait(0.005):
            for run, program in list(self.receiver.programs.items()):
                for number in list(program.unjudged):
                    if self.judges == "there" or not list(self.folder.glob(f"{number:09}-{run}-*.safetensors")):
                        self.receiver.note(run, number)

    @property
    def address(self) -> HostPort:
        return HostPort(LOCAL, self.receiver.port)

    def stream(self, port: int | None = None, **options: Any) -> Stream:
        options = {"limit": LIMIT, "waits": True, "keys": None, **options}
        return Stream(HostPort(LOCAL, port or self.receiver.port), options.pop("sender", SENDER), **options)

    def raw(self, *requests: bytes, seconds: float = 10.0) -> tuple[grpc.StatusCode, str]:
        """How a stream of these requests ends."""
        with grpc.insecure_channel(str(self.address)) as channel:
            call = channel.stream_stream(f"/{frames.SERVICE}/{frames.METHOD}")(iter(requests), timeout=seconds)
            try:
                for _ in call:
                    pass
            except grpc.RpcError as error:
                return error.code(), error.details()
            return grpc.StatusCode.OK, ""

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.safetensors"))

    def close(self) -> None:
        self._over.set()
        self.receiver.close()


class CuttingProxy:
    """Passes bytes on to a port, and cuts each of its first connections after so many bytes of either direction."""

    def __init__(self, port: int, cuts: Sequence[int]) -> None:
        self._port = port
        self._cuts = iter(cuts)
        self.cut = 0
        self._socket = socket.create_server((LOCAL, 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                server = socket.create_connection((LOCAL, self._port))
                left = [next(self._cuts, 1 << 60)]
                lock = threading.Lock()
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(*pair, left, lock), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, left: list[int], lock: threading.Lock) -> None:
        with suppress(OSError):
            while part := source.recv(1 << 16):
                target.sendall(part[: max(left[0], 0)])
                left[0] -= len(part)
                if left[0] <= 0:
                    break
        with lock:
            self.cut += left[0] <= 0 and left[0] > -(1 << 50)
            left[0] = -(1 << 59)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


def cuts(seed: int, count: int, most: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(most) for _ in range(count)]


def make_certificates(folder: Path, *, authority: Path | None = None) -> Path:
    """A folder with the keys and certificates of both ends, signed by an authority of its own, or by that of another
    folder."""
    folder.mkdir()
    for name in ("ca.key", "ca.crt") if authority is not None else ():
        (folder / name).write_bytes((authority / name).read_bytes())  # type: ignore[operator]
    if authority is None:
        _openssl(folder, "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority "
                         "-keyout ca.key -out ca.crt")  # fmt: skip
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    for end in ("server", "client"):
        _openssl(folder, f"req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={end} -keyout {end}.key "
                         f"-out {end}.csr")  # fmt: skip
        _openssl(folder, f"x509 -req -in {end}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names "
                         f"-out {end}.crt")  # fmt: skip
    return folder


def _openssl(folder: Path, words: str) -> None:
    subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True)
