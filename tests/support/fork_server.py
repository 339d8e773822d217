"""A process that has imported torch and pytest, and is forked for each program that forks.py asks it to run."""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import struct
import sys
import threading
import traceback
import types
from collections.abc import Sequence
from typing import Any

import numpy as np  # noqa: F401
import pytest  # noqa: F401
import torch._dynamo  # noqa: F401  # optimizers import it at their first step


def serve(requests: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, files, _, _ = socket.recv_fds(requests, 1 << 20, 4)
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
    # What forks collect of garbage does not pass over what is here.
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
