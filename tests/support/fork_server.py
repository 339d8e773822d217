"""A process that has imported torch, pytest and this package, and is forked for each program that forks.py asks it to
run, and for each worker that a run of pytest among these starts.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar

# Seconds that a program may take.
LIMIT = 1200


class Fork:
    """`python ARGS`, as a fork of the server that hears this socket: what is used of a `Popen`."""

    # What all that have ended took.
    seconds: ClassVar[float] = 0.0

    def __init__(
        self,
        server: socket.socket,
        args: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: tuple[int, int, int],
    ) -> None:
        request = {"args": [*map(str, args)], "folder": str(folder), "environment": dict(environment)}
        self._report, its = os.pipe()
        socket.send_fds(server, [json.dumps(request).encode()], [*streams, its])
        os.close(its)
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.pid: int = struct.unpack("i", os.read(self._report, 4))[0]

    def wait(self, timeout: float | None = LIMIT) -> int:
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                self.kill()
            self.returncode, seconds = struct.unpack("id", os.read(self._report, struct.calcsize("id")))
            Fork.seconds += seconds
            os.close(self._report)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None and not select.select([self._report], [], [], 0)[0]:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def beginning(fork: Callable[..., Fork]) -> Callable[..., None]:
    """What execnet starts a worker by, where it is to be such a fork."""
    from execnet.gateway_base import Popen2IO

    def begin(self: Any, args: Sequence[str], execmodel: Any) -> None:
        (its_input, to), (from_, its_output) = os.pipe(), os.pipe()
        self.popen = fork(args[1:], Path.cwd(), os.environ, (its_input, its_output, 2))
        os.close(its_input)
        os.close(its_output)
        self.popen.stdin, self.popen.stdout = os.fdopen(to, "wb"), os.fdopen(from_, "rb")
        Popen2IO.__init__(self, self.popen.stdin, self.popen.stdout, execmodel=execmodel)

    return begin


def serve(requests: socket.socket, of_programs: socket.socket) -> None:
    """Until nobody has the other end of requests. Programs ask by the other socket."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        for ready in select.select([requests, of_programs], [], [])[0]:
            message, files, _, _ = socket.recv_fds(ready, 1 << 20, 4)
            if not message:
                return
            if not os.fork():
                requests.close()
                _watch(json.loads(message), files)
            _close(files)


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)


def _watch(request: dict[str, Any], files: Sequence[int]) -> None:
    """Write the number of the process; its status and the CPU time that it took when it has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, report = files
    number = os.fork()
    if not number:
        os.close(report)
        _become(request, streams)
    _close(streams)
    os.write(report, struct.pack("i", number))
    _, status, used = os.wait4(number, 0)
    os.write(report, struct.pack("id", os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime))
    os._exit(0)


def _become(request: dict[str, Any], streams: Sequence[int]) -> None:
    """What the interpreter does around a program."""
    for number, file in enumerate(streams):
        os.dup2(file, number)
    _close(streams)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[1:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    status = _status(request["args"])
    vars(threading)["_shutdown"]()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 255)


def _status(args: list[str]) -> int:
    try:
        _execute(args)
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
            return 1
        return stop.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _execute(args: list[str]) -> None:
    """As `python ARGS`."""
    if args[0] == "-u":
        args = args[1:]
    if args[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *args[2:]], ""
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(args[1], main.__dict__)
    elif args[0].startswith("-m"):
        name, *rest = args[1:] if args[0] == "-m" else (args[0][2:], *args[1:])
        sys.argv, sys.path[0] = [name, *rest], os.getcwd()
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = args, os.path.dirname(os.path.abspath(args[0]))
        runpy.run_path(args[0], run_name="__main__")


if __name__ == "__main__":
    import hypothesis.strategies  # noqa: F401
    import torch._dynamo  # noqa: F401  # optimizers import it at their first step
    from execnet.gateway_io import Popen2IOMaster

    import pytest_probe.cli
    import pytest_probe.plugin.reporting  # noqa: F401

    # pytest would warn that it cannot rewrite the asserts of these packages.
    for name in ("_hypothesis_globals", "hypothesis", "pytest_probe"):
        sys.modules[name].__doc__ = "PYTEST_DONT_REWRITE"
    programs, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    Popen2IOMaster.__init__ = beginning(partial(Fork, programs))  # type: ignore[method-assign]
    # What forks collect of garbage does not pass over what is here.
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])), its)
